"""Linear probes on ImageNet-1k: what a frozen image tower knows, read off by a linear classifier."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.classification.zero_shot_sets import (
    IMAGENET_LICENCE,
    IMAGENET_PAPER,
    IMAGENET_REVISION,
)
from hfcomp.evaluation.probes.fits import fit_adamw10, fit_lbfgs
from hfcomp.evaluation.protocols.classification import Fit, Probe
from hfcomp.evaluation.spec import GENERAL, Benchmark
from hfcomp.evaluation.webdataset import WebDatasetData

FITS: dict[str, Fit] = {"adamw10": fit_adamw10, "lbfgs": fit_lbfgs}

IMAGENET_PROBES = tuple(
    Benchmark(
        name=f"imagenet1k_probe_{name}",
        title=f"ImageNet-1k linear probe ({name})",
        suite=GENERAL,
        protocol=Probe(fit),
        data=(WebDatasetData("clip-benchmark/wds_imagenet1k", train=True, revision=IMAGENET_REVISION),),
        paper=IMAGENET_PAPER,
        licence=IMAGENET_LICENCE,
        obtain=(
            "Downloaded automatically from the Hub, with all 1.28 million training images; or pass a copy of "
            "clip-benchmark/wds_imagenet1k as --data wds_imagenet1k=FOLDER."
        ),
        folder="wds_imagenet1k",
        in_suites=False,
    )
    for name, fit in FITS.items()
)
