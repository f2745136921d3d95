"""COCO's photographs, which many benchmarks are about."""

from __future__ import annotations

from hfcomp.evaluation.sources import Pool

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
