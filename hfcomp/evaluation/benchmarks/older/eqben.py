"""EqBen (Wang et al. 2023): two similar video frames or rendered images, each with a caption."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hfcomp.evaluation.benchmarks.composition.image_pairs import BOTH
from hfcomp.evaluation.benchmarks.readers.files import entries
from hfcomp.evaluation.cells import map_cells
from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.sources import Adapted, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark, BenchmarkData, Folders

FULL, SUBSET = "ann_json_finegrained_random.json", "eqben_subset_10percent_final.json"
IMAGES = ("image", "image_jpg", "image_subset")
"""Folder names in the authors' archives: of the full set, of its light form, and of the subset."""
FIRST, SECOND = "c0i0", "c1i1"


def frame_files(file: str) -> Adapted:
    read = shuffled_rows if file == FULL else listed_rows
    layout = f"{file} of github.com/Wangt-CN/EqBen and a folder {' or '.join(IMAGES)}"
    return Adapted(RawFiles((file,), partial(read, file=file), layout), _with_frames)


def listed_rows(folder: Path, file: str) -> list[dict[str, Any]]:
    """Reads the groups of the subset, in its order. The frames of a folder form a cluster."""
    locate = partial(_locate, _root(folder))
    return [
        {
            "item": name,
            "image_id": entry["image0"].rpartition("/")[0] or name,
            "image": locate(entry["image0"]),
            "negative_image": locate(entry["image1"]),
            "caption": entry["caption0"],
            "negative_captions": [entry["caption1"]],
        }
        for name, entry in entries(folder / file, ("image0", "image1", "caption0", "caption1"))
    ]


def shuffled_rows(folder: Path, file: str) -> list[dict[str, Any]]:
    """Reassembles the groups of the full set. The frames of a folder form a cluster.

    The file contains the four combinations of each group at random positions.
    """
    groups: dict[tuple[str, int], dict[str, dict[str, Any]]] = defaultdict(dict)
    for _, entry in entries(folder / file, ("image", "caption", "private_info")):
        about = entry["private_info"]
        # The other two combinations pair an image with the other image's caption.
        if about["name"] in (FIRST, SECOND):
            groups[about["dataset"], about["sample_cnt"]][about["name"]] = entry
    locate, items = partial(_locate, _root(folder)), []
    for (subset, number), pair in sorted(groups.items()):
        if len(pair) < 2:
            raise ValueError(
                f"{folder / file}: the group {number} of {subset} has only {', '.join(pair)}, expected {FIRST} and "
                f"{SECOND}. Download the file again."
            )
        first, second = pair[FIRST], pair[SECOND]
        images = {"image": locate(first["image"]), "negative_image": locate(second["image"])}
        texts = {"caption": first["caption"], "negative_captions": [second["caption"]]}
        place = {"subset": subset, "item": str(number), "image_id": first["image"].rpartition("/")[0] or str(number)}
        items.append(place | images | texts)
    return items


def _with_frames(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    """Reads the frames as images, including YouCook2's `.npy` files."""
    images = {column: map_cells(items.rows[column][:], _frame) for column in BOTH}
    return replace(items, rows=items.rows.remove_columns(list(BOTH)), images=images)


def _frame(path: str, row: int) -> Any:
    """Returns the path, or the pixels of a frame that OpenCV stored with blue first."""
    return np.load(path)[:, :, ::-1] if path.endswith(".npy") else path


def _root(folder: Path) -> Path:
    return next((folder / name for name in IMAGES if (folder / name).is_dir()), folder)


def _locate(root: Path, name: str) -> str:
    """Returns the path of an image. The light form has JPEG instead of PNG files under the same names in the list."""
    path = root / name
    light = path.with_suffix(".jpg")
    return str(light if path.suffix == ".png" and not path.is_file() and light.is_file() else path)


KUBRIC = ("eqbenkubric_loc", "eqbenkubric_attr", "eqbenkubric_cnt")
OTHERS = ("eqbenag", "eqbenyoucook2", "eqbengebc", "eqbensd")
BY_SET = Average("mean of 5 sets", (KUBRIC, *((name,) for name in OTHERS)))

EQBEN = tuple(
    Benchmark(
        name=name,
        title=title,
        suite=COMPOSITIONAL,
        protocol=GroupMatch(),
        data=(frame_files(file),),
        averages=averages,
        paper="Wang et al. 2023, arXiv:2303.14465",
        license="Apache 2.0 (repository); each source of images its own",
        obtain=f"Get {file} and its images (github.com/Wangt-CN/EqBen); pass the folder as --data {name}=FOLDER.",
        in_suites=False,
    )
    for name, title, file, averages in (
        ("eqben", "EqBen", FULL, (BY_SET,)),
        ("eqben_subset", "EqBen (subset)", SUBSET, ()),
    )
)
