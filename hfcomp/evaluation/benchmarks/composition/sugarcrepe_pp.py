"""SugarCrepe++ (Dumpala et al. 2024): do two captions that mean the same both beat a third that does not?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.coco import COCO_VAL2017
from hfcomp.evaluation.benchmarks.readers.entries import entries
from hfcomp.evaluation.protocols.two_positive_choice import TwoPositiveChoice
from hfcomp.evaluation.sources import Adapted, RawFiles, with_images
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark, BenchmarkData, Folders, Unavailable

SUBSETS = ("replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj")
KEYS = ("id", "filename", "caption", "caption2", "negative_caption")


def rows(folder: Path) -> list[dict[str, Any]]:
    """The items of the authors' five JSON files, whose ids count from 0 in each."""
    return [
        {
            "subset": subset,
            "item": str(row["id"]),
            "image": row["filename"],
            "caption": row["caption"],
            "positive_captions": [row["caption2"]],
            "negative_captions": [row["negative_caption"]],
        }
        for subset in SUBSETS
        for _, row in entries(folder / f"{subset}.json", KEYS)
    ]


def with_photographs(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    """Items with COCO's images where these are available; the texts alone are a task of their own."""
    try:
        return with_images(items, COCO_VAL2017, folders, beside)
    except Unavailable as error:
        named = items.rows.rename_column("image", "image_id")
        return replace(items, rows=named, images={"image": [None] * len(named)}, notes=(str(error),))


# The five files are the same, byte for byte, in the authors' repository, at github.com/Sri-Harsha/scpp, and on the Hub
# as Aman-J/SugarCrepe_pp at dea2a1b6f9e1069c609f676aa55ec61e9b65fb61.
_FILES = RawFiles(
    required_files=tuple(f"{subset}.json" for subset in SUBSETS),
    read=rows,
    layout="the five JSON files of github.com/Sri-Harsha/scpp (data/) and, for the image task, a folder val2017/",
    web="https://raw.githubusercontent.com/Sri-Harsha/scpp/c083bbf039a5ca215acaf25e7ee736d2ea6f3864/data",
)

SUGARCREPE_PP = Benchmark(
    name="sugarcrepe_pp",
    title="SugarCrepe++",
    suite=COMPOSITIONAL,
    protocol=TwoPositiveChoice(),
    data=(Adapted(_FILES, with_photographs),),
    averages=(
        Average("macro of 5 subsets", tuple((subset,) for subset in SUBSETS)),
        Average("micro", (SUBSETS,), pooled=True),
        Average("REPLACE", (SUBSETS[:3],)),
        Average("SWAP", (SUBSETS[3:],)),
    ),
    paper="Dumpala et al. 2024, arXiv:2406.11171",
    licence="CC BY 4.0",
    obtain="Downloaded automatically, with COCO val2017 from the Hub; its text task needs no images.",
    version=2,
)
