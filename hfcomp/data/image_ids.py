"""Identity of photographs: by the column `image_id`, otherwise by the image file; and keys for their names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b, sha256
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.data.urls import redact

if TYPE_CHECKING:
    from datasets import Dataset

IMAGE_ID = "image_id"
OWN_IDS = f"dataset.map(lambda row, number: {{{IMAGE_ID!r}: str(number)}}, with_indices=True)."
"""Code that makes rows count as distinct images, whether the column exists or not."""
_IMAGE_FILE = re.compile(r"(?:.*[/\\])?([^/\\]+)\.(?:jpe?g|png|webp|bmp|gif|tiff?)", re.IGNORECASE)


def photograph_key(name: str) -> str:
    """Returns the same key for all names of one photograph: its COCO number, otherwise the bare file name.

    `COCO_val2014_000000000285.jpg`, `000000000285` and `COCO 285` become `285`. The bare file name has no folder and
    no extension; names without an image extension stay as they are. A plain number counts as a COCO number, because
    two sources that number their images from 0 have equal names in any case.
    """
    from hfcomp.data.overlap.image_columns import COCO, photograph_name  # slow import, because it loads `datasets`

    file = _IMAGE_FILE.fullmatch(name)
    stem = file[1] if file else name
    known = photograph_name(stem, COCO)
    return known[1] if known else stem


def photograph_ids(given: Sequence[Any] | None, cells: Iterable[Any]) -> list[str | None]:
    """Identifies each row's photograph: by `image_id`, otherwise by file name, or by its bytes if names are ambiguous.

    A row without an `image_id` takes the id of another row with the same file; `None` if neither an id nor an image is
    known. Cells contain whole images, as for `decode_image`, and are read only if a row has no id.
    """
    if given is not None and not any(map(has_no_id, given)):
        return [str(value) for value in given]
    return _with_given(given, _file_keys(*_names_and_marks(cells)))


def photographs(dataset: Dataset) -> list[str | None]:
    """Identifies the photograph of each row of a dataset, by the rules of [`photograph_ids`].

    Embedded images are read only if their names are missing or repeated. No image is decoded, and no file is opened.
    """
    given = dataset.with_format(None)[IMAGE_ID][:] if IMAGE_ID in dataset.column_names else None
    if given is not None and not any(map(has_no_id, given)):
        return [str(value) for value in given]
    return _with_given(given, _stored_keys(dataset))


def photographs_or_rows(dataset: Dataset) -> list[str]:
    """Like [`photographs`], but returns `row n` for row n if neither an id nor an image is known."""
    return [name or f"row {row}" for row, name in enumerate(photographs(dataset))]


def with_image_ids(dataset: Dataset, ids: Sequence[str | None] | None = None) -> Dataset:
    """Writes the photograph of each row, as found by `photographs`, to the column `image_id`.

    If every row has an `image_id`, or no photograph is known, returns the dataset unchanged.
    """
    ids = photographs(dataset) if ids is None else ids
    given = dataset.with_format(None)[IMAGE_ID][:] if IMAGE_ID in dataset.column_names else [None] * len(ids)
    if all(has_no_id(value) == (name is None) for value, name in zip(given, ids, strict=True)):
        return dataset
    from datasets import Value

    return with_column(dataset, IMAGE_ID, ids, Value("string"))


def with_shared_ids(dataset: Dataset) -> Dataset:
    """Applies [`with_image_ids`] if two rows show one photograph; otherwise returns the dataset unchanged."""
    ids = photographs(dataset)
    counts = Counter(name for name in ids if name is not None)
    return with_image_ids(dataset, ids) if counts.total() > len(counts) else dataset


def with_column(dataset: Dataset, name: str, values: Sequence[Any], feature: Any) -> Dataset:
    """Adds or replaces a column with the given values, without copying images."""
    from datasets import Dataset

    if name in dataset.column_names:
        dataset = dataset.remove_columns(name)
    if dataset._indices is None:
        return dataset.add_column(name, list(values), feature=feature)
    # `add_column` would write the selected rows to disk, with their images. So the values are added to the stored rows
    # beneath the selection instead. Rows that are not selected get no value.
    rows = dataset._indices.column(0).to_numpy()
    stored: list[Any] = [None] * len(dataset.data)
    for row, value in zip(rows.tolist(), values, strict=True):
        stored[row] = value
    whole = Dataset(dataset.data, dataset.info.copy(), dataset.split, fingerprint=dataset._fingerprint)
    chosen = whole.add_column(name, stored, feature=feature).select(rows)
    settings = dataset.format
    columns = None if {*settings["columns"]} == {*dataset.column_names} else settings["columns"]
    chosen.set_format(settings["type"], columns, settings["output_all_columns"], **settings["format_kwargs"])
    return chosen


def streamed_id(row: Mapping[str, Any]) -> Any:
    """Identifies the photograph of a streamed row without knowing other rows: `image_id`, otherwise bytes or path."""
    given = row.get(IMAGE_ID)
    if not has_no_id(given):
        return given
    (_,), (mark,) = _names_and_marks([row.get("image")])
    return mark


def has_no_id(value: Any) -> bool:
    # The last test catches NaN, which pandas writes for a missing number.
    return value is None or (isinstance(value, str) and not value.strip()) or bool(value != value)


def _with_given(given: Sequence[Any] | None, files: Sequence[str | None]) -> list[str | None]:
    given = [None] * len(files) if given is None else given
    # Rows without an id take the id of a row with the same file.
    known: dict[str | None, str] = {}
    for value, file in zip(given, files, strict=True):
        if file is not None and not has_no_id(value):
            known.setdefault(file, str(value))
    pairs = zip(given, files, strict=True)
    return [known.get(file, file) if has_no_id(value) else str(value) for value, file in pairs]


def _names_and_marks(cells: Iterable[Any]) -> tuple[list[str | None], list[str | None]]:
    """Each image's file name, and a mark that distinguishes files of that name: a hash of the bytes, or the path."""
    names, marks = [], []
    for cell in cells:
        path, content = (cell.get("path"), cell.get("bytes")) if isinstance(cell, dict) else (cell, None)
        name, place = _name_and_place(path)
        names.append(name)
        marks.append(place if content is None else _digest(content))
    return names, marks


def _name_and_place(path: Any) -> tuple[str | None, str | None]:
    if not isinstance(path, str) or not path:
        return None, None
    if redact(path) != path:  # never write a URL's signature into results
        return (_digest(path.encode()),) * 2
    name, _, archive = path.partition("::")  # for example zip://a.jpg::set.zip
    return Path(name).name, _digest(path.encode()) if archive else path


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def _stored_keys(dataset: Dataset) -> list[str | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    from hfcomp.data.columns import select_values
    from hfcomp.data.loading import undecoded
    from hfcomp.data.overlap.image_columns import each_cell

    if "image" not in dataset.column_names:
        return [None] * len(dataset)
    stored = dataset.data.column("image")
    if not pa.types.is_struct(stored.type):
        return _file_keys(*_names_and_marks(dataset.with_format(None)["image"]))
    # Read one field at a time, because whole rows would include the bytes.
    paths, inside = pc.struct_field(stored, "path"), pc.is_valid(pc.struct_field(stored, "bytes"))
    listed, inside = select_values(dataset, paths).to_pylist(), select_values(dataset, inside).to_pylist()
    known = {path: _name_and_place(path) for path in {*listed}}
    names, marks = [known[path][0] for path in listed], [known[path][1] for path in listed]
    # Bytes are read only if a name is missing or repeated. If all files have different names, no bytes are read.
    number = Counter(names)
    read = [row for row, stored in enumerate(inside) if stored and (not names[row] or number[names[row]] > 1)]
    cells = undecoded(dataset.with_format(None).select_columns(["image"]))["image"]
    for row, cell in each_cell(cells, read):
        marks[row] = _digest(cell["bytes"])
    return _file_keys(names, marks)


def _file_keys(names: Sequence[str | None], marks: Sequence[str | None]) -> list[str | None]:
    marks_by_name: dict[str | None, set[str | None]] = {}
    for name, mark in zip(names, marks, strict=True):
        marks_by_name.setdefault(name, set()).add(mark)
    # A file name that stands for a single image is used as the id itself, so moving a folder changes no id.
    short = {name: _shorten(group) for name, group in marks_by_name.items() if name is not None and len(group) > 1}
    unique = marks_by_name.keys() - short.keys() - {None}
    pairs = zip(names, marks, strict=True)
    return [name if name in unique else short.get(name, {}).get(mark, mark) for name, mark in pairs]


def _shorten(marks: set[str | None]) -> dict[str | None, str]:
    # Each id begins at the folder that distinguishes paths with the same file name. It must not depend on the location
    # of the dataset, because ids are compared between machines and written into results.
    parts = {mark: Path(mark).parts for mark in marks if mark is not None}
    longest = max(map(len, parts.values()))
    for number in range(1, longest):
        tails = {mark: "/".join(names[-number:]) for mark, names in parts.items()}
        if len({*tails.values()}) == len(tails):
            return tails
    return {}


def image_key(value: Any, row: int) -> int:
    """Number of an image, the same in every process. A row without an id gets its own number below 0."""
    if has_no_id(value):
        return -1 - row
    if isinstance(value, bool) or not isinstance(value, Integral | str):
        raise ValueError(
            f"column {IMAGE_ID!r}, row {row}: found {value!r}, expected null, or a string or whole number that all "
            f"rows of one image share. Correct it in the file, or in Python: dataset.remove_columns({IMAGE_ID!r})."
        )
    return int.from_bytes(blake2b(str(value).encode(), digest_size=8).digest(), "big") >> 1


def shared_rows(values: Sequence[Any]) -> int:
    """Number of rows that share their `image_id` with another row."""
    number = Counter(image_key(value, row) for row, value in enumerate(values))
    if len(number) == 1 and len(values) > 1:
        raise ValueError(
            f"column {IMAGE_ID!r}: all {len(values):,} rows have the value {values[0]!r}, so no row would be a "
            "negative of another. The value may be in the dataset, come from the image files, or be written by a "
            f"recipe with captions: all. If the rows show different images, give each row its own value: {OWN_IDS} If "
            "they all show one image, use another dataset."
        )
    return sum(count for count in number.values() if count > 1)
