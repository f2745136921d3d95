"""CountBench (Paiss et al. 2023): a caption that counts two to ten things, and the same with the other numbers."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.numbers import with_other_numbers
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

REPO = "nielsr/countbench"

COUNTBENCH = Benchmark(
    name="countbench",
    title="CountBench",
    suite=COMPOSITIONAL,
    protocol=CaptionChoice(),
    data=(
        HubData(
            REPO,
            {"image": "image", "caption": "text", "subset": "number"},
            {"all": {"split": "train"}},  # the only one; it is a test set
            reshape=with_other_numbers,
        ),
    ),
    averages=(Average("all items", pooled=True),),
    paper="Paiss et al. 2023, arXiv:2302.12066",
    licence="not stated; images of LAION-400M, each its own",
    obtain=f"Downloaded automatically from the Hub ({REPO}, 23 MB).",
)
