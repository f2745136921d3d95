"""`hfcomp.compare`: compares models from stored outcomes, aligned item by item, without loading a model."""

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
from hfcomp.evaluation.stored import (
    Stored,
    averages_of_lines,
    listing,
    model_facts,
    origins,
    read_stored,
    stated_items,
)
from hfcomp.reading import nearest
from hfcomp.statistics.outcomes import Outcomes, label_items
from hfcomp.statistics.results import package_versions
from hfcomp.statistics.summary import TIE_RULES

ITEM = ["benchmark", "subset", "metric", "item", "image_id"]
Source = tuple[Path, Mapping[str, Any]]
"""A folder, and its facts about a benchmark."""


def compare(
    folders: Sequence[str | Path],
    *,
    reference: str | None = None,
    tie: str | None = None,
    benchmarks: Sequence[str] = (),
    common: bool = False,
    published: bool = False,
) -> EvaluationResults:
    """Compares models item by item from stored outcomes, without loading a model.

    Args:
        folders: Folders written by `EvaluationResults.save`, `hfcomp evaluate` or a recipe. A folder stands for all
            its models except blind scorers; `folder:model` stands for one.
        reference: Model to compare the others with, by name or as in `folders`; by default the first.
        tie: How to count a tie; by default as in the folders.
        benchmarks: Names or titles; by default all that every model has results for.
        common: Whether to compare only on the items that all models have; the others are counted in the notes. Also
            allows data from different commits.
        published: Also show the models' published numbers.

    Raises:
        ValueError: If a folder has no results, a file is damaged, a model lacks a benchmark, or versions, data, items
            or rules for ties differ.
    """
    stored = read_stored([str(folder) for folder in folders])
    compared_to = _find_reference(reference, stored)
    unchecked = dict.fromkeys(model.folder for model in stored if stated_items(model.results) is None)
    notes = [
        f"{folder}: its results contain no hash of the items, so the items are not checked" for folder in unchecked
    ]
    stored = unify_own_titles(stored, notes)
    # This must come after titles are unified, because a recipe names its own dataset differently from an evaluation.
    titles = _compared_titles(stored, benchmarks, notes)
    # Only the compared benchmarks are kept, because the other benchmarks may differ in any way.
    stored = [replace(model, outcomes=model.outcomes.select(benchmark=titles)) for model in stored]
    for title in titles:
        _check_origin(title, stored, common, notes)
    aligned = _align_items(stored, titles, common, notes)
    facts = [{**model_facts(model.results, model.model), "results": str(model.folder)} for model in stored]
    models = {model.name: known for model, known in zip(stored, facts, strict=True)}
    lines = [line for model in stored for line in model.results.get("results") or () if line["benchmark"] in titles]
    outcomes = Outcomes.concat(part.assign(arm=model.name) for model, part in zip(stored, aligned, strict=True))
    compared = {model.name: (model.folder, model.model) for model in stored}
    folders_read = {model.folder: model.results for model in stored}
    blind = {folder: read_blind(folder, results) for folder, results in folders_read.items()}
    scored = [(model, model.scores) for model in stored if model.scores is not None]
    scores = [label_items(table.filter(pc.equal(table["arm"], model.model)), model.name) for model, table in scored]
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


def _find_reference(name: str | None, stored: Sequence[Stored]) -> str:
    if name is None:
        return stored[0].name
    for key in ("name", "argument", "model"):
        matches = [model.name for model in stored if getattr(model, key) == str(name)]
        if len(matches) == 1:
            return matches[0]
    # Several models may come from one folder.
    matches = [model.name for model in stored if str(name) in (model.argument, model.model)]
    if matches:
        raise ValueError(f"reference: {name!r} is ambiguous: it matches {listing(matches)}. Name one of them.")
    names = [model.name for model in stored]
    raise ValueError(f"reference: no model is called {name!r}; found {listing(names)}.{nearest(str(name), names)}")


def _tie_rule(stored: Sequence[Stored]) -> str:
    rules = {model.folder: model.results.get("tie_rule") or "wrong" for model in stored}
    if len(set(rules.values())) > 1:
        by_folder = ", ".join(f"{rule} in {folder}" for folder, rule in rules.items())
        raise ValueError(f"ties count differently: {by_folder}. Choose with --tie {' or '.join(TIE_RULES)}.")
    return next(iter(rules.values()))


def _benchmarks_of(model: Stored) -> dict[str, dict[str, Any]]:
    """Returns the folder's facts about its benchmarks; a recipe's folder has none."""
    known = model.results.get("benchmarks") or {}
    return {name: {**facts, "title": facts.get("title") or name} for name, facts in known.items()}


def _benchmark_facts(model: Stored, title: str) -> dict[str, dict[str, Any]]:
    """Returns where the items of a title come from, by benchmark name; several benchmarks may have the same title.

    A recipe has a single entry under the title: the `evaluation` of its whole run.
    """
    known = {name: facts for name, facts in _benchmarks_of(model).items() if facts["title"] == title}
    if known:
        return known
    source = (model.results.get("data") or {}).get("evaluation") or {}
    evaluation = " ".join(str(source[key]) for key in ("name", "dataset") if source.get(key)) or None
    return {title: {"evaluation": evaluation}}


def _compared_titles(stored: Sequence[Stored], requested: Sequence[str], notes: list[str]) -> list[str]:
    titles_of_models = [list(model.table["benchmark"].unique()) for model in stored]
    every = list(dict.fromkeys(title for titles in titles_of_models for title in titles))
    if requested:
        names = {name: facts["title"] for model in stored for name, facts in _benchmarks_of(model).items()}
        # Users write names as on the command line, or titles as in tables.
        chosen = [names.get(name, name) for name in requested]
        for title in chosen:
            for model, titles in zip(stored, titles_of_models, strict=True):
                if title not in titles:
                    raise ValueError(f"{model.file}: found no benchmark {title!r}; it has {listing(titles)}.")
        return list(dict.fromkeys(chosen))
    shared = [title for title in every if all(title in titles for titles in titles_of_models)]
    for title in every:
        if title not in shared:
            owners = [model.name for model, titles in zip(stored, titles_of_models, strict=True) if title in titles]
            notes.append(f"{title} is not compared: it was evaluated only for {listing(owners)}")
    if not shared:
        pairs = zip(stored, titles_of_models, strict=True)
        parts = dict.fromkeys(f"{model.file} has {listing(titles)}" for model, titles in pairs)
        raise ValueError(
            f"the models have no benchmark in common: {'; '.join(parts)}. Evaluate all models on the same benchmarks."
        )
    return shared


def _check_origin(title: str, stored: Sequence[Stored], common: bool, notes: list[str]) -> None:
    """Checks that known versions of scoring code and data are equal; notes different data locations."""
    ours = _benchmark_facts(stored[0], title)
    for model in stored[1:]:
        theirs = _benchmark_facts(model, title)
        # If no name is shared (a recipe has no benchmark names), the first benchmark of each model is compared. A
        # benchmark that only one of them has is found later, when items are checked.
        pairs = [(name, name) for name in ours if name in theirs] or [(next(iter(ours)), next(iter(theirs)))]
        for name, other_name in pairs:
            label = title if len(pairs) == 1 else f"{title}, {name}"
            _check_source(label, (stored[0].folder, ours[name]), (model.folder, theirs[other_name]), common, notes)


def _check_source(label: str, source: Source, other: Source, common: bool, notes: list[str]) -> None:
    (folder, facts), (other_folder, others) = source, other
    # A benchmark's version changes with every change of its scoring, so equal items are not enough.
    for key in ("version", "evaluation"):
        if None not in (facts.get(key), others.get(key)) and facts[key] != others[key]:
            raise ValueError(
                f"{label}: items are scored differently, because {key} is {facts[key]} in {folder} but {others[key]} "
                f"in {other_folder}. Evaluate both with the same hfcomp on the same data, or exclude this benchmark "
                "with --benchmarks."
            )
    places, their_places = (
        {place: commit for _, place, commit in origins(known.get("data"))} for known in (facts, others)
    )
    for place, commit in places.items():
        theirs = their_places.get(place)
        # An unknown commit proves nothing either way. The items themselves are compared later.
        if None in (commit, theirs) or commit == theirs:
            continue
        difference = f"{label}: {place} was read at commit {commit} for {folder}, {theirs} for {other_folder}"
        if not common:
            raise ValueError(
                f"{difference}. Evaluate one of them again, or pass --common to compare the items with the same name "
                "and image."
            )
        notes.append(difference)
    if places.keys() != their_places.keys():
        read = " and from ".join(listing(names) or "an unknown place" for names in (places, their_places))
        notes.append(f"{label}: read from {read}; items are matched by name and image")


def _align_items(stored: Sequence[Stored], titles: Sequence[str], common: bool, notes: list[str]) -> list[Outcomes]:
    """Returns each model's outcomes on the shared items, in the order of `titles`."""
    for model in stored:
        # Duplicate rows are found before tables are merged, because a merge would multiply them.
        twice = model.table[[*ITEM[:-1], "seed"]].duplicated()
        if twice.any():
            raise ValueError(
                f"{model.file}: {_describe_outcome(model.table[twice].iloc[0])} is duplicated. Evaluate again."
            )
    items = [model.table[ITEM].drop_duplicates() for model in stored]  # a run has each item once per seed
    # Also matched by image, because two folders may use the same name for different photographs.
    shared = items[0]
    for table in items[1:]:
        shared = shared.merge(table, on=ITEM, how="inner")
    for model, table in zip(stored, items, strict=True):
        marked = table.merge(shared, on=ITEM, how="left", indicator=True)
        absent = marked[marked["_merge"] == "left_only"]
        if len(absent) and not common:
            raise ValueError(_explain_difference(model, absent, stored, shared))
        for title, count in absent["benchmark"].value_counts(sort=False).items():
            left = int((shared["benchmark"] == title).sum())
            notes.append(
                f"{title}: {count:,} outcomes of {model.name} were dropped, because not all models have them; "
                f"{left:,} are compared"
            )
    gone = [title for title in titles if not (shared["benchmark"] == title).any()]
    if gone:
        raise ValueError(f"{listing(gone)}: the models have no items in common. Exclude them with --benchmarks.")
    # A merge sorts by its keys, while tables show benchmarks in the order of `titles`.
    order = pd.CategoricalDtype(titles)
    shared = shared.iloc[shared["benchmark"].astype(order).cat.codes.argsort(kind="stable")]
    return [Outcomes(shared.merge(model.table, on=ITEM, how="left")) for model in stored]


def _explain_difference(model: Stored, absent: pd.DataFrame, stored: Sequence[Stored], shared: pd.DataFrame) -> str:
    row = absent.iloc[0]
    others = ((other, other.table[(other.table[ITEM[:-1]] == row[ITEM[:-1]]).all(axis=1)]) for other in stored)
    lacks, same = next((other, rows) for other, rows in others if row["image_id"] not in rows["image_id"].to_list())
    how = f"has it with image {same['image_id'].iloc[0]!r}" if len(same) else "lacks it"
    count = int((absent["benchmark"] == row["benchmark"]).sum())
    return (
        f"{model.file} has {_describe_outcome(row)} with image {row['image_id']!r}, but {lacks.file} {how} "
        f"({count:,} such outcomes in this benchmark). Evaluate both on the same data, or pass --common to compare "
        f"the {len(shared):,} outcomes that all have."
    )


def _describe_outcome(row: pd.Series) -> str:
    return f"item {row['item']!r} ({row['benchmark']}, {row['subset']}, {row['metric']})"


RECIPE_NAME, RECIPE_TITLE = "evaluation", "own"
"""Name and title of a recipe's own evaluation dataset."""


def unify_own_titles(stored: Sequence[Stored], notes: list[str]) -> list[Stored]:
    """Gives a recipe's own dataset the title that it has in an evaluation."""
    evaluated = {
        place: (model, title) for model in stored for place, title in _own_places(model) if title != RECIPE_TITLE
    }
    unified = []
    for model in stored:
        for place, title in _own_places(model):
            if title == RECIPE_TITLE and place in evaluated:
                other, other_title = evaluated[place]
                _check_same_images(model, other, other_title, place)
                notes.append(f"{title} of {model.folder} and {other_title} of {other.folder} are both {place}")
                model = _rename_own_title(model, other_title)
        unified.append(model)
    return unified


def _own_places(model: Stored) -> Iterator[tuple[Path, str]]:
    """Yields the places and titles of benchmarks that are the user's own files or folders."""
    for name, facts in (model.results.get("benchmarks") or {}).items():
        place = (facts.get("data") or {}).get("place")
        if place and name in (RECIPE_NAME, place):
            yield Path(place), facts.get("title") or name


def _check_same_images(model: Stored, other: Stored, other_title: str, place: Path) -> None:
    ours, theirs = (
        set(part.outcomes.select(benchmark=[title]).table["image_id"])
        for part, title in ((model, RECIPE_TITLE), (other, other_title))
    )
    if ours != theirs:
        split = (model.results.get("config") or {}).get("evaluation_split") or "the split of the recipe"
        raise ValueError(
            f"{model.file} has {len(ours):,} images of {place} and {other.file} has {len(theirs):,}. Recall depends "
            f"on the number of images to choose from. Evaluate {listing([other.model])} on the same rows: "
            f"--benchmarks {place} --split '{split}'."
        )


def _rename_own_title(model: Stored, title: str) -> Stored:
    table = model.outcomes.table
    table = table.assign(benchmark=table["benchmark"].where(table["benchmark"] != RECIPE_TITLE, title))
    facts = {
        name: {**known, "title": title} if known.get("title") == RECIPE_TITLE else known
        for name, known in model.results["benchmarks"].items()
    }
    lines = [
        # Lines are renamed too, because the averages are read from them.
        {**line, "benchmark": title} if line["benchmark"] == RECIPE_TITLE else line
        for line in model.results.get("results") or ()
    ]
    return replace(model, outcomes=Outcomes(table), results={**model.results, "benchmarks": facts, "results": lines})
