"""Marks of rows as a page saves them, and the dataset without the rows that were dropped."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from datasets import Dataset
from pydantic import Field

from hfcomp.analysis.gallery.options import DataOptions
from hfcomp.analysis.gallery.rows import is_sandbox, read_set, row_id, set_fingerprint
from hfcomp.data.built_sets.files import TRAIN
from hfcomp.data.publishing import DEFAULT, LICENSE, stated_license, without_local_paths
from hfcomp.data.urls import UrlAccess, set_url_access
from hfcomp.factory.builder import CardText
from hfcomp.factory.cards import Source, write_card
from hfcomp.factory.runner import run_stages
from hfcomp.factory.shards import ROW, SET_ASIDE, Batch, Stage, StageFunction
from hfcomp.factory.sources import check_local_files, output_features
from hfcomp.reading import read_json
from hfcomp.schemas import Strict, parse

SCHEMA_VERSION = 1
KEEP, DROP = "keep", "drop"
WHAT = "gallery"
"""What the manifest calls such a set."""
CARD = CardText(
    "Reviewed rows",
    "The rows of a dataset without those that somebody dropped after looking at them. Only rows that were looked "
    "at can have been dropped: how many is not known here.",
    {},
    "The columns are the source's. All images are the set's own bytes.",
)
DROPPED = "dropped in the gallery"
_SHOWN = 3


class Mark(Strict):
    row: Annotated[int, Field(ge=0, description="the number of a row")]
    id: Annotated[str, Field(description="the id of the row, as in the page")]
    mark: Annotated[Literal["keep", "drop"], Field(description="keep or drop")]


class MarksFile(Strict):
    """What a page saves: its dataset, and marks of some of its rows."""

    schema_version: Annotated[Literal[1], Field(description=f"{SCHEMA_VERSION}")]
    dataset: Annotated[str, Field(description="the name of the dataset")]
    split: Annotated[str, Field(description="the split of the rows")]
    config: Annotated[str | None, Field(description="the configuration, or null")]
    column_names: Annotated[dict[str, str], Field(description="hfcomp's names of columns and the set's own")]
    fingerprint: Annotated[str, Field(description="the fingerprint of the dataset")]
    rows: Annotated[int, Field(ge=1, description="the number of rows of the dataset")]
    marks: Annotated[list[Mark], Field(description="the marks, one for each marked row")]


@dataclass(frozen=True)
class Applied:
    """What came of the marks; counts of rows."""

    folder: Path
    read: int
    written: int
    dropped: int
    kept: int  # rows that were marked to be kept; rows without a mark are kept too
    set_aside: Mapping[str, int]  # other rows that are left out by reason, such as those with a missing image file


def read_marks(path: Path) -> MarksFile:
    """Reads a file of marks."""
    found = parse(MarksFile, read_json(path), str(path))
    # Two marks could contradict each other.
    row, number = max(Counter(one.row for one in found.marks).items(), key=lambda one: one[1], default=(0, 1))
    if number > 1:
        raise ValueError(f"{path}: row {row} has {number} marks, expected one. Remove the others.")
    return found


def apply_marks(
    name: str,
    path: Path,
    output: Path,
    given: Mapping[str, Any],
    *,
    allow_outside_files: bool = False,
    log: Callable[[str], None] = print,
    progress: bool = False,
) -> Applied:
    """Writes a dataset without the rows that were dropped, as `hfcomp build` writes one; after a kill it resumes.

    Args:
        name: of the dataset, as for the page.
        path: of the marks.
        output: folder of the new set.
        allow_outside_files: also copy image files from outside the dataset's folder.
        log: receives a line about image files that are copied.
    """
    marks = read_marks(path)
    own = {"split": marks.split, "config": marks.config, "column_names": json.dumps(marks.column_names)}
    # The set is read as for the page, except for the values of the command line.
    options = DataOptions(**own | dict(given))
    set_url_access(UrlAccess.from_settings(options.allow_urls, options.url_timeout))
    dataset = read_set(name, options)
    _check(dataset, marks, name, path)
    # The new set holds copies of all image files, so a hostile set could publish private ones.
    check_local_files(dataset, dataset.column_names, name, allow_outside=allow_outside_files, log=log)
    dropped = sorted(one.row for one in marks.marks if one.mark == DROP)
    # A slice such as train[:100] is not part of the split's name.
    split = options.split.partition("[")[0]
    build = run_stages(
        dataset,
        # Other marks are other settings of the stage, so they never resume this build.
        [Stage(WHAT, _without_rows, {"dropped": dropped})],
        output,
        features=output_features(dataset, {}),
        reads=(),
        # Several splits that were read as one, such as train+test, become one.
        split=TRAIN if "+" in options.split else split,
        progress=progress,
    )
    stated = None if is_sandbox(name) else stated_license(name)  # which asks the Hub for a card
    source = Source(name, stated, LICENSE in dataset.column_names)
    words = ["hfcomp", "gallery", without_local_paths(name), "--apply", path.name]
    write_card(output, {DEFAULT: [build.manifest]}, source, CARD, f"{shlex.join(words)} --output DIR")
    others = {reason: number for reason, number in build.manifest["set_aside"].items() if reason != DROPPED}
    return Applied(output, len(dataset), build.manifest["rows"], len(dropped), len(marks.marks) - len(dropped), others)


def _check(dataset: Dataset, marks: MarksFile, name: str, path: Path) -> None:
    # Marks name rows by number, so they fit a single dataset.
    found = set_fingerprint(dataset)
    if found != marks.fingerprint:
        raise ValueError(
            f"{path} has marks of another dataset: of {marks.dataset}, split {marks.split}, {marks.rows:,} rows, "
            f"with the fingerprint {_short(marks.fingerprint)}; {name} has {len(dataset):,} rows and {_short(found)}. "
            "Pass the dataset, --config and --split that were marked, or make its page again."
        )
    outside = [one.row for one in marks.marks if one.row >= len(dataset)]
    if outside:
        raise ValueError(f"{path}: there is no row {outside[0]}, expected 0 to {len(dataset) - 1}.")
    # The fingerprint covers texts and numbers. Images count only in the ids of rows.
    changed = [one.row for one in marks.marks if row_id(dataset[one.row]) != one.id]
    if changed:
        rows = ", ".join(map(str, changed[:_SHOWN]))
        raise ValueError(
            f"{path}: {len(changed):,} of {len(marks.marks):,} marked rows have changed since, such as {rows}: their "
            "ids are others. Make the page of this dataset again, and mark them there."
        )
    dropped = sum(one.mark == DROP for one in marks.marks)
    if dropped in (0, len(dataset)):
        what = "drops no row: the set would stay as it is" if not dropped else "drops every row: nothing would be left"
        raise ValueError(f"{path} {what}. Change marks in the page, and save them again.")


def _short(fingerprint: str) -> str:
    return fingerprint[:19]


def _without_rows(dropped: Sequence[int]) -> StageFunction:
    rows = frozenset(dropped)

    def mark(batch: Batch) -> Batch:
        return {**batch, SET_ASIDE: [DROPPED if row in rows else None for row in batch[ROW]]}

    return mark
