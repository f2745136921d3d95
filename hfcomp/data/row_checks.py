"""What the rows of a training set lack, found before the first of them is needed: files, images and captions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, LargeList, List

from hfcomp.data.columns import chosen_rows
from hfcomp.data.formats.archives import KEY
from hfcomp.data.formats.image_files import TEXTS, check_image_files

CAPTION, IMAGE, URL = "caption", "image", "__url__"


def check_contents(dataset: Any, columns: Sequence[str], *, lists: bool = False) -> None:
    """Checks that every row has its caption and its image, and that the files of images exist.

    Nothing is known of a stream. With `lists` a caption may be a list of texts, which is then checked elsewhere.
    """
    # All at once and before the first step: a run that fails at row 400,000 has wasted a night.
    if isinstance(dataset, Dataset) and len(dataset):
        if CAPTION in columns and CAPTION in dataset.column_names:
            _check_captions(dataset, lists)
        if IMAGE in columns and IMAGE in dataset.column_names:
            rows = _chosen(dataset, pc.is_null(dataset.data.column(IMAGE)))
            if rows:
                raise ValueError(_incomplete(dataset, IMAGE, rows, "no image"))
    check_image_files(dataset, columns)


def check_sample(row: dict[str, Any]) -> bool:
    """True for a streamed row of an archive with caption and image; raises ValueError for any other sample."""
    missing = [name for name in (CAPTION, IMAGE) if name in row and not row[name]]
    if missing:
        there = ", ".join(name for name, value in row.items() if value and name not in (KEY, URL)) or "no column"
        raise ValueError(
            f"column {missing[0]!r}, the sample {row[KEY]!r} of {row.get(URL)}, which has {there}: found nothing. "
            "Complete the sample, or take it out of the archive."
        )
    return True


def place_of_row(dataset: Dataset, row: int) -> str:
    """A row for an error message; one of an archive with its sample and what this has."""
    if KEY not in dataset.column_names:
        return f"row {row}"
    names = [name for name in dataset.column_names if name not in (KEY, URL)]
    # Checked in Arrow, which needs no decoding to see that an entry is there.
    there = [name for name in names if dataset.with_format("arrow").select_columns([name])[row].column(0)[0].is_valid]
    known = dataset.select_columns([name for name in (KEY, URL) if name in dataset.column_names])[row]
    archive = f" of {known[URL]}" if URL in known else ""
    return f"row {row}, the sample {known[KEY]!r}{archive}, which has {', '.join(there) or 'no column'}"


def _check_captions(dataset: Dataset, lists: bool) -> None:
    feature = dataset.features[CAPTION]
    first = dataset.select_columns([CAPTION])[0][CAPTION]
    if isinstance(feature, List | LargeList):
        if not lists:
            raise ValueError(
                f"column 'caption', {place_of_row(dataset, 0)}: found a list of {len(first or ())}, expected one "
                "text. Draw one in each epoch with draw_captions=True (in a recipe captions: drawn), or choose one: "
                "dataset.map(lambda row: {'caption': row['caption'][0]})."
            )
        return
    if feature not in TEXTS:
        raise ValueError(
            f"column 'caption', {place_of_row(dataset, 0)}: found {first!r} and the type {_name(feature)}, expected "
            "texts. Write numbers as texts: dataset.cast_column('caption', datasets.Value('string'))."
        )
    # Computed over the whole stored column: a Python loop over millions of captions takes minutes.
    texts = dataset.data.column(CAPTION)
    blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(texts), ""), True)
    rows = _chosen(dataset, blank)
    if rows:
        text = dataset.select_columns([CAPTION])[rows[0]][CAPTION]
        raise ValueError(_incomplete(dataset, CAPTION, rows, repr(text)))


def _incomplete(dataset: Dataset, column: str, rows: Sequence[int], found: str) -> str:
    expected = "a text" if column == CAPTION else "one"
    others = f" {len(rows):,} of {len(dataset):,} rows are like this." if len(rows) > 1 else ""
    kept = "row['caption'] and row['caption'].strip()" if column == CAPTION else "row['image'] is not None"
    return (
        f"column {column!r}, {place_of_row(dataset, rows[0])}: found {found}, expected {expected}.{others} Complete "
        f"or remove such rows; in Python: dataset.filter(lambda row: {kept})."
    )


def _chosen(dataset: Dataset, mask: pa.ChunkedArray) -> list[int]:
    mask = chosen_rows(dataset, mask)
    return pc.indices_nonzero(mask).to_pylist() if pc.any(mask).as_py() else []


def _name(feature: Any) -> str:
    return getattr(feature, "dtype", None) or type(feature).__name__
