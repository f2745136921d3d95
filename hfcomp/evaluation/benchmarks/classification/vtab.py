"""VTAB's 19 tasks (Zhai et al. 2020) by logistic regression on frozen features, on all training images or on 1,000."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from hfcomp.evaluation.cells import PooledImages
from hfcomp.evaluation.probes.fits import fit_lbfgs
from hfcomp.evaluation.probes.linear import VTAB_IMAGES, vtab_1k
from hfcomp.evaluation.protocols.classification import Fit, Probe
from hfcomp.evaluation.sources import Adapted, HubData
from hfcomp.evaluation.spec import GENERAL, Average, Benchmark, BenchmarkData, Data, Folders
from hfcomp.evaluation.webdataset import WebDatasetData

# the three revisions are pinned by mteb
PCAM = "502695fe1a141108650e3c5b91c8b5e0ff84ed49"
CLEVR_COUNT = "8b5dce4d5393a04fb58b9261b22a881b02e379b1"
CLEVR_DISTANCE = "ec9c04224a95836ca0344a6000ec8d8bc8a6d4f2"
DSPRITES_BINS = 16
"""VTAB merges the 32 positions and 40 orientations, neighbours together; the copies on the Hub do not."""


def _tars(name: str, bins: int | None = None, revision: str | None = None) -> Data:
    return WebDatasetData(f"clip-benchmark/wds_vtab-{name}", train=True, bins=bins, revision=revision)


# no copy at clip-benchmark has SUN397's training images; this one has VTAB's split and is pinned by mteb
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
"""The data of each task, by VTAB's three groups."""

AVERAGES = (
    Average("mean of 19 tasks", tuple((task,) for group in GROUPS.values() for task in group)),
    *(
        Average(f"mean of {len(group)} {name} tasks", tuple((task,) for task in group))
        for name, group in GROUPS.items()
    ),
)
"""The means over tasks and groups of tasks that VTAB reports; every task is a benchmark, and a subset of VTAB."""


def _as_part(name: str, thousand: bool, items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    """A task's items as a subset of VTAB; of the training images a seeded sample of 1,000 where that is asked for."""
    numbers = items.rows["item"][:] if "item" in items.rows.column_names else range(len(items.rows))
    own = {"subset": [name] * len(items.rows), "image_id": [f"{name}/{number}" for number in numbers]}
    rows = items.rows.remove_columns([column for column in own if column in items.rows.column_names])
    for column, values in own.items():
        rows = rows.add_column(column, values)
    train = items.train
    if thousand:
        if len(train.rows) < VTAB_IMAGES:
            raise ValueError(
                f"vtab1k_{name}: {items.origin.place} has {len(train.rows):,} training images, expected at least "
                f"{VTAB_IMAGES:,}. Use vtab_{name}, which uses all of them."
            )
        chosen, _ = vtab_1k(len(train.rows))
        images = {column: PooledImages(cells, chosen) for column, cells in train.images.items()}
        train = replace(train, rows=train.rows.select(chosen), images=images)
    return replace(items, rows=rows, train=train)


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
            licence="not stated for the copies; that of each task's own data",
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
