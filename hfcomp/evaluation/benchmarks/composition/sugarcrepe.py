"""SugarCrepe (Hsieh et al. 2023): a COCO caption against a fluent false one, and with a rewording in SugarCrepe++."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.files import entries
from hfcomp.evaluation.benchmarks.readers.pools import COCO_VAL2017
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice, TwoPositiveChoice
from hfcomp.evaluation.sources import Adapted, RawFiles, with_images
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark, BenchmarkData, Folders, Unavailable

ADD, REPLACE, SWAP = ("add_att", "add_obj"), ("replace_att", "replace_obj", "replace_rel"), ("swap_att", "swap_obj")
SUBSETS, SUBSETS_PP = (*ADD, *REPLACE, *SWAP), (*REPLACE, *SWAP)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [
        {
            "subset": subset,
            "item": name,
            "image": row["filename"],
            "caption": row["caption"],
            "negative_captions": [row["negative_caption"]],
        }
        for subset in SUBSETS
        for name, row in entries(folder / f"{subset}.json", ("filename", "caption", "negative_caption"))
    ]


def rows_pp(folder: Path) -> list[dict[str, Any]]:
    """Reads the items of SugarCrepe++'s five files, whose ids start at 0 in each."""
    keys = ("id", "filename", "caption", "caption2", "negative_caption")
    return [
        {
            "subset": subset,
            "item": str(row["id"]),
            "image": row["filename"],
            "caption": row["caption"],
            "positive_captions": [row["caption2"]],
            "negative_captions": [row["negative_caption"]],
        }
        for subset in SUBSETS_PP
        for _, row in entries(folder / f"{subset}.json", keys)
    ]


def with_photographs(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    """Adds COCO's images if they are available; the texts without images are a separate task."""
    try:
        # The names become `image_id` in either case, so intervals resample the same photographs.
        return with_images(items, COCO_VAL2017, folders, beside)
    except Unavailable as error:
        named = items.rows.rename_column("image", "image_id")
        return replace(items, rows=named, images={"image": [None] * len(named)}, notes=(str(error),))


SUGARCREPE = Benchmark(
    name="sugarcrepe",
    title="SugarCrepe",
    suite=COMPOSITIONAL,
    protocol=CaptionChoice(),
    data=(
        RawFiles(
            required_files=tuple(f"{subset}.json" for subset in SUBSETS),
            read=rows,
            layout="the seven JSON files of github.com/RAIVNLab/sugar-crepe and a folder val2017/ with COCO's images",
            pool=COCO_VAL2017,
            web="https://raw.githubusercontent.com/RAIVNLab/sugar-crepe/0047054b243992f0fad63d6f64f7544862daf846/data",
        ),
    ),
    averages=(
        Average("macro of 7 subsets", tuple((subset,) for subset in SUBSETS)),
        Average("macro of 3 groups", (ADD, REPLACE, SWAP)),
        Average("micro", (SUBSETS,), pooled=True),
        Average("REPLACE", (REPLACE,)),
        Average("SWAP", (SWAP,)),
        Average("ADD", (ADD,)),
    ),
    paper="Hsieh et al. 2023, arXiv:2306.14610",
    license="MIT; captions of COCO, CC BY 4.0",
    obtain="Downloaded automatically, with COCO val2017 from the Hub.",
)


# The authors' repository, github.com/Sri-Harsha/scpp and the Hub (Aman-J/SugarCrepe_pp at
# dea2a1b6f9e1069c609f676aa55ec61e9b65fb61) have the same five files, byte for byte.
FILES_PP = RawFiles(
    required_files=tuple(f"{subset}.json" for subset in SUBSETS_PP),
    read=rows_pp,
    layout="the five JSON files of github.com/Sri-Harsha/scpp (data/) and, for the image task, a folder val2017/",
    web="https://raw.githubusercontent.com/Sri-Harsha/scpp/c083bbf039a5ca215acaf25e7ee736d2ea6f3864/data",
)

SUGARCREPE_PP = Benchmark(
    name="sugarcrepe_pp",
    title="SugarCrepe++",
    suite=COMPOSITIONAL,
    protocol=TwoPositiveChoice(),
    data=(Adapted(FILES_PP, with_photographs),),
    averages=(
        Average("macro of 5 subsets", tuple((subset,) for subset in SUBSETS_PP)),
        Average("micro", (SUBSETS_PP,), pooled=True),
        Average("REPLACE", (SUBSETS_PP[:3],)),
        Average("SWAP", (SUBSETS_PP[3:],)),
    ),
    paper="Dumpala et al. 2024, arXiv:2406.11171",
    license="CC BY 4.0",
    obtain="Downloaded automatically, with COCO val2017 from the Hub; its text task needs no images.",
    version=2,
)
