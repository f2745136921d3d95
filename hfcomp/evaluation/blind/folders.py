"""Writes blind rules to result folders, reads them, and combines those of several folders."""

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
    """Writes `blind.parquet`, one row per rule and item. Without results, removes the one of an earlier run."""
    if blind is None or not len(blind.outcomes):
        (folder / BLIND_FILE).unlink(missing_ok=True)
    else:
        blind.outcomes.write(folder / BLIND_FILE)


def read_blind(folder: Path, results: Mapping[str, Any]) -> BlindResults | None:
    """Reads what `write_blind` wrote; `None` if an earlier hfcomp or a run without blind rules wrote the results."""
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
    read: Mapping[Path, BlindResults | None], models: Mapping[str, tuple[Path, str]], items: Outcomes, notes: list[str]
) -> BlindResults | None:
    """Combines the rules of all folders on the compared items, and the priors of the models.

    Args:
        read: Result of `read_blind` for each folder.
        models: Compared models by name: the folder of each and its name there.
        notes: List that receives notes on rules on which folders disagree, and on folders without rules.

    Returns:
        Each rule of a benchmark from the first folder that has it; a rule that chooses differently in another folder
        is left out. `None` if no folder has any.
    """
    by_folder = {folder: blind for folder, blind in read.items() if blind is not None}
    if not by_folder:
        return None
    missing = [folder for folder in read if folder not in by_folder]
    notes += [f"{folder}: its results have no blind baselines; those of other folders are shown" for folder in missing]
    # Items that only one of the folders has are left out.
    own = {folder: blind.restrict_to(items).outcomes.table for folder, blind in by_folder.items()}
    # Rules see only texts and are the same for all models, while a prior belongs to one model.
    scored = {folder: table[~table["arm"].str.startswith(f"{PRIOR} of ")] for folder, table in own.items()}
    rules = _consistent_rules(scored, by_folder, notes)
    priors = [
        own[folder][own[folder]["arm"] == prior_of(model)].assign(arm=prior_of(name))
        for name, (folder, model) in models.items()
        if folder in own
    ]
    outcomes = blind_outcomes([*rules, *priors])
    arms, titles = set(outcomes.table["arm"]), set(items.table["benchmark"])
    skipped = {name: why for blind in by_folder.values() for name, why in blind.skipped.items() if name not in arms}
    scored = set(outcomes.table["benchmark"])
    listed = dict.fromkeys(title for blind in by_folder.values() for title in blind.not_applicable)
    return BlindResults(
        outcomes,
        skipped,
        _captions(by_folder, set(outcomes.table["benchmark"][outcomes.table["arm"].isin(BIGRAMS)])),
        [title for title in listed if title in titles - scored],
    )


def _consistent_rules(
    tables: Mapping[Path, pd.DataFrame], by_folder: Mapping[Path, BlindResults], notes: list[str]
) -> Iterator[pd.DataFrame]:
    """Yields the rows of each rule and benchmark that no folder contradicts."""
    first_rows: dict[tuple[str, str], tuple[Path, pd.DataFrame]] = {}
    conflicting: dict[tuple[str, str], None] = {}
    for folder, table in tables.items():
        for key, rows in table.groupby(["arm", "benchmark"], sort=False):
            first, known = first_rows.setdefault(key, (folder, rows))
            count = _count_differences(known, rows) if first != folder else 0
            if count:
                conflicting[key] = None
                notes.append(_explain(key, count, (first, by_folder[first]), (folder, by_folder[folder])))
    yield from (rows for key, (_, rows) in first_rows.items() if key not in conflicting)


def _count_differences(rows: pd.DataFrame, other: pd.DataFrame) -> int:
    """Counts the items on which a rule chooses differently, or that only one of the two has."""
    # An outer merge fills items that one side lacks with NaN, which differs from every value.
    keys = ["arm", *ITEM]
    both = rows[[*keys, "value", "tie"]].merge(other[[*keys, "value", "tie"]], on=keys, how="outer")
    return int(((both["value_x"] != both["value_y"]) | (both["tie_x"] != both["tie_y"])).sum())


def _explain(
    key: tuple[str, str], count: int, first: tuple[Path, BlindResults], other: tuple[Path, BlindResults]
) -> str:
    rule, title = key
    why = "the texts of the items are not the same"
    if rule in BIGRAMS:
        why = " and ".join(f"{folder} counted {_caption_counts(blind, title)}" for folder, blind in (first, other))
    return (
        f"{title}: the blind rule {rule} differs in {count:,} outcomes between {first[0]} and {other[0]} and is left "
        f"out: {why}"
    )


def _caption_counts(blind: BlindResults, title: str) -> str:
    parts = blind.captions.get(title, {}).values()
    return ", ".join(f"{part['captions']:,} captions from {part['place']}" for part in parts) or "unknown captions"


def _captions(by_folder: Mapping[Path, BlindResults], titles: set[str]) -> dict[str, Mapping[str, Any]]:
    captions: dict[str, Mapping[str, Any]] = {}
    for blind in by_folder.values():
        for title, parts in blind.captions.items():
            if title in titles:
                captions.setdefault(title, parts)
    return captions
