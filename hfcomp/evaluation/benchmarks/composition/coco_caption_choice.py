"""Choosing the image that belongs to a caption of COCO (CLEAR GLASS, Table 3, column COCO)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hfcomp.evaluation.benchmarks.retrieval.retrieval import COCO2017_RETRIEVAL
from hfcomp.evaluation.protocols.level_choice import LevelChoice
from hfcomp.evaluation.sources import Adapted
from hfcomp.evaluation.spec import BenchmarkData, Folders


def first_captions(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    """The same images, each with its first caption, as in the released evaluation."""
    texts = [captions[0] if captions else None for captions in items.rows["captions"][:]]
    return replace(items, rows=items.rows.remove_columns("captions").add_column("caption", texts))


COCO_CAPTION_CHOICE = replace(
    COCO2017_RETRIEVAL,
    name="coco_caption_choice",
    title="COCO caption choice",
    protocol=LevelChoice(texts=("caption",), candidates=(2, 10)),
    data=tuple(Adapted(form, first_captions) for form in COCO2017_RETRIEVAL.data),
    paper="Chen et al. 2015, arXiv:1504.00325; asked as in Suissa et al., CLEAR GLASS, Table 3",
    folder="coco2017_retrieval",
    in_suites=False,
    version=1,
)
