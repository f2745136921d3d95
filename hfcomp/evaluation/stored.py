"""Outcomes that an evaluation or a recipe left in a folder, model by model."""

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
# The version of results whose items call the column of the model `arm`; it was `model`.
ARMS_SINCE = 5
BLIND_PATH = "blind"
"""The path of a blind scorer among the models of results."""


@dataclass(frozen=True)
class Stored:
    """One model's outcomes in a folder."""

    name: str  # unique among those compared
    argument: str  # as it was asked for
    model: str  # its name in the folder
    folder: Path
    outcomes: Outcomes
    results: Mapping[str, Any]  # what the folder's `results.json` holds
    scores: pa.Table | None = None  # texts and cosines of all models of the folder, where they were stored

    @property
    def table(self) -> pd.DataFrame:
        return self.outcomes.table

    @property
    def file(self) -> Path:
        return self.folder / ITEMS_FILE


def read_stored(arguments: Sequence[str]) -> list[Stored]:
    """The models that folders hold: of a folder all but blind scorers, of `folder:model` that one."""
    read: dict[Path, tuple[Outcomes, dict[str, Any]]] = {}
    # Several models of one folder read its files once.
    scores: dict[Path, pa.Table | None] = {}
    found: list[Stored] = []
    for argument in arguments:
        folder, model = _split(argument)
        if folder not in read:
            read[folder], scores[folder] = read_evaluation(folder), read_scores(folder / SCORES_FILE)
        outcomes, results = read[folder]
        names = list(outcomes.table["arm"].unique())
        known = {name: facts for name, facts in (results.get("models") or {}).items() if isinstance(facts, Mapping)}
        blind = {name for name, facts in known.items() if facts.get("path") == BLIND_PATH}
        if model is not None and model not in names:
            raise ValueError(f"{folder / ITEMS_FILE}: found no model {model!r}; it has {listed(names)}. Name one.")
        for name in [name for name in names if name not in blind] if model is None else [model]:
            found.append(Stored(name, argument, name, folder, outcomes.select(arm=name), results, scores[folder]))
    # Resolved, because two paths may lead to one folder.
    places = Counter((one.folder.resolve(), one.model) for one in found)
    for (folder, model), count in places.items():
        if count > 1:
            raise ValueError(f"{folder}: model {model!r} is given {count} times. Name each model once.")
    if len(found) < FEWEST:
        raise ValueError(
            f"{found[0].file}: found one model, {found[0].model!r}. Give a second folder to compare it with."
        )
    return _with_unique_names(found)


def _split(argument: str) -> tuple[Path, str | None]:
    """A folder, or folder and model: both may hold colons."""
    if Path(argument).is_dir():
        return Path(argument), None
    for at in (index for index, letter in enumerate(argument) if letter == ":"):
        if Path(argument[:at]).is_dir():
            return Path(argument[:at]), argument[at + 1 :]
    raise ValueError(
        f"{argument}: found no such folder. Pass an output folder of hfcomp evaluate or a recipe, or folder:model."
    )


def _with_unique_names(found: Sequence[Stored]) -> list[Stored]:
    """Models with equal names are distinguished by their folders' names, or if these are equal by their paths."""
    names = [one.name for one in found]
    for place in (lambda one: one.folder.resolve().name, lambda one: str(one.folder.resolve())):
        count = Counter(names)
        names = [
            f"{one.model} ({place(one)})" if count[name] > 1 else name for name, one in zip(names, found, strict=True)
        ]
    return [replace(one, name=name) for name, one in zip(names, found, strict=True)]


def read_evaluation(path: str | Path) -> tuple[Outcomes, dict[str, Any]]:
    """The outcomes, and what `results.json` holds, in a folder of `hfcomp evaluate` or of a run of a recipe.

    Raises ValueError when a file is missing or damaged, is not what it should be, or was written by a later hfcomp.
    """
    folder = Path(path)
    for name in (ITEMS_FILE, RESULTS_FILE):
        if not (folder / name).is_file():
            raise ValueError(
                f"{folder}: found no {name}. Pass an output folder of hfcomp evaluate or a recipe; for a model, run "
                f"`hfcomp evaluate {folder} --benchmarks NAMES --output_dir FOLDER` first."
            )
    results = read_checked(folder / RESULTS_FILE, "Evaluate again, or restore the file from a copy.")
    # A file of this name may hold any JSON.
    version = results.get("schema_version") if isinstance(results, dict) else None
    if not isinstance(version, int):
        raise ValueError(f"{folder / RESULTS_FILE}: found no schema_version. It is not a results file of hfcomp.")
    if version > RESULTS_SCHEMA_VERSION:
        raise ValueError(
            f"{folder / RESULTS_FILE}: found schema_version {version}, this version of hfcomp reads up to "
            f"{RESULTS_SCHEMA_VERSION}. Upgrade hfcomp, or evaluate again with this one."
        )
    table, _ = read_table(folder / ITEMS_FILE, stated_items(results))
    table = table.rename(columns={"model": "arm"} if version < ARMS_SINCE else {})
    try:
        return Outcomes(table), results
    except ValueError as error:
        raise ValueError(f"{folder / ITEMS_FILE}: {error} Evaluate again.") from error


def model_facts(results: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What `results.json` says of a model, if only its path."""
    facts = (results.get("models") or {}).get(name)
    return dict(facts) if isinstance(facts, Mapping) else {"path": facts}


def origins(data: Mapping[str, Any] | None, depth: int = 0) -> Iterator[tuple[int, str, str | None]]:
    """Every place that was read with its commit, if known; `depth` is 0 for the items and 1 for pools of images."""
    if data:
        yield depth, data["place"], data.get("commit")
        for pool in data.get("pools") or ():
            yield from origins(pool, depth + 1)


def averages_of_lines(
    lines: Iterable[Mapping[str, Any]], notes: list[str] | None = None
) -> dict[Any, Sequence[Average]]:
    """The averages among stored lines, by benchmark and metric, each of the subsets that it was made of there.

    Those over benchmarks are not read from lines: they are `MEANS`, so that folders from before have them too.

    `notes` receives those that are left out, as they are of other subsets in one folder than in another.
    """
    found: dict[tuple[str, str, str], Average] = {}
    unlike: dict[tuple[str, str, str], None] = {}
    for line in lines:
        if not line.get("groups"):
            continue
        key = line["benchmark"], line["metric"], line["subset"]
        # Read as the folder made it: today's benchmark may have other averages.
        own = Average(line["subset"], tuple(map(tuple, line["groups"])), line["pooled"])
        # A benchmark whose subsets changed has two averages of one name. Neither is shown.
        if _parts(found.setdefault(key, own)) != _parts(own):
            unlike[key] = None
    chosen: dict[tuple[str, str], list[Average]] = {}
    for key, average in found.items():
        if key not in unlike:
            chosen.setdefault(key[:2], []).append(average)
        elif notes is not None:
            notes.append(f"{' '.join(key)}: left out, as it is an average of other subsets in one folder")
    return {**chosen, **MEANS}


def _parts(average: Average) -> tuple[bool, list[list[str]]]:
    return average.pooled, sorted(sorted(group) for group in average.groups or ())


def stated_items(results: Mapping[str, Any]) -> str | None:
    """The hash of the items that results were made from; an earlier hfcomp wrote none."""
    return (results.get("data") or {}).get("items")


def listed(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names))
