"""VTAB's 19 tasks (Zhai et al. 2020) by logistic regression on frozen features, on all training images or on 1,000."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hfcomp.evaluation.cells import PooledImages
from hfcomp.evaluation.probes.lbfgs import fit_lbfgs
from hfcomp.evaluation.probes.linear import VTAB_IMAGES, vtab_1k
from hfcomp.evaluation.protocols.linear_probe import Fit, Probe
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import GENERAL, Benchmark, Data, Folders, Items
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

GROUPS: dict[str, dict[str, tuple[str, Data]]] = {
    "natural": {
        "caltech101": ("Caltech-101", _tars("caltech101")),
        "cifar100": ("CIFAR-100", _tars("cifar100")),
        "dtd": ("DTD", _tars("dtd")),
        "flowers": ("Flowers-102", _tars("flowers")),
        "pets": ("Pets", _tars("pets")),
        "sun397": ("SUN397", SUN397),
        "svhn": ("SVHN", _tars("svhn")),
    },
    "specialized": {
        "eurosat": ("EuroSAT", _tars("eurosat")),
        "pcam": ("Patch Camelyon", _tars("pcam", revision=PCAM)),
        "resisc45": ("RESISC45", _tars("resisc45")),
        "retinopathy": ("Diabetic Retinopathy", _tars("diabetic_retinopathy")),
    },
    "structured": {
        "clevr_count": ("CLEVR count", _tars("clevr_count_all", revision=CLEVR_COUNT)),
        "clevr_distance": ("CLEVR distance", _tars("clevr_closest_object_distance", revision=CLEVR_DISTANCE)),
        "dmlab": ("DMLab", _tars("dmlab")),
        "dsprites_location": ("dSprites location", _tars("dsprites_label_x_position", DSPRITES_BINS)),
        "dsprites_orientation": ("dSprites orientation", _tars("dsprites_label_orientation", DSPRITES_BINS)),
        "kitti": ("KITTI distance", _tars("kitti_closest_vehicle_distance")),
        "smallnorb_azimuth": ("smallNORB azimuth", _tars("smallnorb_label_azimuth")),
        "smallnorb_elevation": ("smallNORB elevation", _tars("smallnorb_label_elevation")),
    },
}
"""Title and data of each task, by VTAB's three groups."""


@dataclass(frozen=True)
class ThousandTraining:
    """Data of which 1,000 training images are kept, a seeded sample; see `hfcomp.evaluation.probes.linear.vtab_1k`.

    Attributes:
        data: of all training images.
    """

    data: Data

    @property
    def layout(self) -> str:
        """In words."""
        return self.data.layout

    def local(self, folder: Path, folders: Folders) -> Items | None:
        """The items, when the folder holds the data."""
        items = self.data.local(folder, folders)
        return None if items is None else self._kept(items)

    def remote(self, folders: Folders) -> Items:
        """The items from the Hub; all training images are fetched."""
        return self._kept(self.data.remote(folders))

    @staticmethod
    def _kept(items: Items) -> Items:
        chosen, _ = vtab_1k(len(items.train.rows))
        images = {name: PooledImages(cells, chosen) for name, cells in items.train.images.items()}
        return replace(items, train=replace(items.train, rows=items.train.rows.select(chosen), images=images))


def _tasks(prefix: str, title: str, fit: Fit, thousand: bool) -> tuple[Benchmark, ...]:
    return tuple(
        Benchmark(
            name=f"{prefix}_{name}",
            title=f"{title} {own}",
            suite=GENERAL,
            protocol=Probe(fit, top=(1,)),
            data=(ThousandTraining(data) if thousand else data,),
            paper="Zhai et al. 2020, arXiv:1910.04867",
            licence="not stated for the copies; that of each task's own data",
            obtain=(
                "It comes by itself from the Hub where the copy there has training images; or pass a folder in that "
                f"layout as --data {folder}=FOLDER."
            ),
            folder=folder,
        )
        for group in GROUPS.values()
        for name, (own, data) in group.items()
        for folder in [data.name if isinstance(data, WebDatasetData) else f"vtab_{name}"]
    )


HELD_OUT = vtab_1k(VTAB_IMAGES)[1]
VTAB = _tasks("vtab", "VTAB", fit_lbfgs, thousand=False)
VTAB_1K = _tasks("vtab1k", "VTAB-1k", partial(fit_lbfgs, held_out=HELD_OUT), thousand=True)
