"""DCI (Urbanek et al. 2024): retrieval by the whole description of an image, as LoTLIP and FLAIR ask."""

from __future__ import annotations

from functools import partial

from hfcomp.evaluation.benchmarks.readers.descriptions import dci, rejoined
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.sources import RawFiles
from hfcomp.evaluation.spec import GENERAL, Benchmark

DCI = Benchmark(
    name="dci",
    title="DCI full-text retrieval",
    suite=GENERAL,
    protocol=Retrieval(),
    data=(
        RawFiles(
            required_files=("splits.json", "annotations"),
            read=partial(dci, captions=rejoined),
            layout="splits.json and annotations/ of dci.tar.gz (github.com/facebookresearch/DCI) and a folder photos/",
        ),
    ),
    paper="Urbanek et al. 2024, arXiv:2312.08578; asked as in Wu et al. 2024, LoTLIP, arXiv:2410.05249",
    licence="CC BY-NC; images under SA-1B's licence",
    obtain="Get https://dl.fbaipublicfiles.com/densely_captioned_images/dci.tar.gz and, after accepting the licence "
    "of SA-1B, sa_000138.tar, whose images go into photos/.",
)
