"""Photographs with five captions each, in Karpathy's files, in BLIP's and in CLIP_benchmark's archives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.evaluation.benchmarks.readers.coco import COCO_VAL2014
from hfcomp.evaluation.benchmarks.readers.entries import entries
from hfcomp.evaluation.benchmarks.readers.flickr30k import FLICKR30K_IMAGES
from hfcomp.evaluation.sources import HubData, Pool, RawFiles

if TYPE_CHECKING:
    from datasets import Dataset

FLICKR8K_IMAGES = Pool(
    name="flickr8k-images",
    obtain="Ask for Flickr8k at https://shannon.cs.illinois.edu/DenotationGraph and pass the folder of its images "
    "as --data flickr8k-images=FOLDER.",
)


def karpathy(folder: Path, file: str) -> list[dict[str, Any]]:
    """The test images of one of Karpathy's `dataset_*.json`, each with its captions."""
    return [
        {
            "item": one["filename"],
            "image": one["filename"],
            "captions": [sentence["raw"] for sentence in one["sentences"]],
        }
        for _, one in entries(folder / file, ("filename", "split", "sentences"), inside="images")
        if one["split"] == "test"
    ]


def listed(folder: Path, file: str) -> list[dict[str, Any]]:
    """The images of one of BLIP's lists, which hold one split each."""
    named = [(Path(one["image"]).name, one) for _, one in entries(folder / file, ("image", "caption"))]
    return [{"item": name, "image": name, "captions": one["caption"]} for name, one in named]


def lines(rows: Dataset) -> Dataset:
    """Captions that stand in one text, a line each, as lists.

    Raises:
        ValueError: for a sample without a text.
    """
    for row in (row for row, text in enumerate(rows["captions"]) if text is None):
        raise ValueError(
            f"the sample {rows['item'][row]!r} of the archives has no .txt with its captions. Add it, or remove it."
        )
    captions = [text.split("\n") for text in rows["captions"]]
    return rows.remove_columns("captions").add_column("captions", captions)


def _forms(pool: Pool, karpathy_file: str, list_file: str, repo: str) -> tuple[RawFiles | HubData, ...]:
    def raw(file: str, read: Callable[[Path, str], list[dict[str, Any]]]) -> RawFiles:
        layout = f"{file} and a folder {pool.name}/ with the images"
        return RawFiles(required_files=(file,), read=partial(read, file=file), layout=layout, pool=pool)

    archives = HubData(
        repo,
        {"item": "__key__", "image": "jpg", "captions": "txt"},
        # nshards.txt is next to the archives
        {"all": {"split": "test", "data_files": {"test": "test/*.tar"}}},
        reshape=lines,
        files="*.tar",
    )
    return raw(karpathy_file, karpathy), raw(list_file, listed), archives


FLICKR8K_CAPTIONS = _forms(
    FLICKR8K_IMAGES, "dataset_flickr8k.json", "flickr8k_test.json", "clip-benchmark/wds_flickr8k"
)
FLICKR30K_CAPTIONS = _forms(
    FLICKR30K_IMAGES, "dataset_flickr30k.json", "flickr30k_test.json", "clip-benchmark/wds_flickr30k"
)
COCO_CAPTIONS = _forms(
    COCO_VAL2014, "dataset_coco.json", "coco_karpathy_test.json", "clip-benchmark/wds_mscoco_captions"
)
