"""ImageNet's classes in other pictures, zero-shot: what a fine-tuned model still knows away from its training data."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.classification.zero_shot_sets import zero_shot_benchmark
from hfcomp.evaluation.benchmarks.readers.class_folders import ANY, NUMBERS, WORDNET, ClassFolders, without_border
from hfcomp.evaluation.sources import Adapted
from hfcomp.evaluation.webdataset import WebDatasetData

V2 = "imagenetv2-matched-frequency-format-val"
SETS = (
    ("imagenet_v2", "ImageNet-V2", "imagenetv2", V2, NUMBERS, "Recht et al. 2019, arXiv:1902.10811"),
    ("imagenet_a", "ImageNet-A", "imagenet-a", "imagenet-a", WORDNET, "Hendrycks et al. 2021, arXiv:1907.07174"),
    ("imagenet_r", "ImageNet-R", "imagenet-r", "imagenet-r", WORDNET, "Hendrycks et al. 2021, arXiv:2006.16241"),
    ("imagenet_sketch", "ImageNet-Sketch", "imagenet_sketch", "sketch", WORDNET, "Wang et al. 2019, arXiv:1905.13549"),
)
"""Name, title, repository after `clip-benchmark/wds_`, folder of the authors' archive, its class folders, paper."""


def _forms(repo: str, folder: str, pattern: str, mappings: str | None = None) -> tuple[WebDatasetData, ClassFolders]:
    name = f"clip-benchmark/wds_{repo}"
    return WebDatasetData(name), ClassFolders(name, folder, pattern, mappings)


IMAGENETS = tuple(
    zero_shot_benchmark(name, title, repo, _forms(repo, folder, pattern), paper=paper, licence="not stated")
    for name, title, repo, folder, pattern, paper in SETS
)
OBJECTNET_FORMS = _forms("objectnet", "objectnet-1.0/images", ANY, "objectnet-1.0/mappings")
OBJECTNET = zero_shot_benchmark(
    "objectnet",
    "ObjectNet",
    "objectnet",
    tuple(Adapted(form, without_border) for form in OBJECTNET_FORMS),
    paper="Barbu et al. 2019, NeurIPS",
    licence="CC BY 4.0 with two clauses: never for tuning a model; single images only with their red border",
    in_suites=False,
)
