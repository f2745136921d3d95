"""Which photograph is this? The column `image_id`, else the image's file; and what names of one photograph share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b, sha256
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.data.urls import shown

if TYPE_CHECKING:
    from datasets import Dataset

IMAGE_ID = "image_id"
OWN_IDS = f"dataset.map(lambda row, number: {{{IMAGE_ID!r}: str(number)}}, with_indices=True)."
"""How rows are made to count as distinct images, whether the column is there or not."""
_IMAGE_FILE = re.compile(r"(?:.*[/\\])?([^/\\]+)\.(?:jpe?g|png|webp|bmp|gif|tiff?)", re.IGNORECASE)


def photograph_key(name: str) -> str:
    """The same text for all names of one photograph: COCO's number, else the file name without folder and ending.

    `COCO_val2014_000000000285.jpg`, `000000000285` and `COCO 285` are `285`; other names without the ending of an
    image file stay as they are. A bare number counts as COCO's: two sources that number their images from 0 have equal
    names in any case.
    """
    from hfcomp.data.overlap.image_columns import COCO, photograph_name  # slow to import: with it comes `datasets`

    file = _IMAGE_FILE.fullmatch(name)
    stem = file[1] if file else name
    known = photograph_name(stem, COCO)
    return known[1] if known else stem


def photograph_ids(given: Sequence[Any] | None, cells: Iterable[Any]) -> list[str | None]:
    """The photograph of each row: its `image_id`, else its file's name, or its bytes where files of one name differ.

    A row without an `image_id` whose file another row gives an id has that id; `None` if neither an id nor an image is
    known. Cells are whole images, as `decode_image` takes them, and read only if a row has no id.
    """
    if given is not None and not any(map(has_no_id, given)):
        return [str(value) for value in given]
    return _with_given(given, _file_keys(*_names_and_marks(cells)))


def photographs(dataset: Dataset) -> list[str | None]:
    """The photograph of each row of a dataset, by the rule of [`photograph_ids`].

    Embedded images are read only if their names are missing or repeated; no image is decoded, no file opened.
    """
    given = dataset.with_format(None)[IMAGE_ID][:] if IMAGE_ID in dataset.column_names else None
    if given is not None and not any(map(has_no_id, given)):
        return [str(value) for value in given]
    return _with_given(given, _stored_keys(dataset))


def photographs_or_rows(dataset: Dataset) -> list[str]:
    """[`photographs`], with `row n` for row n if neither an id nor an image is known."""
    return [name or f"row {row}" for row, name in enumerate(photographs(dataset))]


def with_image_ids(dataset: Dataset, ids: Sequence[str | None] | None = None) -> Dataset:
    """The dataset with the photograph of each row, as `photographs` finds it, in its column `image_id`.

    One in which every row has an `image_id`, or no photograph is known, is returned unchanged.
    """
    ids = photographs(dataset) if ids is None else ids
    given = dataset.with_format(None)[IMAGE_ID][:] if IMAGE_ID in dataset.column_names else [None] * len(ids)
    if all(has_no_id(value) == (name is None) for value, name in zip(given, ids, strict=True)):
        return dataset
    from datasets import Value

    return with_column(dataset, IMAGE_ID, ids, Value("string"))


def with_shared_ids(dataset: Dataset) -> Dataset:
    """The dataset as [`with_image_ids`] returns it if two rows show one photograph, else as it is."""
    ids = photographs(dataset)
    there = Counter(name for name in ids if name is not None)
    return with_image_ids(dataset, ids) if there.total() > len(there) else dataset


def with_column(dataset: Dataset, name: str, values: Sequence[Any], feature: Any) -> Dataset:
    """The dataset with these values in a column, which is replaced if it exists; images are not copied."""
    from datasets import Dataset

    if name in dataset.column_names:
        dataset = dataset.remove_columns(name)
    if dataset._indices is None:
        return dataset.add_column(name, list(values), feature=feature)
    # `add_column` would write out the rows of a selection, with their images. So the values are put below the
    # selection, at the places of the stored rows. Rows that are not selected get no value.
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
    """The photograph of a row of a stream, whose other rows are not known: its `image_id`, else its bytes or place."""
    given = row.get(IMAGE_ID)
    if not has_no_id(given):
        return given
    (_,), (mark,) = _names_and_marks([row.get("image")])
    return mark


def has_no_id(value: Any) -> bool:
    # The last test is for NaN, which pandas writes for a missing number.
    return value is None or (isinstance(value, str) and not value.strip()) or bool(value != value)


def _with_given(given: Sequence[Any] | None, files: Sequence[str | None]) -> list[str | None]:
    given = [None] * len(files) if given is None else given
    # A row that has an id lends it to the rows without one that show the same file.
    known: dict[str | None, str] = {}
    for value, file in zip(given, files, strict=True):
        if file is not None and not has_no_id(value):
            known.setdefault(file, str(value))
    return [known.get(file, file) if has_no_id(one) else str(one) for one, file in zip(given, files, strict=True)]


def _names_and_marks(cells: Iterable[Any]) -> tuple[list[str | None], list[str | None]]:
    """The name of each image's file, and what tells it from others of that name: its bytes, else its place."""
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
    if shown(path) != path:  # a signature is not written into results
        return (_digest(path.encode()),) * 2
    name, _, archive = path.partition("::")  # as in zip://a.jpg::set.zip
    return Path(name).name, _digest(path.encode()) if archive else path


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def _stored_keys(dataset: Dataset) -> list[str | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    from hfcomp.data.columns import chosen_rows
    from hfcomp.data.loading import undecoded
    from hfcomp.data.overlap.image_columns import each_cell

    if "image" not in dataset.column_names:
        return [None] * len(dataset)
    stored = dataset.data.column("image")
    if not pa.types.is_struct(stored.type):
        return _file_keys(*_names_and_marks(dataset.with_format(None)["image"]))
    # One field at a time: whole rows would be read with their bytes.
    paths, inside = pc.struct_field(stored, "path"), pc.is_valid(pc.struct_field(stored, "bytes"))
    listed, inside = chosen_rows(dataset, paths).to_pylist(), chosen_rows(dataset, inside).to_pylist()
    known = {path: _name_and_place(path) for path in {*listed}}
    names, marks = [known[path][0] for path in listed], [known[path][1] for path in listed]
    # Bytes are read only for a name that is missing or repeated. If all files of a set have different names, none is
    # read.
    number = Counter(names)
    read = [row for row, there in enumerate(inside) if there and (not names[row] or number[names[row]] > 1)]
    cells = undecoded(dataset.with_format(None).select_columns(["image"]))["image"]
    for row, cell in each_cell(cells, read):
        marks[row] = _digest(cell["bytes"])
    return _file_keys(names, marks)


def _file_keys(names: Sequence[str | None], marks: Sequence[str | None]) -> list[str | None]:
    of_name: dict[str | None, set[str | None]] = {}
    for name, mark in zip(names, marks, strict=True):
        of_name.setdefault(name, set()).add(mark)
    # A file name that stands for a single image is an id by itself, so moving a folder changes no id.
    short = {name: _shortened(found) for name, found in of_name.items() if name is not None and len(found) > 1}
    alone = of_name.keys() - short.keys() - {None}
    return [
        name if name in alone else short.get(name, {}).get(mark, mark) for name, mark in zip(names, marks, strict=True)
    ]


def _shortened(marks: set[str | None]) -> dict[str | None, str]:
    # Each id begins at the folder that tells the places of a name apart. It must not depend on where a set lies,
    # because ids are compared between machines and written into results.
    parts = {mark: Path(mark).parts for mark in marks if mark is not None}
    most = max(map(len, parts.values()))
    for number in range(1, most):
        tails = {mark: "/".join(one[-number:]) for mark, one in parts.items()}
        if len({*tails.values()}) == len(tails):
            return tails
    return {}


def image_key(value: Any, row: int) -> int:
    """A number for an image, the same in every process; below 0 for a row without an id, which no other row has."""
    if has_no_id(value):
        return -1 - row
    if isinstance(value, bool) or not isinstance(value, Integral | str):
        raise ValueError(
            f"column {IMAGE_ID!r}, row {row}: found {value!r}, expected a text or a whole number, equal for rows of "
            f"one image, or null. Correct it in the file, or in Python: dataset.remove_columns({IMAGE_ID!r})."
        )
    return int.from_bytes(blake2b(str(value).encode(), digest_size=8).digest(), "big") >> 1


def shared_rows(values: Sequence[Any]) -> int:
    """Number of rows with an `image_id` that another row has too."""
    number = Counter(image_key(value, row) for row, value in enumerate(values))
    if len(number) == 1 and len(values) > 1:
        raise ValueError(
            f"column {IMAGE_ID!r}: all {len(values):,} rows have the value {values[0]!r}, so no row would be a "
            "negative of another. The column is given, or made from the images' files; a recipe with captions: all "
            f"fills the column too. If the rows show different images, give each its own value: {OWN_IDS} Otherwise "
            "use a dataset with several images."
        )
    return sum(count for count in number.values() if count > 1)
