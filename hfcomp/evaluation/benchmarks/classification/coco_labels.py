"""Which of COCO's 80 kinds of objects an image shows, by linear probes on frozen features: mAP on COCO 2017."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hfcomp.evaluation.benchmarks.classification.linear_probes import FITS
from hfcomp.evaluation.benchmarks.readers.coco import COCO_VAL2017
from hfcomp.evaluation.protocols.classification import Probe
from hfcomp.evaluation.sources import HubData, Pool, with_images
from hfcomp.evaluation.spec import GENERAL, Benchmark, BenchmarkData, Folders, Origin, Unavailable
from hfcomp.reading import read_json

if TYPE_CHECKING:
    from datasets import Dataset

COCO_TRAIN2017 = Pool(
    name="train2017",
    obtain="Get http://images.cocodataset.org/zips/train2017.zip and pass its folder as --data train2017=FOLDER.",
)
NO_OBJECT = "no labelled object"


def labels_of_objects(rows: Dataset) -> Dataset:
    """Rows whose column `objects` has become `labels`, the distinct categories in it."""
    found = [sorted(set(objects["category"])) for objects in rows["objects"]]
    return rows.remove_columns("objects").add_column("labels", found)


@dataclass(frozen=True)
class InstanceFiles:
    """COCO's own `instances_val2017.json` and `instances_train2017.json` with the folders of their images.

    Images without a labelled object are left out, as they are in the copy on the Hub.
    """

    layout: str = (
        "annotations/instances_val2017.json and annotations/instances_train2017.json of COCO, and its images in "
        "val2017/ and train2017/"
    )

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        """The items, when the folder holds both files, in `annotations` or next to it."""
        place = folder / "annotations" if (folder / "annotations").is_dir() else folder
        files = [place / f"instances_{name}.json" for name in (COCO_VAL2017.name, COCO_TRAIN2017.name)]
        if not all(path.is_file() for path in files):
            return None
        test, train = (
            with_images(_labelled_images(path, folder), pool, folders, folder)
            for path, pool in zip(files, (COCO_VAL2017, COCO_TRAIN2017), strict=True)
        )
        absent = [row for row, cell in enumerate(train.images["image"]) if cell is None]
        if absent:
            raise ValueError(
                f"{train.origin.pools[0].place}: {len(absent)} of {len(train.rows)} training images are missing, the "
                f"first is that of {train.rows[absent[0]]['image_id']}. A probe needs all of them."
            )
        return replace(test, train=train)

    def remote(self, folders: Folders) -> BenchmarkData:
        """Never: the files are not on the Hub."""
        raise Unavailable(f"Not on the Hub in this form: it takes {self.layout}.", "")


def _labelled_images(path: Path, folder: Path) -> BenchmarkData:
    from datasets import Dataset

    content = read_json(path)
    # the 80 ids are within 1 to 90; labels count them in that order, as the Hub's copy does
    label = {number: at for at, number in enumerate(sorted(one["id"] for one in content["categories"]))}
    of_image: dict[int, set[int]] = {}
    for one in content["annotations"]:
        of_image.setdefault(one["image_id"], set()).add(label[one["category_id"]])
    rows = [
        {"image": one["file_name"], "image_id": str(one["id"]), "labels": sorted(of_image[one["id"]])}
        for one in content["images"]
        if one["id"] in of_image
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
        licence="annotations CC BY 4.0; images by their own Flickr licences",
        obtain=(
            "Downloaded automatically from the Hub; or pass a folder with COCO's annotations/, val2017/ and "
            "train2017/ as "
            "--data coco_labels=FOLDER."
        ),
        folder="coco_labels",
    )
    for name, fit in FITS.items()
)
