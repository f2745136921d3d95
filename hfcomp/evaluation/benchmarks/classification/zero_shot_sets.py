"""Zero-shot classification: the usual datasets (as in CLIP_benchmark), and ImageNet's classes in other images."""

from __future__ import annotations

from typing import Any

from hfcomp.evaluation.protocols.classification import ZeroShot
from hfcomp.evaluation.sources import Adapted
from hfcomp.evaluation.spec import GENERAL, Benchmark, Data
from hfcomp.evaluation.webdataset import ANY, NUMBERS, WORDNET, ClassFolders, WebDatasetData, without_border

NOT_STATED = "not stated"
IMAGENET_REVISION = "b24c7a5a3ef12df09089055d1795e2ce7c7e7397"  # pinned by mteb, with its training split
IMAGENET_PAPER = "Russakovsky et al. 2015, arXiv:1409.0575"
IMAGENET_LICENSE = "not stated for the copy; ImageNet's terms: research and education, not commercial"

SETS = (
    ("imagenet1k", "ImageNet-1k", "imagenet1k", IMAGENET_PAPER, IMAGENET_LICENSE, IMAGENET_REVISION),
    ("food101", "Food-101", "food101", "Bossard et al. 2014, ECCV", NOT_STATED, None),
    ("cifar10", "CIFAR-10", "vtab-cifar10", "Krizhevsky 2009, technical report", NOT_STATED, None),
    ("cifar100", "CIFAR-100", "vtab-cifar100", "Krizhevsky 2009, technical report", NOT_STATED, None),
    ("sun397", "SUN397", "sun397", "Xiao et al. 2010, CVPR", NOT_STATED, None),
    ("cars", "Stanford Cars", "cars", "Krause et al. 2013, 3dRR workshop", NOT_STATED, None),
    ("fgvc_aircraft", "FGVC-Aircraft", "fgvc_aircraft", "Maji et al. 2013, arXiv:1306.5151", NOT_STATED, None),
    ("dtd", "DTD", "vtab-dtd", "Cimpoi et al. 2014, CVPR", NOT_STATED, None),
    ("pets", "Oxford-IIIT Pets", "vtab-pets", "Parkhi et al. 2012, CVPR", NOT_STATED, None),
    ("caltech101", "Caltech-101", "vtab-caltech101", "Fei-Fei et al. 2004, CVPR workshop", NOT_STATED, None),
    ("flowers", "Oxford Flowers-102", "vtab-flowers", "Nilsback and Zisserman 2008, ICVGIP", NOT_STATED, None),
)
"""Name, title, repository after `clip-benchmark/wds_`, paper, license and revision."""


def zero_shot_benchmark(name: str, title: str, repo: str, data: tuple[Data, ...], **more: Any) -> Benchmark:
    """Makes a zero-shot benchmark from a `clip-benchmark` repository; `more` are further fields."""
    return Benchmark(
        name=name,
        title=f"{title} zero-shot",
        suite=GENERAL,
        protocol=ZeroShot(),
        data=data,
        obtain=(
            f"Downloaded automatically from the Hub; or pass a copy of clip-benchmark/wds_{repo} as "
            f"--data wds_{repo}=FOLDER."
        ),
        folder=f"wds_{repo}",
        **more,
    )


ZERO_SHOT = tuple(
    zero_shot_benchmark(
        name,
        title,
        repo,
        (WebDatasetData(f"clip-benchmark/wds_{repo}", revision=revision),),
        paper=paper,
        license=license,
    )
    for name, title, repo, paper, license, revision in SETS
)


V2 = "imagenetv2-matched-frequency-format-val"
SHIFTED_SETS = (
    ("imagenet_v2", "ImageNet-V2", "imagenetv2", V2, NUMBERS, "Recht et al. 2019, arXiv:1902.10811"),
    ("imagenet_a", "ImageNet-A", "imagenet-a", "imagenet-a", WORDNET, "Hendrycks et al. 2021, arXiv:1907.07174"),
    ("imagenet_r", "ImageNet-R", "imagenet-r", "imagenet-r", WORDNET, "Hendrycks et al. 2021, arXiv:2006.16241"),
    ("imagenet_sketch", "ImageNet-Sketch", "imagenet_sketch", "sketch", WORDNET, "Wang et al. 2019, arXiv:1905.13549"),
)
"""Name, title, repository after `clip-benchmark/wds_`, folder of the authors' archive, its class folders, paper."""


def _data_formats(
    repo: str, folder: str, pattern: str, mappings: str | None = None
) -> tuple[WebDatasetData, ClassFolders]:
    name = f"clip-benchmark/wds_{repo}"
    return WebDatasetData(name), ClassFolders(name, folder, pattern, mappings)


IMAGENETS = tuple(
    zero_shot_benchmark(name, title, repo, _data_formats(repo, folder, pattern), paper=paper, license="not stated")
    for name, title, repo, folder, pattern, paper in SHIFTED_SETS
)
OBJECTNET_FORMS = _data_formats("objectnet", "objectnet-1.0/images", ANY, "objectnet-1.0/mappings")
OBJECTNET = zero_shot_benchmark(
    "objectnet",
    "ObjectNet",
    "objectnet",
    tuple(Adapted(form, without_border) for form in OBJECTNET_FORMS),
    paper="Barbu et al. 2019, NeurIPS",
    license="CC BY 4.0 with two clauses: never for tuning a model; single images only with their red border",
    in_suites=False,
)
