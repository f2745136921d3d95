"""Image sets that several benchmarks share: COCO, Visual Genome and SWiG."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.files import entries
from hfcomp.evaluation.cells import Crop, LazyCells, map_cells
from hfcomp.evaluation.sources import HubData, Pool, RawFiles, with_images
from hfcomp.evaluation.spec import BenchmarkData, Folders, Unavailable, with_columns

SWIG = Pool("swig", obtain="Get images_512 of github.com/allenai/swig and pass the folder as --data swig=FOLDER.")


def with_images_of(
    items: BenchmarkData, pools: Sequence[Pool], names: Sequence[str], folders: Folders, beside: Path | None
) -> BenchmarkData:
    """Adds the images of every available pool. Items of other pools are left out, with the pool's name as reason.

    `names` are the pools of the rows' files.

    Raises:
        Unavailable: If no pool is available.
    """
    rows = items.rows
    files = rows["image"][:]
    reasons = rows["left_out"][:] if "left_out" in rows.column_names else [""] * len(files)
    places: list[tuple[Sequence[Any], int] | None] = [None] * len(files)
    origins, missing = [], []
    for pool in pools:
        own = [row for row, name in enumerate(names) if name == pool.name]
        try:
            cells, origin = pool.cells([files[row] for row in own], folders, beside)
        except Unavailable as error:
            missing.append(error)
            for row in own:
                reasons[row] = reasons[row] or f"no images of {pool.name}"
            continue
        origins.append(origin)
        for place, row in enumerate(own):
            # Only the place is kept, because the images of all pools would not fit into memory.
            places[row] = (cells, place)

    def read(row: int) -> Any:
        place = places[row]
        return None if place is None else place[0][place[1]]

    if not origins:
        raise Unavailable(" ".join(error.reason for error in missing), " ".join(error.how_to_fix for error in missing))
    return replace(
        items,
        rows=with_columns(rows, {"left_out": reasons}, drop=("image",)),
        origin=replace(items.origin, pools=tuple(origins)),
        images={"image": LazyCells(len(places), read)},
        notes=tuple(map(str, missing)),
    )


_OBTAIN = "Get http://images.cocodataset.org/zips/{0}.zip and pass its folder as --data {0}=FOLDER."

COCO_VAL2017 = Pool(
    name="val2017",
    repo="lmms-lab/COCO-Caption2017",
    split="val",
    key="question_id",  # "000000397133.jpg", by which lmms-eval joins images
    data_files="data/val-*",  # without the test split, which is eight times as large
    obtain=_OBTAIN.format("val2017"),
)
COCO_VAL2014 = Pool(name="val2014", obtain=_OBTAIN.format("val2014"))
COCO_TRAIN2014 = Pool(name="train2014", obtain=_OBTAIN.format("train2014"))


def coco_captions(folder: Path) -> list[dict[str, Any]]:
    """Reads COCO's images, each with its captions in the order of `captions_val2017.json`."""
    file = folder / "captions_val2017.json"
    captions: dict[int, list[str]] = defaultdict(list)
    for _, entry in entries(file, ("image_id", "caption"), inside="annotations"):
        captions[entry["image_id"]].append(entry["caption"])
    return [
        {"item": image["file_name"], "image": image["file_name"], "captions": captions[image["id"]]}
        for _, image in entries(file, ("id", "file_name"), inside="images")
    ]


COCO2017_CAPTIONS = (
    RawFiles(
        required_files=("captions_val2017.json",),
        read=coco_captions,
        layout="captions_val2017.json of COCO's annotations and a folder val2017/ with its images",
        pool=COCO_VAL2017,
    ),
    HubData(
        "lmms-lab/COCO-Caption2017",
        {"image": "image", "captions": "answer", "item": "question_id"},
        {"all": {"split": "val", "data_files": {"val": "data/val-*"}}},
    ),
)
"""The 5,000 images of val2017 with all their captions; none of them is in train2017."""


NO_AREA = "box without an area"
BOX = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")
"""Keys of a box in ARO's files: left and upper edge, width and height in pixels."""

VISUAL_GENOME = Pool(
    name="visual_genome",
    parts=("VG_100K", "VG_100K_2"),
    obtain="Get https://cs.stanford.edu/people/rak248/VG_100K_2/images.zip and images2.zip, and pass the folder with "
    "VG_100K and VG_100K_2 as --data visual_genome=FOLDER.",
)


def box_of(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the box of a JSON entry in the format of MTEB's copies of ARO; `None` if it has none."""
    return {key[-1]: entry[key] for key in BOX} if all(key in entry for key in BOX) else None


def crop_to_boxes(items: BenchmarkData, folders: Folders | None = None, beside: Path | None = None) -> BenchmarkData:
    """Crops images to the column `box`, if a row has one. Boxes without an area are left out and counted."""
    # A reader's reason is kept, unless the box has no area.
    given = items.rows["left_out"][:] if "left_out" in items.rows.column_names else [""] * len(items.rows)
    edges, reasons = [], []
    for box, reason in zip(items.rows["box"][:], given, strict=True):
        # A row without a box keeps the whole image; any box with an area works as a placeholder.
        left, upper, width, height = (0, 0, 1, 1) if box is None else (int(box[side]) for side in "xywh")
        edges.append(None if box is None else (left, upper, left + width, upper + height))
        reasons.append(NO_AREA if min(width, height) < 1 else reason)
    cells = items.images["image"] if "image" in items.images else items.rows["image"]
    images = map_cells(cells, lambda cell, row: cell if edges[row] is None else Crop(cell, edges[row]))
    rows = with_columns(items.rows, {"left_out": reasons}, drop=("box",))
    return replace(items, rows=rows, images={"image": images})


def both_photographs(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    return with_images(items, VISUAL_GENOME, folders, beside, ("image", "negative_image"))
