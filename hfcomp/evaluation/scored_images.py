"""The images that benchmarks score, for the guard against overlap with a training set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hfcomp.data.overlap import ScoredImages
from hfcomp.data.overlap.image_names import COCO
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.benchmarks.coco import COCO_TRAIN2014, COCO_VAL2014, COCO_VAL2017
from hfcomp.evaluation.cells import Crop, PooledImages, is_missing
from hfcomp.evaluation.engine import validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Benchmark, BenchmarkData, Folders

COCO_POOLS = (COCO_VAL2017, COCO_VAL2014, COCO_TRAIN2014)
_COCO_FILE = re.compile(r"0{6}\d{6}\.jpg")


def benchmark_images(
    benchmarks: Sequence[str], folders: Path | str | Mapping[str, Path | str] | None = None
) -> list[ScoredImages]:
    """The images of benchmarks, as `hfcomp.data.overlap.without_overlap` takes them.

    Args:
        benchmarks: names as on the command line.
        folders: local data: one folder with a sub-folder for each benchmark and set of images,
            or a folder for each by name. What is not there comes from the Hub.

    Raises:
        ValueError: for an unknown benchmark, or data that is not as expected.
        Unavailable: when the data of a benchmark is missing, with the reason and how to get it.
    """
    own = {name: Path(place) for name, place in folders.items()} if isinstance(folders, Mapping) else {}
    root = None if folders is None or isinstance(folders, Mapping) else Path(folders)
    places = Folders(root, own)
    chosen = find_benchmarks(benchmarks)
    return [images for one in chosen for images in scored_images(one, validate(one, load_items(one, places)))]


def scored_images(benchmark: Benchmark, items: BenchmarkData) -> list[ScoredImages]:
    """The columns of images that a benchmark scores; of a part of an image, the whole.

    Args:
        benchmark: gives the columns.
        items: of `hfcomp.evaluation.engine.validate`.
    """
    found = []
    for column in benchmark.protocol.images:
        cells: Sequence[Any] = items.images[column] if column in items.images else items.rows[column]
        ids = items.rows["image_id"][:] if column == "image" else None
        sources = items.rows["source"][:] if "source" in items.rows.column_names else None
        if items.texts_alone:  # rows without their image
            there = [row for row in range(len(cells)) if not is_missing(cells[row])]
            cells = PooledImages(cells, np.array(there, dtype=np.int64))
            ids, sources = ([part[row] for row in there] if part else None for part in (ids, sources))
        sources = sources or (_of_coco(benchmark, ids) if ids else None)
        name = benchmark.title if column == "image" else f"{benchmark.title}, {column}"
        found.append(ScoredImages(name, WholeImages(cells), ids, sources))
    return found


def _of_coco(benchmark: Benchmark, ids: Sequence[str]) -> list[str | None] | None:
    """The source of images that are joined from COCO's by the names of their files."""
    if not any(getattr(form, "pool", None) in COCO_POOLS for form in benchmark.data):
        return None
    return [COCO if _COCO_FILE.fullmatch(name) else None for name in ids]


class WholeImages(Sequence[Any]):
    """Cells with the whole image instead of a crop."""

    def __init__(self, cells: Sequence[Any]) -> None:
        self._cells = cells

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, index: Any) -> Any:
        cell = self._cells[index]
        return cell.cell if isinstance(cell, Crop) else cell
