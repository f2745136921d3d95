"""COCO's photographs, which many benchmarks are about."""

from __future__ import annotations

from hfcomp.evaluation.sources import Pool

COCO_VAL2017 = Pool(
    name="val2017",
    repo="lmms-lab/COCO-Caption2017",
    split="val",
    key="question_id",  # "000000397133.jpg", as lmms-eval's users join it
    obtain="Get http://images.cocodataset.org/zips/val2017.zip and pass its folder as --data val2017=FOLDER.",
)
