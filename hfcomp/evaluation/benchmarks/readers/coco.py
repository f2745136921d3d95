"""COCO's photographs, which many benchmarks are about."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.entries import entries
from hfcomp.evaluation.sources import HubData, Pool, RawFiles

_OBTAIN = "Get http://images.cocodataset.org/zips/{0}.zip and pass its folder as --data {0}=FOLDER."

COCO_VAL2017 = Pool(
    name="val2017",
    repo="lmms-lab/COCO-Caption2017",
    split="val",
    key="question_id",  # "000000397133.jpg", as lmms-eval's users join it
    data_files="data/val-*",  # without the test split, which is eight times as large
    obtain=_OBTAIN.format("val2017"),
)
COCO_VAL2014 = Pool(name="val2014", obtain=_OBTAIN.format("val2014"))
COCO_TRAIN2014 = Pool(name="train2014", obtain=_OBTAIN.format("train2014"))


def coco_captions(folder: Path) -> list[dict[str, Any]]:
    """COCO's images, each with its captions in the order of `captions_val2017.json`."""
    file = folder / "captions_val2017.json"
    captions: dict[int, list[str]] = defaultdict(list)
    for _, one in entries(file, ("image_id", "caption"), inside="annotations"):
        captions[one["image_id"]].append(one["caption"])
    return [
        {"item": one["file_name"], "image": one["file_name"], "captions": captions[one["id"]]}
        for _, one in entries(file, ("id", "file_name"), inside="images")
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
