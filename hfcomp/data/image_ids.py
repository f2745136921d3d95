"""Which photograph is this? The column `image_id`, else the image's file; and what names of one photograph share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b, sha256
from numbers import Integral
from pathlib import Path
from typing import Any

from hfcomp.data.urls import shown

IMAGE_ID = "image_id"
_IMAGE_FILE = re.compile(r"(?:.*[/\\])?([^/\\]+)\.(?:jpe?g|png|webp|bmp|gif|tiff?)", re.IGNORECASE)


def photograph_key(name: str) -> str:
    """The same text for all names of one photograph: COCO's number, else the file name without folder and ending.

    `COCO_val2014_000000000285.jpg`, `000000000285` and `COCO 285` are `285`; other names without the ending of an
    image file stay as they are. A bare number counts as COCO's: two sources that number their images from 0 have equal
    names in any case.

    Args:
        name: an `image_id`, or a file.
    """
    from hfcomp.data.overlap.image_names import COCO, photograph_name  # slow to import: with it comes `datasets`

    file = _IMAGE_FILE.fullmatch(name)
    stem = file[1] if file else name
    known = photograph_name(stem, COCO)
    return known[1] if known else stem


def photograph_ids(given: Sequence[Any] | None, cells: Iterable[Any]) -> list[str | None]:
    """The photograph of each row: its `image_id`, else its file's name, or its bytes where files of one name differ.

    Args:
        given: the column `image_id`, where there is one.
        cells: of whole images, as `decode_image` takes them, or `None`; read only where a row has no id.

    Returns:
        For each row; `None` where neither an id nor an image is known.
    """
    if given is not None and not any(map(has_no_id, given)):
        return [str(value) for value in given]
    files = _file_keys(cells)
    given = [None] * len(files) if given is None else given
    return [file if has_no_id(value) else str(value) for value, file in zip(given, files, strict=True)]


def has_no_id(value: Any) -> bool:
    """Whether a value of the column `image_id` is none: null, NaN, or a text of blanks."""
    return value is None or (isinstance(value, str) and not value.strip()) or bool(value != value)


def _file_keys(cells: Iterable[Any]) -> list[str | None]:
    names, marks = [], []
    for cell in cells:
        path, content = (cell.get("path"), cell.get("bytes")) if isinstance(cell, dict) else (cell, None)
        if isinstance(path, str) and shown(path) != path:  # a signature is not written into results
            path = sha256(path.encode()).hexdigest()[:16]
        names.append(Path(path).name if isinstance(path, str) else None)
        marks.append(path if content is None else sha256(content).hexdigest()[:16])
    of_name: dict[str | None, set[str | None]] = {}
    for name, mark in zip(names, marks, strict=True):
        of_name.setdefault(name, set()).add(mark)
    alone = {name for name, found in of_name.items() if name is not None and len(found) == 1}
    return [name if name in alone else mark for name, mark in zip(names, marks, strict=True)]


def image_key(value: Any, row: int) -> int:
    """A number for an image, the same in every process; below 0 for a row without an id, which no other row has.

    Args:
        value: a text or an integer; missing or empty means no id.
        row: its index in the data set.

    Raises:
        ValueError: for another type.
    """
    if has_no_id(value):
        return -1 - row
    if isinstance(value, bool) or not isinstance(value, Integral | str):
        raise ValueError(
            f"column {IMAGE_ID!r}, row {row}: found {value!r}, expected a text or a whole number, equal for rows of "
            f"one image, or null. Correct it in the file, or in Python: dataset.remove_columns({IMAGE_ID!r})."
        )
    return int.from_bytes(blake2b(str(value).encode(), digest_size=8).digest(), "big") >> 1


def shared_rows(values: Sequence[Any]) -> int:
    """How many rows have an `image_id` that another row has too.

    Args:
        values: the column.

    Raises:
        ValueError: for an invalid id, or one id for all rows.
    """
    number = Counter(image_key(value, row) for row, value in enumerate(values))
    if len(number) == 1 and len(values) > 1:
        raise ValueError(
            f"column {IMAGE_ID!r}: all {len(values):,} rows have the value {values[0]!r}, so no row would be a "
            "negative of another. Give rows of different images different values, or remove the column, in Python "
            f"with dataset.remove_columns({IMAGE_ID!r}). A recipe with captions: all fills the column with row "
            "indices: use a data set with several images."
        )
    return sum(count for count in number.values() if count > 1)
