"""The record of a finished run of a recipe: written and read here, filled by `hfcomp.experiments`.

It is the `results.json` of the run's folder. The models lie beside it: that of the method in `method/`, those of
controls in `controls/<name>/`, those of further seeds in `seeds/<seed>/`, and what the forgetting guard chose for a
model beside it, as `method-guarded/`.
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
    "adj. p is adjusted for the number of differences: the method minus same-batch on the primary endpoint by Holm, "
    "all others as q (Benjamini and Hochberg)."
)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What is known of a run; `hfcomp.statistics.results` says what the keys of its file are.

    They are in the order of the file. What a run does not have, or an earlier version did not write, is None and left
    out of the file.
    """

    hfcomp_version: str
    # The model that the run is about, last among its models.
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
        """The record in a run's folder. Raises FileNotFoundError for a run that is not finished."""
        return cls.of(read_checked(folder / RESULTS_FILE, LOST))

    @classmethod
    def of(cls, contents: Mapping[str, Any]) -> Self:
        # Keys of other versions are skipped: the card of an old run shows what this version can read. Early runs have
        # no `general_average`.
        names = [one.name for one in fields(cls)]
        return cls(**{"general_average": None} | {name: contents[name] for name in names if name in contents})

    def contents(self) -> dict[str, Any]:
        """What its file holds of it."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        # A None that is known is written: a run without general abilities has `general_average: null`.
        needed = {one.name for one in fields(self) if one.default is MISSING}
        return {name: value for name, value in values.items() if value is not None or name in needed}

    @property
    def guarded(self) -> Mapping[str, Any]:
        """What the forgetting guard chose, by the model's name, and on which items."""
        guard = self.guard or {"models": {}, "items": None}
        return {name: {**chosen, "on": guard["items"]} for name, chosen in guard["models"].items()}

    def model_folder(self, name: str) -> str:
        """Where a model of the first seed is, in the folder of the run."""
        trained = unguarded_name(name)
        folder = METHOD_FOLDER if trained == self.method else f"{CONTROLS_FOLDER}/{trained}"
        return folder if name == trained else str(guarded_folder(Path(folder)))


def guarded_name(name: str) -> str:
    """The name of the point that the forgetting guard chose for a model."""
    return f"{name}{_GUARDED_MODEL}"


def guarded_folder(folder: Path) -> Path:
    """The folder of the point that the forgetting guard chose for the model in a folder."""
    return folder.with_name(f"{folder.name}{_GUARDED_FOLDER}")


def unguarded_name(name: str) -> str:
    return name.removesuffix(_GUARDED_MODEL)
