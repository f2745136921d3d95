"""Reads the row marks that a page saved, and writes the dataset without the dropped rows."""

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
"""Name of such a dataset in its manifest."""
CARD = CardText(
    "Reviewed rows",
    "The rows that remain after a person looked through the dataset and dropped some. It is not recorded how many "
    "rows that person looked at; rows that nobody looked at were kept.",
    {},
    "The columns are those of the source. All image bytes are stored in the dataset itself.",
)
DROPPED = "dropped in the gallery"
_EXAMPLE_ROWS = 3


class Mark(Strict):
    row: Annotated[int, Field(ge=0, description="the row number")]
    id: Annotated[str, Field(description="the row's id, as on the page")]
    mark: Annotated[Literal["keep", "drop"], Field(description="keep or drop")]


class MarksFile(Strict):
    """Contents of a marks file: the dataset of the page, and the marks of some of its rows."""

    schema_version: Annotated[Literal[1], Field(description=f"{SCHEMA_VERSION}")]
    dataset: Annotated[str, Field(description="the name of the dataset")]
    split: Annotated[str, Field(description="the split of the rows")]
    config: Annotated[str | None, Field(description="the configuration, or null")]
    column_names: Annotated[dict[str, str], Field(description="a mapping of hfcomp's column names to the dataset's")]
    fingerprint: Annotated[str, Field(description="the fingerprint of the dataset")]
    rows: Annotated[int, Field(ge=1, description="the number of rows in the dataset")]
    marks: Annotated[list[Mark], Field(description="the marks, one per marked row")]


@dataclass(frozen=True)
class Applied:
    """Row counts after applying the marks."""

    folder: Path
    read: int
    written: int
    dropped: int
    kept: int  # rows marked to keep; rows without a mark are kept too
    set_aside: Mapping[str, int]  # other rows left out, by reason, for example a missing image file


def read_marks(path: Path) -> MarksFile:
    """Reads a marks file; raises if a row has several marks."""
    marks_file = parse(MarksFile, read_json(path), str(path))
    # Two marks could contradict each other.
    row, number = max(Counter(mark.row for mark in marks_file.marks).items(), key=lambda item: item[1], default=(0, 1))
    if number > 1:
        raise ValueError(f"{path}: row {row} has {number} marks, expected one. Remove the others.")
    return marks_file


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
    """Writes the dataset without the dropped rows, in the format of `hfcomp build`. Resumes after an interruption.

    Args:
        name: Name of the dataset, as for the page.
        path: Marks file.
        output: Folder of the new dataset.
        allow_outside_files: Whether to also copy image files from outside the dataset's folder.
        log: Function that receives a line about copied image files.
    """
    marks = read_marks(path)
    stored = {"split": marks.split, "config": marks.config, "column_names": json.dumps(marks.column_names)}
    # Read the dataset as for the page, except for values from the command line.
    options = DataOptions(**stored | dict(given))
    set_url_access(UrlAccess.from_settings(options.allow_urls, options.url_timeout))
    dataset = read_set(name, options)
    _check(dataset, marks, name, path)
    # The new dataset holds copies of all image files, so a malicious dataset could expose private files.
    check_local_files(dataset, dataset.column_names, name, allow_outside=allow_outside_files, log=log)
    dropped = sorted(mark.row for mark in marks.marks if mark.mark == DROP)
    # A slice such as train[:100] is not part of the split's name.
    split = options.split.partition("[")[0]
    build = run_stages(
        dataset,
        # Marks are settings of the stage, so a build with other marks never resumes this one.
        [Stage(WHAT, _drop_stage, {"dropped": dropped})],
        output,
        features=output_features(dataset, {}),
        reads=(),
        # Several splits that are read together, such as train+test, become one split.
        split=TRAIN if "+" in options.split else split,
        progress=progress,
    )
    license_name = None if is_sandbox(name) else stated_license(name)  # requests the card from the Hub
    source = Source(name, license_name, LICENSE in dataset.column_names)
    command = ["hfcomp", "gallery", without_local_paths(name), "--apply", path.name]
    write_card(output, {DEFAULT: [build.manifest]}, source, CARD, f"{shlex.join(command)} --output DIR")
    others = {reason: number for reason, number in build.manifest["set_aside"].items() if reason != DROPPED}
    return Applied(output, len(dataset), build.manifest["rows"], len(dropped), len(marks.marks) - len(dropped), others)


def _check(dataset: Dataset, marks: MarksFile, name: str, path: Path) -> None:
    # Marks refer to rows by number, so they are valid for one dataset only.
    own_fingerprint = set_fingerprint(dataset)
    if own_fingerprint != marks.fingerprint:
        raise ValueError(
            f"{path} contains marks of another dataset: {marks.dataset}, split {marks.split}, {marks.rows:,} rows, "
            f"fingerprint {_short(marks.fingerprint)}. {name} has {len(dataset):,} rows and the fingerprint "
            f"{_short(own_fingerprint)}. Pass the marked dataset with its --config and --split, or make a new page."
        )
    outside = [mark.row for mark in marks.marks if mark.row >= len(dataset)]
    if outside:
        raise ValueError(f"{path}: row {outside[0]} does not exist, expected 0 to {len(dataset) - 1}.")
    # The fingerprint covers texts and numbers. Only the row ids cover images.
    changed = [mark.row for mark in marks.marks if row_id(dataset[mark.row]) != mark.id]
    if changed:
        rows = ", ".join(map(str, changed[:_EXAMPLE_ROWS]))
        raise ValueError(
            f"{path}: {len(changed):,} of {len(marks.marks):,} marked rows have changed since they were marked (their "
            f"ids differ), for example {rows}. Make the page of this dataset again and mark the rows there."
        )
    dropped = sum(mark.mark == DROP for mark in marks.marks)
    if dropped in (0, len(dataset)):
        problem = "no row, so the dataset would not change" if not dropped else "every row, so nothing would be left"
        raise ValueError(f"{path} drops {problem}. Change the marks on the page and save them again.")


def _short(fingerprint: str) -> str:
    return fingerprint[:19]


def _drop_stage(dropped: Sequence[int]) -> StageFunction:
    rows = frozenset(dropped)

    def mark(batch: Batch) -> Batch:
        return {**batch, SET_ASIDE: [DROPPED if row in rows else None for row in batch[ROW]]}

    return mark
