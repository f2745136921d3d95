"""The files of SugarCrepe and SugarCrepe++, one of JSON for each subset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.coco import COCO_VAL2017
from hfcomp.evaluation.benchmarks.readers.entries import entries
from hfcomp.evaluation.sources import with_images
from hfcomp.evaluation.spec import BenchmarkData, Folders, Unavailable

ADD, REPLACE, SWAP = ("add_att", "add_obj"), ("replace_att", "replace_obj", "replace_rel"), ("swap_att", "swap_obj")
SUBSETS, SUBSETS_PP = (*ADD, *REPLACE, *SWAP), (*REPLACE, *SWAP)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The items of SugarCrepe's seven files."""
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
    """The items of SugarCrepe++'s five files, whose ids count from 0 in each."""
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
    """Items with COCO's images where these are available; the texts alone are a task of their own."""
    try:
        return with_images(items, COCO_VAL2017, folders, beside)
    except Unavailable as error:
        named = items.rows.rename_column("image", "image_id")
        return replace(items, rows=named, images={"image": [None] * len(named)}, notes=(str(error),))
