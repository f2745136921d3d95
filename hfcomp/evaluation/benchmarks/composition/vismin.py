"""VisMin (Awal et al. 2024): an image and the same with one object, attribute, number or place changed."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.groups import one_negative
from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

REPO = "mair-lab/vismin-bench"
COLUMNS = {
    "image": "image_0",
    "caption": "text_0",
    "negative_image": "image_1",
    "negative_captions": "text_1",
    "subset": "category",
}

VISMIN = Benchmark(
    name="vismin",
    title="VisMin",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(),
    data=(HubData(REPO, COLUMNS, reshape=one_negative),),
    averages=(Average("macro of categories"), Average("all items", pooled=True)),
    paper="Awal et al. 2024, arXiv:2407.16772",
    licence="CC BY 4.0",
    obtain=f"It comes from the Hub ({REPO}, 1.5 GB).",
)
