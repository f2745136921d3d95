"""Blind rules in folders of results: written, read, and those of several folders combined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from hfcomp.evaluation.blind.results import ITEM, BlindResults, blind_outcomes, prior_of
from hfcomp.evaluation.blind.rules import BIGRAMS, PRIOR
from hfcomp.statistics.outcomes import Outcomes, read_table

BLIND_FILE = "blind.parquet"


def write_blind(folder: Path, blind: BlindResults | None) -> None:
    """Writes `blind.parquet`, one row per rule and item; without results the one of an earlier run is removed."""
    if blind is None or not len(blind.outcomes):
        (folder / BLIND_FILE).unlink(missing_ok=True)
    else:
        blind.outcomes.write(folder / BLIND_FILE)


def read_blind(folder: Path, results: Mapping[str, Any]) -> BlindResults | None:
    """What `write_blind` wrote; `None` where an earlier hfcomp, or a run without blind rules, wrote the results."""
    facts = results.get("blind")
    if not facts:
        return None
    about = {key: facts[key] for key in ("skipped", "captions", "not_applicable")}
    if facts["items"] is None:
        return BlindResults(blind_outcomes([]), **about)
    if not (folder / BLIND_FILE).is_file():
        raise ValueError(f"{folder}: found no {BLIND_FILE}, which results.json names. Restore it, or evaluate again.")
    table, _ = read_table(folder / BLIND_FILE, facts["items"])
    return BlindResults(Outcomes(table), **about)


def combine_blind(
    read: Mapping[Path, BlindResults | None],
    models: Mapping[str, tuple[Path, str]],
    items: Outcomes,
    notes: list[str],
) -> BlindResults | None:
    """The rules of all folders on the items that are compared, and the priors of the models.

    Args:
        read: of each folder what `read_blind` found there.
        models: that are compared, by name: the folder of each and its name there.
        notes: receives what the folders do not agree on, and which have none.

    Returns:
        Each rule of a benchmark from the first folder that has it; one that chooses otherwise in another folder is
        left out. `None` where no folder has any.
    """
    there = {folder: one for folder, one in read.items() if one is not None}
    if not there:
        return None
    missing = [folder for folder in read if folder not in there]
    notes += [f"{folder}: its results have no blind baselines; those of other folders are shown" for folder in missing]
    # Items that only one of the folders has are left out.
    own = {folder: one.on_items_of(items).outcomes.table for folder, one in there.items()}
    # Rules see only texts and are the same for all models, while a prior belongs to one model.
    rules = _agreed({folder: table[~_is_prior(table)] for folder, table in own.items()}, there, notes)
    priors = [
        own[folder][own[folder]["arm"] == prior_of(model)].assign(arm=prior_of(name))
        for name, (folder, model) in models.items()
        if folder in own
    ]
    outcomes = blind_outcomes([*rules, *priors])
    arms, titles = set(outcomes.table["arm"]), set(items.table["benchmark"])
    skipped = {name: reason for one in there.values() for name, reason in one.skipped.items() if name not in arms}
    scored = set(outcomes.table["benchmark"])
    listed = dict.fromkeys(title for one in there.values() for title in one.not_applicable)
    return BlindResults(
        outcomes,
        skipped,
        _captions(there, set(outcomes.table["benchmark"][outcomes.table["arm"].isin(BIGRAMS)])),
        [title for title in listed if title in titles - scored],
    )


def _is_prior(table: pd.DataFrame) -> pd.Series:
    return table["arm"].str.startswith(f"{PRIOR} of ")


def _agreed(
    tables: Mapping[Path, pd.DataFrame], there: Mapping[Path, BlindResults], notes: list[str]
) -> Iterator[pd.DataFrame]:
    """The rows of each rule and benchmark that no folder contradicts."""
    found: dict[tuple[str, str], tuple[Path, pd.DataFrame]] = {}
    unlike: dict[tuple[str, str], None] = {}
    for folder, table in tables.items():
        for key, rows in table.groupby(["arm", "benchmark"], sort=False):
            first, known = found.setdefault(key, (folder, rows))
            count = _differing(known, rows) if first != folder else 0
            if count:
                unlike[key] = None
                notes.append(_said(key, count, (first, there[first]), (folder, there[folder])))
    yield from (rows for key, (_, rows) in found.items() if key not in unlike)


def _differing(one: pd.DataFrame, other: pd.DataFrame) -> int:
    """How many items a rule chooses otherwise, or has in one of the two alone."""
    # An outer merge: an item that one side lacks has NaN there, and NaN differs from every value.
    keys = ["arm", *ITEM]
    both = one[[*keys, "value", "tie"]].merge(other[[*keys, "value", "tie"]], on=keys, how="outer")
    return int(((both["value_x"] != both["value_y"]) | (both["tie_x"] != both["tie_y"])).sum())


def _said(key: tuple[str, str], count: int, one: tuple[Path, BlindResults], other: tuple[Path, BlindResults]) -> str:
    rule, title = key
    why = "the texts of the items are not the same"
    if rule in BIGRAMS:
        why = " and ".join(f"{folder} counted {_counted(blind, title)}" for folder, blind in (one, other))
    return (
        f"{title}: the blind rule {rule} differs in {count:,} outcomes between {one[0]} and {other[0]} and is left "
        f"out: {why}"
    )


def _counted(blind: BlindResults, title: str) -> str:
    parts = blind.captions.get(title, {}).values()
    return ", ".join(f"{part['captions']:,} captions of {part['place']}" for part in parts) or "unknown captions"


def _captions(there: Mapping[Path, BlindResults], titles: set[str]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for one in there.values():
        for title, parts in one.captions.items():
            if title in titles:
                found.setdefault(title, parts)
    return found
