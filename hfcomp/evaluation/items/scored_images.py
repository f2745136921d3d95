"""Images that benchmarks score, for the check of overlap with a training set."""

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
    """Returns the images of benchmarks, as `hfcomp.data.overlap.without_overlap` takes them.

    Args:
        benchmarks: Names as on the command line.
        folders: Local data: one folder with a subfolder per benchmark and image set, or folders by name. Missing data
            comes from the Hub.

    Raises:
        ValueError: If a benchmark is unknown, or its data is invalid.
        Unavailable: If a benchmark's data is missing; has the reason and how to get it.
    """
    places = data_folders(folders, option="folders")
    loaded = (load_benchmark(benchmark, places) for benchmark in find_benchmarks(benchmarks))
    return [images for benchmark in loaded for images in scored_images(benchmark)]


def scored_images(loaded: Loaded) -> list[ScoredImages]:
    """Returns the image columns that a benchmark scores, with whole images instead of crops."""
    benchmark, items, columns = loaded.benchmark, loaded.data, []
    for column in benchmark.protocol.images:
        cells: Sequence[Any] = items.images[column] if column in items.images else items.rows[column]
        # `image_id` identifies only the photograph in the column `image`.
        ids = items.rows["image_id"][:] if column == "image" else None
        sources = items.rows["source"][:] if "source" in items.rows.column_names else None
        if items.texts_alone:  # rows without their image
            present = [row for row in range(len(cells)) if not is_missing(cells[row])]
            cells = pick_cells(cells, np.array(present, dtype=np.int64))
            ids, sources = ([part[row] for row in present] if part else None for part in (ids, sources))
        sources = sources or (_coco_sources(benchmark, ids) if ids else None)
        name = benchmark.title if column == "image" else f"{benchmark.title}, {column}"
        # A training set contains whole photographs.
        whole = map_cells(cells, lambda cell, row: cell.cell if isinstance(cell, Altered) else cell)
        columns.append(ScoredImages(name, whole, ids, sources))
    return columns


def _coco_sources(benchmark: Benchmark, ids: Sequence[str]) -> list[str | None] | None:
    """Returns the source of images that are joined from COCO by file name."""
    if not any(getattr(form, "pool", None) in COCO_POOLS for form in benchmark.data):
        return None
    return [COCO if _COCO_FILE.fullmatch(name) else None for name in ids]
