"""ColorSwap (Burapacheep et al. 2024): two captions of the same words with the colours swapped, an image of each."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.groups import columns_from, one_negative
from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark

REPO = "stanfordnlp/colorswap"

COLORSWAP = Benchmark(
    name="colorswap",
    title="ColorSwap",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(),
    data=(HubData(REPO, columns_from(1, item="id"), reshape=one_negative),),
    paper="Burapacheep et al. 2024, arXiv:2402.04492",
    licence="MIT",
    obtain=f"Accept its terms at https://huggingface.co/datasets/{REPO} and run `hf auth login`.",
    gated=True,
)
