"""Loads the data of an audit, a benchmark or a dataset in the column contract, as tables of pairs and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset, Image
from numpy.typing import NDArray

from hfcomp.analysis.audit.options import AuditOptions
from hfcomp.analysis.gallery.rows import SANDBOX, read_set
from hfcomp.data.columns import COLUMNS, require_columns
from hfcomp.data.formats.tables import is_table
from hfcomp.data.image_ids import has_no_id, photograph_ids
from hfcomp.data.known_names import proposed_names
from hfcomp.data.overlap.image_columns import each_cell
from hfcomp.data.pair_table import choose_captions, pair_table
from hfcomp.data.publishing import without_local_paths
from hfcomp.evaluation.benchmarks import benchmarks, find_benchmarks
from hfcomp.evaluation.cells import is_missing
from hfcomp.evaluation.loaded import Loaded, load_benchmark
from hfcomp.evaluation.spec import Folders, Unavailable
from hfcomp.reading import nearest, nearest_name
from hfcomp.statistics.bootstrap import ImageBootstrap

READ = {*COLUMNS, "captions", "subset"}
"""Columns of the contract and of benchmarks. No note is added if the checks do not need one of them."""
GUESSED = ("negative_captions", "positive_captions", "image_id")
"""Columns that an audit needs for some checks. If one is missing, a likely column is proposed."""


def unread_columns(rows: Dataset) -> list[str]:
    """Lists columns with names outside the contract, with the name that was probably meant."""
    unread = [name for name in rows.column_names if name not in READ]
    missing = [name for name in GUESSED if name not in rows.column_names]
    meant = {theirs: ours for ours, theirs in proposed_names(rows, missing).items()}
    notes, others = [], []
    for name in unread:
        ours = meant.get(name) or nearest_name(name.lower(), missing)
        if ours:
            notes.append(f"column {name!r} is not read; did you mean --column_names {ours}={name}?")
        else:
            others.append(repr(name))
    if others:
        # If a likely name exists, its note already gives this advice.
        hint = "" if meant or notes or "negative_captions" not in missing else _WITHOUT_NEGATIVES
        notes.append(f"not read: column{'s' * (len(others) > 1)} {', '.join(others)}{hint}")
    return notes


_WITHOUT_NEGATIVES = ". If one of them holds the negatives, pass --column_names negative_captions=NAME"


def _photograph_notes(has_column: bool, ids: Sequence[str | None], number_with_id: int) -> list[str]:
    """Describes how rows without an `image_id` are assigned to photographs.

    Args:
        has_column: Whether the column `image_id` exists.
        ids: Ids from `photograph_ids`.
        number_with_id: Number of rows with an `image_id`.
    """
    unknown = sum(name is None for name in ids)
    by_file = len(ids) - number_with_id - unknown
    notes = []
    if by_file:
        where = "the column image_id is missing" if not has_column else f"{_rows(by_file)} no image_id"
        notes.append(f"{where}: rows with the same image file count as one photograph")
    if unknown:
        notes.append(
            f"{_rows(unknown)} neither an image_id nor an image: each counts as its own photograph, which "
            "intervals and folds treat as independent"
        )
    return notes


def _missing_notes(rows: Sequence[int], what: str, example: str = "") -> list[str]:
    return [f"{_rows(len(rows))} {what}; the first: row {rows[0]}{example}"] if len(rows) else []


def _rows(number: int) -> str:
    return f"{number:,} row has" if number == 1 else f"{number:,} rows have"


IMAGES = ("image", "negative_image")
MOST_KINDS = 12


@dataclass(frozen=True, eq=False)
class AuditSet:
    name: str  # benchmark, path or Hub id
    # One row per negative caption: `row`, `place` in its list, `image_id`, `kind`, `caption`, `negative`.
    pairs: pd.DataFrame
    texts: pd.DataFrame  # one row per true caption: `row`, `image_id`, `text`
    images: Mapping[str, Sequence[Any]]  # cells of image columns, by row
    image_ids: Sequence[str]  # by row, from `photograph_ids`; a row without an id counts as its own image
    has_image: NDArray[np.bool_]  # `[rows]`, whether the row has an image to decode
    sources: Sequence[Any] | None = None  # by row, if the dataset names them
    loaded: Loaded | None = None  # the benchmark, if the dataset is one
    notes: list[str] = field(default_factory=list)  # remarks that a reader needs to interpret the numbers

    def __len__(self) -> int:
        return len(self.image_ids)

    @cached_property
    def bootstrap(self) -> ImageBootstrap | None:
        """The bootstrap over the images of all pairs; `None` without pairs."""
        return ImageBootstrap(self.pairs["image_id"].to_numpy()) if len(self.pairs) else None

    @cached_property
    def first_rows(self) -> list[int]:
        """The first row of each distinct image."""
        seen: dict[str, int] = {}
        for row in np.flatnonzero(self.has_image).tolist():
            seen.setdefault(self.image_ids[row], row)
        return list(seen.values())

    @property
    def kinds(self) -> list[str]:
        """The kinds of negatives, most frequent first; empty if there is only one kind."""
        counts = self.pairs["kind"].value_counts()
        return [] if len(counts) < 2 else list(counts.index[:MOST_KINDS])


def read_audit_set(name: str, options: AuditOptions) -> AuditSet:
    """Reads a benchmark by name, or otherwise a dataset in the column contract.

    Args:
        name: Name of a benchmark (`hfcomp evaluate --list`, or `package.module:NAME`), a file, a folder, a Hub id, or
            `sandbox`.
    """
    # A file or folder takes precedence over a benchmark of the same name.
    if not Path(name).exists() and name != SANDBOX and (name in benchmarks() or ":" in name or _is_group(name)):
        matches = find_benchmarks([name])
        if len(matches) > 1:
            raise ValueError(
                f"{name} stands for {', '.join(benchmark.name for benchmark in matches)}. Audit one of them."
            )
        try:
            # The texts are worth an audit even without the images, which may take gigabytes.
            loaded = load_benchmark(matches[0], Folders(options.data_dir, texts_suffice=True))
        except Unavailable as error:
            how = error.how_to_fix or matches[0].obtain
            raise ValueError(
                f"{name}: {error.reason} {how} --data_dir takes a folder that contains {name}/."
            ) from error
        return _audit_benchmark(loaded)
    # A Hub id contains a slash, so other names are not requested from the Hub.
    if not Path(name).exists() and name != SANDBOX and "/" not in name and not is_table(name):
        raise ValueError(
            f"{name}: no benchmark, file or folder of this name.{nearest(name, benchmarks())} `hfcomp evaluate "
            "--list` lists the benchmarks; a Hub id has the form OWNER/NAME."
        )
    rows, notes = read_set(name, options), []
    require_columns(rows, ("caption",), needed_by=f"the audit of {name}")
    rows = choose_captions(rows, options.caption_choice, notes.append, keep_others=True, allow_missing=True)
    images = {column: rows[column] for column in IMAGES if isinstance(rows.features.get(column), Image)}
    return audit_set(name, rows, images, notes=notes)


def _is_group(name: str) -> bool:
    return any(benchmark.startswith(f"{name}_") for benchmark in benchmarks())


def _audit_benchmark(loaded: Loaded) -> AuditSet:
    items = loaded.data
    columns = [name for name in IMAGES if name in items.images or name in items.rows.column_names]
    images = {name: items.images[name] if name in items.images else items.rows[name] for name in columns}
    return audit_set(loaded.benchmark.name, items.rows, images, loaded=loaded, notes=list(loaded.remarks()))


def audit_set(
    name: str,
    rows: Dataset,
    images: Mapping[str, Sequence[Any]],
    *,
    loaded: Loaded | None = None,
    notes: Sequence[str] = (),
) -> AuditSet:
    """Splits rows with the contract's column names into tables of pairs and texts."""
    if not len(rows):
        raise ValueError(f"{name} has no rows.")
    # Reading an image column would decode every image.
    column = {key: rows[key][:] for key in rows.column_names if key not in IMAGES and key != "mask"}
    present = {name: _present_cells(cells) for name, cells in images.items()}
    given = column.get("image_id")
    photographs = photograph_ids(given, _whole_images(images, len(rows)))
    ids = [name or f"row {row}" for row, name in enumerate(photographs)]
    own_notes = _photograph_notes(given is not None, photographs, sum(not has_no_id(cell) for cell in given or ()))
    table = pair_table(column, ids)
    subsets = column.get("subset", [None] * len(rows))  # benchmarks have subsets instead of kinds
    row_kinds = zip(table.pairs["row"], table.pairs["kind"], strict=True)
    kinds = [str(kind or subsets[row] or "all") for row, kind in row_kinds]
    own_notes += _missing_notes(table.without_caption, "no caption")
    if table.masked:
        own_notes.append(f"negatives that form no pair, because they are empty or have no caption: {table.masked:,}")
    if loaded is None:
        own_notes += [*_missing_image_notes(images, present), *unread_columns(rows)]
    return AuditSet(
        name,
        table.pairs.assign(kind=kinds)[["row", "place", "image_id", "kind", "caption", "negative"]],
        table.texts,
        images,
        ids,
        present.get("image", np.zeros(len(rows), dtype=bool)),
        column.get("source"),
        loaded,
        [*notes, *own_notes],
    )


def _present_cells(cells: Sequence[Any]) -> NDArray[np.bool_]:
    return np.array([not is_missing(cell) for _, cell in each_cell(cells, range(len(cells)))], dtype=bool)


def _whole_images(images: Mapping[str, Sequence[Any]], number: int) -> Iterator[Any]:
    """Yields the image of each row, or the whole image if the row shows part of it. Reads images lazily."""
    if "image" not in images:
        yield from repeat(None, number)
        return
    for _, cell in each_cell(images["image"], range(number)):
        yield getattr(cell, "cell", cell)


def _missing_image_notes(images: Mapping[str, Sequence[Any]], present: Mapping[str, NDArray[np.bool_]]) -> list[str]:
    notes = []
    for name, what in (("image", "no image"), ("negative_image", "no negative image")):
        rows = np.flatnonzero(~present.get(name, np.ones(0, dtype=bool))).tolist()
        cell = images[name][rows[0]] if rows else None
        path = cell.get("path") if isinstance(cell, dict) else cell
        notes += _missing_notes(rows, what, f", {without_local_paths(str(path))} does not exist" if path else "")
    return notes
