"""Checks for missing files, images and captions in a training set, made before training needs the first row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, LargeList, List

from hfcomp.data.columns import select_values
from hfcomp.data.formats.archives import KEY
from hfcomp.data.formats.image_files import TEXTS, check_image_files

CAPTION, IMAGE, URL = "caption", "image", "__url__"


def check_contents(dataset: Any, columns: Sequence[str], *, lists: bool = False) -> None:
    """Checks that every row has a caption and an image, and that image files exist.

    Streams cannot be checked. With `lists`, a caption may be a list of texts, which is checked elsewhere.
    """
    # Check everything before the first step: a run that fails at row 400,000 has wasted a night.
    if isinstance(dataset, Dataset) and len(dataset):
        if CAPTION in columns and CAPTION in dataset.column_names:
            _check_captions(dataset, lists)
        if IMAGE in columns and IMAGE in dataset.column_names:
            rows = _selected_indices(dataset, pc.is_null(dataset.data.column(IMAGE)))
            if rows:
                raise ValueError(_incomplete(dataset, IMAGE, rows, "no image"))
    check_image_files(dataset, columns)


def check_sample(row: dict[str, Any]) -> bool:
    """Returns True if a streamed archive row has a caption and an image; raises ValueError otherwise."""
    missing = [name for name in (CAPTION, IMAGE) if name in row and not row[name]]
    if missing:
        present = ", ".join(name for name, value in row.items() if value and name not in (KEY, URL)) or "no column"
        raise ValueError(
            f"column {missing[0]!r} is empty in the sample {row[KEY]!r} of {row.get(URL)}, which has {present}. "
            "Complete the sample, or remove it from the archive."
        )
    return True


def place_of_row(dataset: Dataset, row: int) -> str:
    """Describes a row for an error message; for archive rows, with the sample's name and columns."""
    if KEY not in dataset.column_names:
        return f"row {row}"
    names = [name for name in dataset.column_names if name not in (KEY, URL)]
    # Check in Arrow, which shows whether an entry exists without decoding it.
    rows = dataset.with_format("arrow")
    present = [name for name in names if rows.select_columns([name])[row].column(0)[0].is_valid]
    known = dataset.select_columns([name for name in (KEY, URL) if name in dataset.column_names])[row]
    archive = f" of {known[URL]}" if URL in known else ""
    return f"row {row}, the sample {known[KEY]!r}{archive}, which has {', '.join(present) or 'no column'}"


def _check_captions(dataset: Dataset, lists: bool) -> None:
    feature = dataset.features[CAPTION]
    first = dataset.select_columns([CAPTION])[0][CAPTION]
    if isinstance(feature, List | LargeList):
        if not lists:
            raise ValueError(
                f"column 'caption', {place_of_row(dataset, 0)}: found a list of {len(first or ())} captions, "
                "expected one string. Draw one per epoch with draw_captions=True (captions: drawn in a recipe), or "
                "choose one: dataset.map(lambda row: {'caption': row['caption'][0]})."
            )
        return
    if feature not in TEXTS:
        raise ValueError(
            f"column 'caption', {place_of_row(dataset, 0)}: found {first!r} of type {_name(feature)}, expected "
            "strings. Convert numbers to strings: dataset.cast_column('caption', datasets.Value('string'))."
        )
    # Compute this over the whole stored column: a Python loop over millions of captions takes minutes.
    texts = dataset.data.column(CAPTION)
    blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(texts), ""), True)
    rows = _selected_indices(dataset, blank)
    if rows:
        text = dataset.select_columns([CAPTION])[rows[0]][CAPTION]
        raise ValueError(_incomplete(dataset, CAPTION, rows, repr(text)))


def _incomplete(dataset: Dataset, column: str, rows: Sequence[int], value: str) -> str:
    expected = "a string" if column == CAPTION else "one"
    others = f" {len(rows):,} of {len(dataset):,} rows have this problem." if len(rows) > 1 else ""
    kept = "row['caption'] and row['caption'].strip()" if column == CAPTION else "row['image'] is not None"
    return (
        f"column {column!r}, {place_of_row(dataset, rows[0])}: found {value}, expected {expected}.{others} Complete "
        f"or remove such rows; in Python: dataset.filter(lambda row: {kept})."
    )


def _selected_indices(dataset: Dataset, mask: pa.ChunkedArray) -> list[int]:
    mask = select_values(dataset, mask)
    return pc.indices_nonzero(mask).to_pylist() if pc.any(mask).as_py() else []


def _name(feature: Any) -> str:
    return getattr(feature, "dtype", None) or type(feature).__name__
