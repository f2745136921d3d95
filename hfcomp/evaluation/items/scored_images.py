"""The images that benchmarks score, for the guard against overlap with a training set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hfcomp.data.overlap import ScoredImages
from hfcomp.data.overlap.image_columns import COCO
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.benchmarks.readers.pools import COCO_TRAIN2014, COCO_VAL2014, COCO_VAL2017
from hfcomp.evaluation.cells import Altered, is_missing, map_cells, pick_cells
from hfcomp.evaluation.loaded import Loaded, load_benchmark
from hfcomp.evaluation.spec import Benchmark, data_folders

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
    places = data_folders(folders, option="folders")
    return [images for one in find_benchmarks(benchmarks) for images in scored_images(load_benchmark(one, places))]


def scored_images(loaded: Loaded) -> list[ScoredImages]:
    """The columns of images that a benchmark scores; of a part of an image, the whole."""
    benchmark, items, found = loaded.benchmark, loaded.data, []
    for column in benchmark.protocol.images:
        cells: Sequence[Any] = items.images[column] if column in items.images else items.rows[column]
        # `image_id` names the photograph in the column `image` only.
        ids = items.rows["image_id"][:] if column == "image" else None
        sources = items.rows["source"][:] if "source" in items.rows.column_names else None
        if items.texts_alone:  # rows without their image
            there = [row for row in range(len(cells)) if not is_missing(cells[row])]
            cells = pick_cells(cells, np.array(there, dtype=np.int64))
            ids, sources = ([part[row] for row in there] if part else None for part in (ids, sources))
        sources = sources or (_of_coco(benchmark, ids) if ids else None)
        name = benchmark.title if column == "image" else f"{benchmark.title}, {column}"
        # A training set has whole photographs.
        whole = map_cells(cells, lambda cell, row: cell.cell if isinstance(cell, Altered) else cell)
        found.append(ScoredImages(name, whole, ids, sources))
    return found


def _of_coco(benchmark: Benchmark, ids: Sequence[str]) -> list[str | None] | None:
    """The source of images that are joined from COCO's by the names of their files."""
    if not any(getattr(form, "pool", None) in COCO_POOLS for form in benchmark.data):
        return None
    return [COCO if _COCO_FILE.fullmatch(name) else None for name in ids]
