"""Reads stored outcomes, model by model, from a folder that an evaluation or a recipe wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from hfcomp.checksums import read_checked
from hfcomp.evaluation.benchmarks.means import MEANS
from hfcomp.evaluation.item_scores import SCORES_FILE, read_scores
from hfcomp.statistics.average import Average
from hfcomp.statistics.outcomes import Outcomes, read_table
from hfcomp.statistics.results import ITEMS_FILE, RESULTS_FILE, RESULTS_SCHEMA_VERSION

FEWEST = 2
# Schema version since which the items' column of the model is called `arm`; before, it was `model`.
ARMS_SINCE = 5
BLIND_PATH = "blind"
"""The `path` of blind scorers among the models in results."""


@dataclass(frozen=True)
class Stored:
    """One model's outcomes in a folder."""

    name: str  # unique among those compared
    argument: str  # as the user named it
    model: str  # its name in the folder
    folder: Path
    outcomes: Outcomes
    results: Mapping[str, Any]  # content of the folder's `results.json`
    scores: pa.Table | None = None  # texts and cosines of all models in the folder, if stored

    @property
    def table(self) -> pd.DataFrame:
        return self.outcomes.table

    @property
    def file(self) -> Path:
        return self.folder / ITEMS_FILE


def read_stored(arguments: Sequence[str]) -> list[Stored]:
    """Reads the models of folders: all except blind scorers for a folder, a single one for `folder:model`."""
    read: dict[Path, tuple[Outcomes, dict[str, Any]]] = {}
    # Files are read once, even for several models of the same folder.
    scores: dict[Path, pa.Table | None] = {}
    models: list[Stored] = []
    for argument in arguments:
        folder, model = _split(argument)
        if folder not in read:
            read[folder], scores[folder] = read_evaluation(folder), read_scores(folder / SCORES_FILE)
        outcomes, results = read[folder]
        names = list(outcomes.table["arm"].unique())
        known = {name: facts for name, facts in (results.get("models") or {}).items() if isinstance(facts, Mapping)}
        blind = {name for name, facts in known.items() if facts.get("path") == BLIND_PATH}
        if model is not None and model not in names:
            raise ValueError(f"{folder / ITEMS_FILE} has no model {model!r}; it has {listing(names)}.")
        for name in [name for name in names if name not in blind] if model is None else [model]:
            models.append(Stored(name, argument, name, folder, outcomes.select(arm=name), results, scores[folder]))
    # Resolved, because two paths may lead to the same folder.
    places = Counter((model.folder.resolve(), model.model) for model in models)
    for (folder, model), count in places.items():
        if count > 1:
            raise ValueError(f"{folder}: model {model!r} is given {count} times. Name each model once.")
    if len(models) < FEWEST:
        raise ValueError(
            f"{models[0].file}: found one model, {models[0].model!r}. Pass a second folder to compare it with."
        )
    return _with_unique_names(models)


def _split(argument: str) -> tuple[Path, str | None]:
    """Splits FOLDER:MODEL, or returns a folder without a model. Both may contain colons."""
    if Path(argument).is_dir():
        return Path(argument), None
    for at in (index for index, letter in enumerate(argument) if letter == ":"):
        if Path(argument[:at]).is_dir():
            return Path(argument[:at]), argument[at + 1 :]
    raise ValueError(
        f"{argument}: found no such folder. Pass a folder written by `hfcomp evaluate` or a recipe, or folder:model."
    )


def _with_unique_names(models: Sequence[Stored]) -> list[Stored]:
    """Distinguishes models with equal names by their folders' names or, if these are equal too, by the paths."""
    names = [model.name for model in models]
    for place in (lambda model: model.folder.resolve().name, lambda model: str(model.folder.resolve())):
        count = Counter(names)
        names = [
            f"{model.model} ({place(model)})" if count[name] > 1 else name
            for name, model in zip(names, models, strict=True)
        ]
    return [replace(model, name=name) for name, model in zip(names, models, strict=True)]


def read_evaluation(path: str | Path) -> tuple[Outcomes, dict[str, Any]]:
    """Reads the outcomes and `results.json` in a folder written by `hfcomp evaluate` or a recipe.

    Raises ValueError if a file is missing, damaged or of another kind, or was written by a later hfcomp version.
    """
    folder = Path(path)
    for name in (ITEMS_FILE, RESULTS_FILE):
        if not (folder / name).is_file():
            raise ValueError(
                f"{folder}: found no {name}. Pass a folder written by `hfcomp evaluate` or a recipe; for a model, "
                f"run `hfcomp evaluate {folder} --benchmarks NAMES --output_dir FOLDER` first."
            )
    results = read_checked(folder / RESULTS_FILE, "Evaluate again, or restore the file from a copy.")
    # A file with this name may contain any JSON.
    version = results.get("schema_version") if isinstance(results, dict) else None
    if not isinstance(version, int):
        raise ValueError(f"{folder / RESULTS_FILE}: found no schema_version, so it is not an hfcomp results file.")
    if version > RESULTS_SCHEMA_VERSION:
        raise ValueError(
            f"{folder / RESULTS_FILE}: found schema_version {version}, but this hfcomp version reads up to "
            f"{RESULTS_SCHEMA_VERSION}. Upgrade hfcomp, or evaluate again with this one."
        )
    table, _ = read_table(folder / ITEMS_FILE, stated_items(results))
    table = table.rename(columns={"model": "arm"} if version < ARMS_SINCE else {})
    try:
        return Outcomes(table), results
    except ValueError as error:
        raise ValueError(f"{folder / ITEMS_FILE}: {error} Evaluate again.") from error


def model_facts(results: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns a model's facts in `results.json`, or only its path."""
    facts = (results.get("models") or {}).get(name)
    return dict(facts) if isinstance(facts, Mapping) else {"path": facts}


def origins(data: Mapping[str, Any] | None, depth: int = 0) -> Iterator[tuple[int, str, str | None]]:
    """Yields every place that was read, with its commit if known. `depth` is 0 for items and 1 for image pools."""
    if data:
        yield depth, data["place"], data.get("commit")
        for pool in data.get("pools") or ():
            yield from origins(pool, depth + 1)


def averages_of_lines(
    lines: Iterable[Mapping[str, Any]], notes: list[str] | None = None
) -> dict[Any, Sequence[Average]]:
    """Returns the averages among stored lines, by benchmark and metric, over the subsets that they had there.

    Averages over benchmarks are not read from lines. They are `MEANS`, so older folders have them too.

    `notes` receives the averages left out because their subsets differ between folders.
    """
    stored: dict[tuple[str, str, str], Average] = {}
    conflicting: dict[tuple[str, str, str], None] = {}
    for line in lines:
        if not line.get("groups"):
            continue
        key = line["benchmark"], line["metric"], line["subset"]
        # As the folder computed it, because today's benchmark may have other averages.
        own = Average(line["subset"], tuple(map(tuple, line["groups"])), line["pooled"])
        # A benchmark whose subsets changed has two averages with the same name. Neither is shown.
        if _parts(stored.setdefault(key, own)) != _parts(own):
            conflicting[key] = None
    chosen: dict[tuple[str, str], list[Average]] = {}
    for key, average in stored.items():
        if key not in conflicting:
            chosen.setdefault(key[:2], []).append(average)
        elif notes is not None:
            notes.append(f"{' '.join(key)}: left out, because the folders average it over different subsets")
    return {**chosen, **MEANS}


def _parts(average: Average) -> tuple[bool, list[list[str]]]:
    return average.pooled, sorted(sorted(group) for group in average.groups or ())


def stated_items(results: Mapping[str, Any]) -> str | None:
    """Returns the hash of the items behind the results; earlier hfcomp versions did not write one."""
    return (results.get("data") or {}).get("items")


def listing(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names))
