"""Linear probes on frozen features: ImageNet-1k, COCO's 80 object classes, and VTAB's 19 tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hfcomp.evaluation.benchmarks.classification.zero_shot_sets import (
    IMAGENET_LICENSE,
    IMAGENET_PAPER,
    IMAGENET_REVISION,
)
from hfcomp.evaluation.benchmarks.readers.pools import COCO_VAL2017
from hfcomp.evaluation.cells import pick_cells
from hfcomp.evaluation.probes.fits import fit_adamw10, fit_lbfgs
from hfcomp.evaluation.probes.linear import VTAB_IMAGES, vtab_1k
from hfcomp.evaluation.protocols.classification import Fit, Probe
from hfcomp.evaluation.sources import Adapted, HubData, Pool, with_images
from hfcomp.evaluation.spec import (
    GENERAL,
    Average,
    Benchmark,
    BenchmarkData,
    Data,
    Folders,
    Origin,
    Unavailable,
    with_columns,
)
from hfcomp.evaluation.webdataset import WebDatasetData
from hfcomp.reading import read_json

if TYPE_CHECKING:
    from datasets import Dataset

FITS: dict[str, Fit] = {"adamw10": fit_adamw10, "lbfgs": fit_lbfgs}

IMAGENET_PROBES = tuple(
    Benchmark(
        name=f"imagenet1k_probe_{name}",
        title=f"ImageNet-1k linear probe ({name})",
        suite=GENERAL,
        protocol=Probe(fit),
        data=(WebDatasetData("clip-benchmark/wds_imagenet1k", train=True, revision=IMAGENET_REVISION),),
        paper=IMAGENET_PAPER,
        license=IMAGENET_LICENSE,
        obtain=(
            "Downloaded automatically from the Hub, with all 1.28 million training images; or pass a copy of "
            "clip-benchmark/wds_imagenet1k as --data wds_imagenet1k=FOLDER."
        ),
        folder="wds_imagenet1k",
        in_suites=False,
    )
    for name, fit in FITS.items()
)


COCO_TRAIN2017 = Pool(
    name="train2017",
    obtain="Get http://images.cocodataset.org/zips/train2017.zip and pass its folder as --data train2017=FOLDER.",
)
NO_OBJECT = "no labeled object"


def labels_of_objects(rows: Dataset) -> Dataset:
    labels = [sorted(set(objects["category"])) for objects in rows["objects"]]
    return rows.remove_columns("objects").add_column("labels", labels)


@dataclass(frozen=True)
class InstanceFiles(Data):
    """COCO's own `instances_val2017.json` and `instances_train2017.json` with their image folders.

    Images without a labeled object are left out, as in the copy on the Hub.
    """

    layout: str = (
        "annotations/instances_val2017.json and annotations/instances_train2017.json of COCO, and its images in "
        "val2017/ and train2017/"
    )

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        """Reads the items if the folder contains both files, directly or in `annotations`."""
        place = folder / "annotations" if (folder / "annotations").is_dir() else folder
        files = [place / f"instances_{name}.json" for name in (COCO_VAL2017.name, COCO_TRAIN2017.name)]
        if not all(path.is_file() for path in files):
            return None
        test, train = (
            with_images(_labeled_images(path, folder), pool, folders, folder)
            for path, pool in zip(files, (COCO_VAL2017, COCO_TRAIN2017), strict=True)
        )
        # A test image may be left out, but a probe fitted on fewer images is a different probe.
        absent = [row for row, cell in enumerate(train.images["image"]) if cell is None]
        if absent:
            raise ValueError(
                f"{train.origin.pools[0].place}: {len(absent)} of {len(train.rows)} training images are missing, the "
                f"first is {train.rows[absent[0]]['image_id']}. A probe needs all of them."
            )
        return replace(test, train=train)

    def remote(self, folders: Folders) -> BenchmarkData:
        raise Unavailable(f"Not on the Hub in this form, which needs {self.layout}.", "")


def _labeled_images(path: Path, folder: Path) -> BenchmarkData:
    from datasets import Dataset

    content = read_json(path)
    # The 80 ids are between 1 and 90. Labels number them in that order, like the copy on the Hub.
    label = {number: at for at, number in enumerate(sorted(category["id"] for category in content["categories"]))}
    labels: dict[int, set[int]] = {}
    for box in content["annotations"]:
        labels.setdefault(box["image_id"], set()).add(label[box["category_id"]])
    rows = [
        {"image": image["file_name"], "image_id": str(image["id"]), "labels": sorted(labels[image["id"]])}
        for image in content["images"]
        if image["id"] in labels
    ]
    without = len(content["images"]) - len(rows)
    left_out = {NO_OBJECT: without} if without else {}
    return BenchmarkData(Dataset.from_list(rows), Origin(str(folder)), left_out=left_out)


COCO_LABELS = tuple(
    Benchmark(
        name=f"coco_labels_{name}",
        title=f"COCO labels linear probe ({name})",
        suite=GENERAL,
        protocol=Probe(fit),
        data=(
            HubData(
                "detection-datasets/coco",
                columns={"image": "image", "objects": "objects", "image_id": "image_id"},
                subsets={"all": {"split": "val"}},
                train={"split": "train"},
                reshape=labels_of_objects,
            ),
            InstanceFiles(),
        ),
        paper="Lin et al. 2014, arXiv:1405.0312",
        license="annotations CC BY 4.0; images by their own Flickr licenses",
        obtain=(
            "Downloaded automatically from the Hub; or pass a folder with COCO's annotations/, val2017/ and "
            "train2017/ as "
            "--data coco_labels=FOLDER."
        ),
        folder="coco_labels",
    )
    for name, fit in FITS.items()
)


# mteb pins these three revisions.
PCAM = "502695fe1a141108650e3c5b91c8b5e0ff84ed49"
CLEVR_COUNT = "8b5dce4d5393a04fb58b9261b22a881b02e379b1"
CLEVR_DISTANCE = "ec9c04224a95836ca0344a6000ec8d8bc8a6d4f2"
DSPRITES_BINS = 16
"""VTAB merges the 32 positions and 40 orientations, neighbors together; the copies on the Hub do not."""


def _tars(name: str, bins: int | None = None, revision: str | None = None) -> Data:
    return WebDatasetData(f"clip-benchmark/wds_vtab-{name}", train=True, bins=bins, revision=revision)


# No copy at clip-benchmark has SUN397's training images. This copy has VTAB's split, and mteb pins its revision.
SUN397 = HubData(
    "dpdl-benchmark/sun397",
    columns={"image": "image", "label": "label"},
    train={"split": "train"},
    revision="7e6af6a2499ad708618be868e1471eac0aca1168",
)

GROUPS: dict[str, dict[str, Data]] = {
    "natural": {
        "caltech101": _tars("caltech101"),
        "cifar100": _tars("cifar100"),
        "dtd": _tars("dtd"),
        "flowers": _tars("flowers"),
        "pets": _tars("pets"),
        "sun397": SUN397,
        "svhn": _tars("svhn"),
    },
    "specialized": {
        "eurosat": _tars("eurosat"),
        "pcam": _tars("pcam", revision=PCAM),
        "resisc45": _tars("resisc45"),
        "retinopathy": _tars("diabetic_retinopathy"),
    },
    "structured": {
        "clevr_count": _tars("clevr_count_all", revision=CLEVR_COUNT),
        "clevr_distance": _tars("clevr_closest_object_distance", revision=CLEVR_DISTANCE),
        "dmlab": _tars("dmlab"),
        "dsprites_location": _tars("dsprites_label_x_position", DSPRITES_BINS),
        "dsprites_orientation": _tars("dsprites_label_orientation", DSPRITES_BINS),
        "kitti": _tars("kitti_closest_vehicle_distance"),
        "smallnorb_azimuth": _tars("smallnorb_label_azimuth"),
        "smallnorb_elevation": _tars("smallnorb_label_elevation"),
    },
}
"""Data of each task, by VTAB's three groups."""

AVERAGES = (
    Average("mean of 19 tasks", tuple((task,) for group in GROUPS.values() for task in group)),
    *(
        Average(f"mean of {len(group)} {name} tasks", tuple((task,) for task in group))
        for name, group in GROUPS.items()
    ),
)
"""The means over tasks and groups of tasks that VTAB reports. Every task is a benchmark and a subset of VTAB."""


def _as_part(name: str, thousand: bool, items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    """Makes a task's items a subset of VTAB; with `thousand`, training uses a seeded sample of 1,000 images."""
    numbers = items.rows["item"][:] if "item" in items.rows.column_names else range(len(items.rows))
    # Tasks number their samples in the same way, but equal numbers must not count as the same image in intervals.
    own = {"subset": [name] * len(items.rows), "image_id": [f"{name}/{number}" for number in numbers]}
    train = items.train
    if thousand:
        if len(train.rows) < VTAB_IMAGES:
            raise ValueError(
                f"vtab1k_{name}: {items.origin.place} has {len(train.rows):,} training images, expected at least "
                f"{VTAB_IMAGES:,}. Use vtab_{name}, which uses all of them."
            )
        # The last fifth of the sample is held out, see `HELD_OUT`.
        chosen, _ = vtab_1k(len(train.rows))
        images = {column: pick_cells(cells, chosen) for column, cells in train.images.items()}
        train = replace(train, rows=train.rows.select(chosen), images=images)
    return replace(items, rows=with_columns(items.rows, own), train=train)


def _tasks(prefix: str, title: str, fit: Fit, thousand: bool) -> tuple[Benchmark, ...]:
    return tuple(
        Benchmark(
            name=f"{prefix}_{name}",
            title=title,
            suite=GENERAL,
            protocol=Probe(fit, top=(1,)),
            data=(Adapted(data, partial(_as_part, name, thousand)),),
            averages=AVERAGES,
            paper="Zhai et al. 2020, arXiv:1910.04867",
            license="not stated for the copies; that of each task's own data",
            obtain=(
                "Downloaded automatically from the Hub if the copy there has training images; or pass a folder in "
                "that "
                f"layout as --data {folder}=FOLDER."
            ),
            folder=folder,
            in_suites=not thousand,
        )
        for group in GROUPS.values()
        for name, data in group.items()
        for folder in [data.name if isinstance(data, WebDatasetData) else f"vtab_{name}"]
    )


HELD_OUT = vtab_1k(VTAB_IMAGES)[1]
VTAB = _tasks("vtab", "VTAB", fit_lbfgs, thousand=False)
VTAB_1K = _tasks("vtab1k", "VTAB-1k", partial(fit_lbfgs, held_out=HELD_OUT), thousand=True)
