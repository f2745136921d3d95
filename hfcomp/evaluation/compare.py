"""`hfcomp.compare`: models side by side from stored outcomes alone, aligned item by item; no model is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from hfcomp.evaluation.blind.folders import combine_blind, read_blind
from hfcomp.evaluation.evaluation_results import EvaluationResults
from hfcomp.evaluation.stored import Stored, averages_of_lines, listed, model_facts, origins, read_stored, stated_items
from hfcomp.reading import nearest
from hfcomp.statistics.outcomes import Outcomes, label_items
from hfcomp.statistics.results import package_versions
from hfcomp.statistics.summary import TIE_RULES

ITEM = ["benchmark", "subset", "metric", "item", "image_id"]
Source = tuple[Path, Mapping[str, Any]]
"""A folder, and what it says of a benchmark."""


def compare(
    folders: Sequence[str | Path],
    *,
    reference: str | None = None,
    tie: str | None = None,
    benchmarks: Sequence[str] = (),
    common: bool = False,
    published: bool = False,
) -> EvaluationResults:
    """Models side by side from stored outcomes alone, item by item; no model is loaded.

    Args:
        folders: that `EvaluationResults.save`, `hfcomp evaluate` or a recipe wrote: all of its models but blind
            scorers, or `folder:model`.
        reference: the model that the others are compared to, by name or as in `folders`; by default the first.
        tie: what a tie counts; by default what it did in the folders.
        benchmarks: names or titles; by default all that every model has.
        common: compare on the items that all have, and count the others; data of other commits is compared too.
        published: show the published numbers of the models too.

    Raises:
        ValueError: for a folder without results, files that are damaged, a benchmark that a model lacks, versions,
            data or items that differ, or rules for ties that differ.
    """
    stored = read_stored([str(folder) for folder in folders])
    compared_to = _reference(reference, stored)
    unchecked = dict.fromkeys(one.folder for one in stored if stated_items(one.results) is None)
    notes = [f"{folder}: its results name no hash of the items, which are not checked" for folder in unchecked]
    stored = unify_own_titles(stored, notes)
    # Read after titles are unified, because a recipe names its own set differently from an evaluation.
    titles = _titles(stored, benchmarks, notes)
    # Only what is compared is kept: other benchmarks may differ in anything.
    stored = [replace(one, outcomes=one.outcomes.select(benchmark=titles)) for one in stored]
    for title in titles:
        _check_origin(title, stored, common, notes)
    aligned = _align(stored, titles, common, notes)
    models = {one.name: {**model_facts(one.results, one.model), "results": str(one.folder)} for one in stored}
    lines = [line for one in stored for line in one.results.get("results") or () if line["benchmark"] in titles]
    outcomes = Outcomes.concat(own.assign(arm=one.name) for one, own in zip(stored, aligned, strict=True))
    compared = {one.name: (one.folder, one.model) for one in stored}
    folders_read = {one.folder: one.results for one in stored}
    blind = {folder: read_blind(folder, results) for folder, results in folders_read.items()}
    scores = [_scores_of(one) for one in stored if one.scores is not None]
    return EvaluationResults(
        outcomes,
        models,
        averages_of_lines(lines, notes),
        compared_to,
        tie or _tie_rule(stored),
        subject=list(models),
        benchmarks={name: facts for name, facts in _benchmarks_of(stored[0]).items() if facts["title"] in titles},
        notes=notes,
        versions=package_versions(),
        published=published,
        blind=combine_blind(blind, compared, outcomes, notes),
        scores=pa.concat_tables(scores) if scores else None,
    )


def _scores_of(one: Stored) -> pa.Table:
    return label_items(one.scores.filter(pc.equal(one.scores["arm"], one.model)), one.name)


def _reference(wanted: str | None, stored: Sequence[Stored]) -> str:
    if wanted is None:
        return stored[0].name
    for key in ("name", "argument", "model"):
        chosen = [one.name for one in stored if getattr(one, key) == str(wanted)]
        if len(chosen) == 1:
            return chosen[0]
    # Several models may come from one folder.
    fitting = [one.name for one in stored if str(wanted) in (one.argument, one.model)]
    if fitting:
        raise ValueError(f"reference: {wanted!r} is ambiguous: it fits {listed(fitting)}. Name one of them.")
    names = [one.name for one in stored]
    raise ValueError(f"reference: no model is called {wanted!r}; found {listed(names)}.{nearest(str(wanted), names)}")


def _tie_rule(stored: Sequence[Stored]) -> str:
    rules = {one.folder: one.results.get("tie_rule") or "wrong" for one in stored}
    if len(set(rules.values())) > 1:
        said = ", ".join(f"{rule} in {folder}" for folder, rule in rules.items())
        raise ValueError(f"ties count {said}. Choose with --tie {' or '.join(TIE_RULES)}.")
    return next(iter(rules.values()))


def _benchmarks_of(one: Stored) -> dict[str, dict[str, Any]]:
    """What the folder records about its benchmarks; a recipe's has nothing."""
    known = one.results.get("benchmarks") or {}
    return {name: {**facts, "title": facts.get("title") or name} for name, facts in known.items()}


def _benchmark_facts(one: Stored, title: str) -> dict[str, dict[str, Any]]:
    """What is known of where the items of a title are from, by name of the benchmark: several may have one title.

    Of a recipe it is a single entry by the title, the `evaluation` of its whole run.
    """
    known = {name: facts for name, facts in _benchmarks_of(one).items() if facts["title"] == title}
    if known:
        return known
    source = (one.results.get("data") or {}).get("evaluation") or {}
    said = " ".join(str(source[key]) for key in ("name", "dataset") if source.get(key)) or None
    return {title: {"evaluation": said}}


def _titles(stored: Sequence[Stored], wanted: Sequence[str], notes: list[str]) -> list[str]:
    has = [list(one.table["benchmark"].unique()) for one in stored]
    every = list(dict.fromkeys(title for own in has for title in own))
    if wanted:
        names = {name: facts["title"] for one in stored for name, facts in _benchmarks_of(one).items()}
        # Users write names as on the command line, or titles as in tables.
        chosen = [names.get(name, name) for name in wanted]
        for title in chosen:
            for one, own in zip(stored, has, strict=True):
                if title not in own:
                    raise ValueError(f"{one.file}: found no benchmark {title!r}; it has {listed(own)}.")
        return list(dict.fromkeys(chosen))
    shared = [title for title in every if all(title in own for own in has)]
    for title in every:
        if title not in shared:
            owners = listed([one.name for one, own in zip(stored, has, strict=True) if title in own])
            notes.append(f"{title} is not compared: only {owners} has it")
    if not shared:
        parts = dict.fromkeys(f"{one.file} has {listed(own)}" for one, own in zip(stored, has, strict=True))
        raise ValueError(f"no benchmark in common: {'; '.join(parts)}. Evaluate all models on the same ones.")
    return shared


def _check_origin(title: str, stored: Sequence[Stored], common: bool, notes: list[str]) -> None:
    """Scoring code and data must be equal where known; different data locations are noted."""
    ours = _benchmark_facts(stored[0], title)
    for one in stored[1:]:
        theirs = _benchmark_facts(one, title)
        # If no name is shared, as with a recipe, which has none, the first of each is compared. A benchmark that only
        # one of them has is found by its items.
        pairs = [(name, name) for name in ours if name in theirs] or [(next(iter(ours)), next(iter(theirs)))]
        for name, other_name in pairs:
            label = title if len(pairs) == 1 else f"{title}, {name}"
            _check_source(label, (stored[0].folder, ours[name]), (one.folder, theirs[other_name]), common, notes)


def _check_source(label: str, one: Source, other: Source, common: bool, notes: list[str]) -> None:
    (folder, facts), (other_folder, others) = one, other
    # A benchmark's version changes with any change of its scoring, so equal items are not enough.
    for key in ("version", "evaluation"):
        if None not in (facts.get(key), others.get(key)) and facts[key] != others[key]:
            raise ValueError(
                f"{label}: {key} {facts[key]} in {folder}, {others[key]} in {other_folder}: items are scored "
                "differently. Evaluate both with the same hfcomp on the same data, or exclude it with --benchmarks."
            )
    places, their_places = (
        {place: commit for _, place, commit in origins(known.get("data"))} for known in (facts, others)
    )
    for place, commit in places.items():
        theirs = their_places.get(place)
        # An unknown commit proves nothing in either direction. The items themselves are compared later.
        if None in (commit, theirs) or commit == theirs:
            continue
        said = f"{label}: {place} was read at commit {commit} for {folder}, {theirs} for {other_folder}"
        if not common:
            raise ValueError(
                f"{said}. Evaluate one of them again, or compare the items that are the same by name and image "
                "with --common."
            )
        notes.append(said)
    if places.keys() != their_places.keys():
        read = " and from ".join(listed(names) or "an unknown place" for names in (places, their_places))
        notes.append(f"{label}: read from {read}; items are the same by name and image")


def _align(stored: Sequence[Stored], titles: Sequence[str], common: bool, notes: list[str]) -> list[Outcomes]:
    """The models' items, the same ones for all, in the order of `titles`."""
    for one in stored:
        # Checked before tables are merged, which would multiply such rows.
        twice = one.table[[*ITEM[:-1], "seed"]].duplicated()
        if twice.any():
            raise ValueError(f"{one.file}: {_describe(one.table[twice].iloc[0])} is duplicated. Evaluate again.")
    items = [one.table[ITEM].drop_duplicates() for one in stored]  # of a run with several seeds each is there for all
    # Matched by image too: two folders may have one name for different photographs.
    shared = items[0]
    for own in items[1:]:
        shared = shared.merge(own, on=ITEM, how="inner")
    for one, own in zip(stored, items, strict=True):
        marked = own.merge(shared, on=ITEM, how="left", indicator=True)
        absent = marked[marked["_merge"] == "left_only"]
        if len(absent) and not common:
            raise ValueError(_difference(one, absent, stored, shared))
        for title, count in absent["benchmark"].value_counts(sort=False).items():
            left = int((shared["benchmark"] == title).sum())
            notes.append(f"{title}: {count:,} of {one.name}'s outcomes dropped, {left:,} in common")
    gone = [title for title in titles if not (shared["benchmark"] == title).any()]
    if gone:
        raise ValueError(f"{listed(gone)}: no items in common. Exclude it with --benchmarks.")
    # A merge sorts by its keys, while tables show benchmarks in the order of `titles`.
    order = pd.CategoricalDtype(titles)
    shared = shared.iloc[shared["benchmark"].astype(order).cat.codes.argsort(kind="stable")]
    return [Outcomes(shared.merge(one.table, on=ITEM, how="left")) for one in stored]


def _difference(one: Stored, absent: pd.DataFrame, stored: Sequence[Stored], shared: pd.DataFrame) -> str:
    row = absent.iloc[0]
    others = ((other, other.table[(other.table[ITEM[:-1]] == row[ITEM[:-1]]).all(axis=1)]) for other in stored)
    lacks, same = next((other, own) for other, own in others if row["image_id"] not in own["image_id"].to_list())
    how = f"has it of image {same['image_id'].iloc[0]!r}" if len(same) else "lacks it"
    count = int((absent["benchmark"] == row["benchmark"]).sum())
    return (
        f"{one.file}: {_describe(row)} of image {row['image_id']!r} is there, and {lacks.file} {how} ({count:,} such "
        f"outcomes of {row['benchmark']}). Evaluate both on the same data, or pass --common to compare the "
        f"{len(shared):,} outcomes that all have."
    )


def _describe(row: pd.Series) -> str:
    return f"item {row['item']!r} of {row['benchmark']}, {row['subset']}, {row['metric']}"


RECIPE_NAME, RECIPE_TITLE = "evaluation", "own"
"""Name and title of the own evaluation set of a recipe."""


def unify_own_titles(stored: Sequence[Stored], notes: list[str]) -> list[Stored]:
    """Gives a recipe's own set the title that an evaluation of the same dataset has."""
    evaluated = {place: (one, title) for one in stored for place, title in _own_places(one) if title != RECIPE_TITLE}
    unified = []
    for one in stored:
        for place, title in _own_places(one):
            if title == RECIPE_TITLE and place in evaluated:
                other, other_title = evaluated[place]
                _check_same_images(one, other, other_title, place)
                notes.append(f"{title} of {one.folder} and {other_title} of {other.folder} are both {place}")
                one = _renamed(one, other_title)
        unified.append(one)
    return unified


def _own_places(one: Stored) -> Iterator[tuple[Path, str]]:
    """The places and titles of benchmarks that are files or folders of the user's own."""
    for name, facts in (one.results.get("benchmarks") or {}).items():
        place = (facts.get("data") or {}).get("place")
        if place and name in (RECIPE_NAME, place):
            yield Path(place), facts.get("title") or name


def _check_same_images(one: Stored, other: Stored, other_title: str, place: Path) -> None:
    ours, theirs = (
        set(part.outcomes.select(benchmark=[title]).table["image_id"])
        for part, title in ((one, RECIPE_TITLE), (other, other_title))
    )
    if ours != theirs:
        split = (one.results.get("config") or {}).get("evaluation_split") or "the split of the recipe"
        raise ValueError(
            f"{one.file} has {len(ours):,} images of {place} and {other.file} has {len(theirs):,}: recall depends on "
            f"how many images there are to choose from. Evaluate {listed([other.model])} on the same rows: "
            f"--benchmarks {place} --split '{split}'."
        )


def _renamed(one: Stored, title: str) -> Stored:
    table = one.outcomes.table
    table = table.assign(benchmark=table["benchmark"].where(table["benchmark"] != RECIPE_TITLE, title))
    facts = {
        name: {**known, "title": title} if known.get("title") == RECIPE_TITLE else known
        for name, known in one.results["benchmarks"].items()
    }
    lines = [
        # Lines are renamed too, because averages are read from them.
        {**line, "benchmark": title} if line["benchmark"] == RECIPE_TITLE else line
        for line in one.results.get("results") or ()
    ]
    return replace(one, outcomes=Outcomes(table), results={**one.results, "benchmarks": facts, "results": lines})
