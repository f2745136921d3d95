"""Winoground (Thrush et al. 2022): two images, two captions of the same words: which belongs to which?"""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from hfcomp.evaluation.benchmarks.readers.entries import line_entries
from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.sources import HubData, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

if TYPE_CHECKING:
    from datasets import Dataset

REPO = "facebook/winoground"
COMMIT = "b400e173549071916ad1b3d449293bc8d8b4b763"  # the one that MTEB reads
EXAMPLES, FOLDER, ARCHIVE = "examples.jsonl", "images", "images.zip"
COLUMNS = {
    "image": "image_0",
    "negative_image": "image_1",
    "caption": "caption_0",
    "negative_captions": "caption_1",
    "item": "id",
    "subset": "collapsed_tag",
}


def as_lists(rows: Dataset) -> Dataset:
    """Rows whose other caption is a list of one."""
    lists = [[text] for text in rows["negative_captions"]]
    return rows.remove_columns("negative_captions").add_column("negative_captions", lists)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The items of `examples.jsonl`, whose images are in a folder or an archive next to it."""
    places = _places(folder)
    found = []
    for _, entry in line_entries(folder / EXAMPLES, tuple(COLUMNS.values())):
        row = {ours: entry[theirs] for ours, theirs in COLUMNS.items()}
        images = {column: places.get(row[column]) for column in ("image", "negative_image")}
        found.append(row | images | {"negative_captions": [row["negative_captions"]]})
    return found


def _places(folder: Path) -> dict[str, str]:
    """Where each image is, by its name without the ending."""
    if (folder / FOLDER).is_dir():
        return {path.stem: str(path) for path in (folder / FOLDER).iterdir()}
    with zipfile.ZipFile(folder / ARCHIVE) as archive:
        names = archive.namelist()
    return {PurePosixPath(name).stem: f"zip://{name}::{folder / ARCHIVE}" for name in names}


_LAYOUT = f"{EXAMPLES} of {REPO}/data on the Hub with its images"

WINOGROUND = Benchmark(
    name="winoground",
    title="Winoground",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(),
    data=(
        HubData(REPO, COLUMNS, reshape=as_lists, revision=COMMIT),
        RawFiles((EXAMPLES, FOLDER), rows, f"{_LAYOUT} unpacked into {FOLDER}/"),
        RawFiles(
            required_files=(EXAMPLES, ARCHIVE),
            read=rows,
            layout=f"{_LAYOUT} as {ARCHIVE}",
            web=f"https://huggingface.co/datasets/{REPO}/resolve/{COMMIT}/data",
        ),
    ),
    # the paper's scores; its table by linguistic tag has the three subsets
    averages=(Average("all items", pooled=True),),
    paper="Thrush et al. 2022, arXiv:2204.03162",
    licence="its own, on the Hub (license_agreement.txt); the images are Getty's",
    obtain=f"Accept its terms at https://huggingface.co/datasets/{REPO} and run `hf auth login`.",
    gated=True,
)
