"""Two images and a caption of each: as columns, as lines in pairs, or as a file of examples beside its images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from hfcomp.evaluation.benchmarks.readers.entries import line_entries
from hfcomp.evaluation.benchmarks.readers.zipped import ZippedFiles, open_archive
from hfcomp.evaluation.sources import RawFiles

if TYPE_CHECKING:
    from datasets import Dataset

EXAMPLES, FOLDER, ARCHIVE = "examples.jsonl", "images", "images.zip"
BOTH = ("image", "negative_image")


def columns_from(first: int, **more: str) -> dict[str, str]:
    """The columns `image_0`, `image_1`, `caption_0` and `caption_1`, or from another number on, and `more`."""
    texts = {"caption": f"caption_{first}", "negative_captions": f"caption_{first + 1}"}
    return {"image": f"image_{first}", "negative_image": f"image_{first + 1}", **texts, **more}


def one_negative(rows: Dataset) -> Dataset:
    """Rows whose other caption is a list of one."""
    lists = [[text] for text in rows["negative_captions"]]
    return rows.remove_columns("negative_captions").add_column("negative_captions", lists)


def pair_rows(
    subsets: Sequence[str], images: Sequence[str], captions: Sequence[str], place: str
) -> list[dict[str, Any]]:
    """Rows of two consecutive lines each.

    Args:
        subsets: of each line.
        images: of each line.
        captions: of each line.
        place: where the lines are from, for errors.

    Raises:
        ValueError: for a line without a partner, or whose partner is of another subset.
    """
    if len(subsets) % 2:
        raise ValueError(f"{place}: found {len(subsets)} lines, expected pairs. Download the file again.")
    for number in range(0, len(subsets), 2):
        if subsets[number] != subsets[number + 1]:
            raise ValueError(
                f"{place}: entries {number} and {number + 1} should be a pair, but are of {subsets[number]!r} and "
                f"{subsets[number + 1]!r}. Download the file again."
            )
    return [
        {
            "subset": subsets[number],
            "image": images[number],
            "negative_image": images[number + 1],
            "caption": captions[number],
            "negative_captions": [captions[number + 1]],
        }
        for number in range(0, len(subsets), 2)
    ]


def example_rows(
    folder: Path, columns: Mapping[str, str], photograph: Callable[[str], str] | None = None
) -> list[dict[str, Any]]:
    """The items of `examples.jsonl`, whose images are in a folder or an archive next to it, by their stems.

    Args:
        folder: that holds them.
        columns: contract name to the key in the file.
        photograph: what items of one name are made from, by the name of the first image; by default the image.
    """
    places = _places(folder)
    found = []
    for _, entry in line_entries(folder / EXAMPLES, tuple(columns.values())):
        row = {ours: entry[theirs] for ours, theirs in columns.items()}
        own = {} if photograph is None else {"image_id": photograph(row["image"])}
        images = {column: places.get(row[column]) for column in BOTH}
        found.append(row | images | own | {"negative_captions": [row["negative_captions"]]})
    return found


def _places(folder: Path) -> dict[str, str]:
    if (folder / FOLDER).is_dir():
        return {path.stem: str(path) for path in (folder / FOLDER).iterdir()}
    with open_archive(folder / ARCHIVE) as archive:
        return {PurePosixPath(name).stem: name for name in archive.namelist()}


def example_files(
    layout: str,
    columns: Mapping[str, str],
    photograph: Callable[[str], str] | None = None,
    **source: str,
) -> tuple[RawFiles, RawFiles]:
    """`examples.jsonl` beside its images, in a folder or an archive; `source` is where `RawFiles` finds the latter."""
    read = partial(example_rows, columns=columns, photograph=photograph)
    return (
        RawFiles((EXAMPLES, FOLDER), read, f"{layout} unpacked into {FOLDER}/"),
        ZippedFiles((EXAMPLES, ARCHIVE), read, f"{layout} as {ARCHIVE}", archive=ARCHIVE, images=BOTH, **source),
    )
