"""Visual Genome's photographs, which many benchmarks are about, whole or cut to a box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hfcomp.evaluation.cells import Crop, MappedImages
from hfcomp.evaluation.sources import Pool, with_images
from hfcomp.evaluation.spec import BenchmarkData, Folders

NO_AREA = "box without an area"
BOX = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")
"""The keys of a box in ARO's files: left and upper edge, width and height, in pixels."""

VISUAL_GENOME = Pool(
    name="visual_genome",
    parts=("VG_100K", "VG_100K_2"),
    obtain="Get https://cs.stanford.edu/people/rak248/VG_100K_2/images.zip and images2.zip, and pass the folder with "
    "VG_100K and VG_100K_2 as --data visual_genome=FOLDER.",
)


def box_of(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """The box of an entry of a JSON file, as MTEB's copies of ARO have it; `None` where it has none."""
    return {key[-1]: entry[key] for key in BOX} if all(key in entry for key in BOX) else None


def cropped(items: BenchmarkData, folders: Folders | None = None, beside: Path | None = None) -> BenchmarkData:
    """Items with images cut to the column `box`, where a row has one; without an area it is left out, and counted."""
    given = items.rows["left_out"][:] if "left_out" in items.rows.column_names else [""] * len(items.rows)
    edges, reasons = [], []
    for box, reason in zip(items.rows["box"][:], given, strict=True):
        left, upper, width, height = (0, 0, 1, 1) if box is None else (int(box[side]) for side in "xywh")
        edges.append(None if box is None else (left, upper, left + width, upper + height))
        reasons.append(NO_AREA if min(width, height) < 1 else reason)
    cells = items.images["image"] if "image" in items.images else items.rows["image"]
    images = MappedImages(cells, lambda cell, row: cell if edges[row] is None else Crop(cell, edges[row]))
    rows = items.rows.remove_columns([name for name in ("box", "left_out") if name in items.rows.column_names])
    return replace(items, rows=rows.add_column("left_out", reasons), images={"image": images})


def both_photographs(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    """Items whose `image` and `negative_image` name files of Visual Genome."""
    return with_images(items, VISUAL_GENOME, folders, beside, ("image", "negative_image"))
