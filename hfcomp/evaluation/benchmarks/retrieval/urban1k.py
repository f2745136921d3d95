"""Urban1k (Zhang et al. 2024, Long-CLIP): retrieval by whole captions of a hundred words, of similar street scenes."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.sets.urban1k import ARCHIVE, CAPTIONS, IMAGES, packed, unpacked
from hfcomp.evaluation.benchmarks.readers.zipped import ZippedFiles
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.sources import RawFiles
from hfcomp.evaluation.spec import GENERAL, Benchmark

REPO = "BeichenZhang/Urban1k"

URBAN1K = Benchmark(
    name="urban1k",
    title="Urban1k full-text retrieval",
    suite=GENERAL,
    protocol=Retrieval(),
    data=(
        RawFiles((IMAGES, CAPTIONS), unpacked, f"{ARCHIVE} of {REPO} on the Hub unpacked into {IMAGES}/, {CAPTIONS}/"),
        ZippedFiles(
            (ARCHIVE,),
            packed,
            f"{ARCHIVE} as it is",
            archive=ARCHIVE,
            repo=REPO,
            revision="953fcf1d1a3bde031d9424a91a0154e594b5a586",  # pinned by a public reader
        ),
    ),
    paper="Zhang et al. 2024, arXiv:2403.15378",
    licence="not confirmed",
    obtain=f"It comes from the Hub ({REPO}, {ARCHIVE}, 81 MB).",
)
