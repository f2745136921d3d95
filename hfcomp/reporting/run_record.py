"""The record of a finished recipe run: this module reads and writes it, `hfcomp.experiments` fills it.

The record is `results.json` in the run's folder. The models are in the same folder: the method in `method/`, controls
in `controls/<name>/`, models of other seeds in `seeds/<seed>/`, and models chosen by the forgetting guard next to the
original model, as `method-guarded/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Self

from hfcomp.checksums import read_checked
from hfcomp.reporting.lines import Line
from hfcomp.statistics.results import RESULTS_FILE

METHOD_FOLDER, CONTROLS_FOLDER, SEEDS_FOLDER = "method", "controls", "seeds"
_GUARDED_MODEL, _GUARDED_FOLDER = " guarded", "-guarded"
LOST = "Rerun the recipe: its finished stages are kept."
ADJUSTED = (
    "adj. p is corrected for the number of differences: Holm's p-value for the method minus same-batch on the primary "
    "endpoint, the q-value of Benjamini and Hochberg for all others."
)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """Facts about a run, in the order of the file; `hfcomp.statistics.results` documents the keys.

    Facts that a run does not have, or that an earlier version did not write, are None and are left out of the file.
    """

    hfcomp_version: str
    # Main model of the run, the last of its models.
    method: str
    caveat: str
    notes: Sequence[str]
    overlap: Sequence[Mapping[str, Any]] | None = None
    config: Mapping[str, Any]
    models: Mapping[str, Any] | None = None
    meanings: Mapping[str, str] | None = None
    recipe: str | None = None
    command: str | None = None
    processes: int | None = None
    sources: Mapping[str, str] | None = None
    defaults: Mapping[str, Any] | None = None
    default_sources: Mapping[str, str] | None = None
    trainer_classes: Sequence[str] | None = None
    benchmarks: Mapping[str, Any] | None = None
    skipped: Sequence[Mapping[str, str]] | None = None
    general_average: Line | None
    data: Mapping[str, Any] | None = None
    further_models: Mapping[str, str] | None = None
    blind: Mapping[str, Any] | None = None
    guard: Mapping[str, Any] | None = None
    published_effects: Sequence[Mapping[str, Any]] | None = None
    verdict: Sequence[str] | None = None
    stages: Sequence[Mapping[str, Any]] | None = None
    results: Sequence[Line]
    versions: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads the record in a run's folder. Raises FileNotFoundError for a run that is not finished."""
        return cls.of(read_checked(folder / RESULTS_FILE, LOST))

    @classmethod
    def of(cls, contents: Mapping[str, Any]) -> Self:
        # Ignores keys of other versions, so the card of an old run shows what this version can read. Early runs have
        # no `general_average`.
        names = [attribute.name for attribute in fields(cls)]
        return cls(**{"general_average": None} | {name: contents[name] for name in names if name in contents})

    def contents(self) -> dict[str, Any]:
        """Returns the content of its file."""
        values = {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}
        # Required fields are written even if they are None: a run without general abilities has
        # `general_average: null`.
        needed = {attribute.name for attribute in fields(self) if attribute.default is MISSING}
        return {name: value for name, value in values.items() if value is not None or name in needed}

    @property
    def guarded_points(self) -> Mapping[str, Any]:
        """The points that the forgetting guard chose, by model name, with the items that they were chosen on."""
        guard = self.guard or {"models": {}, "items": None}
        return {name: {**chosen, "on": guard["items"]} for name, chosen in guard["models"].items()}

    def model_folder(self, name: str) -> str:
        """Returns the folder of a model of the first seed, relative to the folder of the run."""
        trained = unguarded_name(name)
        folder = METHOD_FOLDER if trained == self.method else f"{CONTROLS_FOLDER}/{trained}"
        return folder if name == trained else str(guarded_folder(Path(folder)))


def guarded_name(name: str) -> str:
    """Returns the name of the point that the forgetting guard chose for a model."""
    return f"{name}{_GUARDED_MODEL}"


def guarded_folder(folder: Path) -> Path:
    """Returns the folder of the point that the forgetting guard chose for the model in a folder."""
    return folder.with_name(f"{folder.name}{_GUARDED_FOLDER}")


def unguarded_name(name: str) -> str:
    return name.removesuffix(_GUARDED_MODEL)
