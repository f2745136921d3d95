"""Means over several benchmarks that papers report, computed from our lines."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.classification.linear_probes import COCO_LABELS, IMAGENET_PROBES, VTAB
from hfcomp.evaluation.benchmarks.classification.zero_shot_sets import ZERO_SHOT
from hfcomp.evaluation.benchmarks.composition.aro import ARO_ATTRIBUTION, ARO_RELATION
from hfcomp.evaluation.benchmarks.composition.image_pairs import WINOGROUND
from hfcomp.evaluation.benchmarks.composition.sugarcrepe import ADD, REPLACE, SUGARCREPE, SUGARCREPE_PP, SWAP
from hfcomp.evaluation.benchmarks.composition.valse import VALSE
from hfcomp.evaluation.benchmarks.retrieval.descriptions import DOCCI, IMAGEINWORDS
from hfcomp.evaluation.benchmarks.retrieval.retrieval import COCO_RETRIEVAL, FLICKR30K, FLICKR30K_ALL
from hfcomp.evaluation.spec import Average, Benchmark

Part = tuple[str, str, str]
PROBES = {probe.name: probe for probe in (*COCO_LABELS, *IMAGENET_PROBES)}
CHOICE, ITT, TOT = "caption choice", "image-to-text", "text only"


def _parts(benchmark: Benchmark, *metrics: str) -> tuple[Part, ...]:
    """Returns metrics of a benchmark, each of its first average, if any."""
    subset = benchmark.averages[0].name if benchmark.averages else "all"
    return tuple((benchmark.title, subset, metric) for metric in metrics)


def _subset_parts(benchmark: Benchmark, metric: str, *subsets: str) -> tuple[Part, ...]:
    """Returns a metric of a benchmark for each of some subsets or averages over them."""
    return tuple((benchmark.title, subset, metric) for subset in subsets)


RECALLS = tuple(f"{way} recall@{k}" for way in ("text-to-image", "image-to-text") for k in (1, 5))
RECALLS_5 = tuple(metric for metric in RECALLS if metric.endswith("@5"))
RETRIEVAL = tuple(_parts(benchmark, *RECALLS_5) for benchmark in (FLICKR30K, COCO_RETRIEVAL, DOCCI, IMAGEINWORDS))
OF_SUGARCREPE = tuple(_subset_parts(SUGARCREPE, CHOICE, *subsets) for subsets in (ADD, REPLACE, SWAP))
OF_SUGARCREPE_PP = tuple(
    _subset_parts(SUGARCREPE_PP, task, *subsets) for subsets in (REPLACE, SWAP) for task in (ITT, TOT)
)
OF_WINOGROUND = _parts(WINOGROUND, "text", "image", "group")
COMPOSITIONAL = (_parts(SUGARCREPE, CHOICE), _parts(SUGARCREPE_PP, ITT, TOT))
OF_PROBES = (
    _parts(PROBES["coco_labels_adamw10"], "mAP"),
    _parts(PROBES["imagenet1k_probe_adamw10"], "accuracy", "top-5 accuracy"),
)
ATTRIBUTES = ("replace_att", "swap_att")
ARO = (_parts(ARO_RELATION, CHOICE), _parts(ARO_ATTRIBUTION, CHOICE))
MEANS = {
    # arXiv:2604.13313 defines neither mean. Both follow from its rows: the columns of a benchmark are averaged first.
    # Judging by its baselines, its "SCpp-T2I" is SugarCrepe++'s text-only task. Its linear probes have ten epochs,
    # like adamw10; it states no other setting.
    "Im et al. 2026, Table 2": (
        Average("compositional mean", (*COMPOSITIONAL, OF_WINOGROUND)),
        # Ours: Winoground's terms have to be accepted on the Hub.
        Average("compositional mean without Winoground", COMPOSITIONAL, fallback=True),
    ),
    # Its Flickr30k recalls are too low for the 1,000 test images, which the first mean uses. The second mean is our
    # interpretation.
    "Im et al. 2026, Table 3": (
        Average("general mean", (*OF_PROBES, _parts(FLICKR30K, *RECALLS), _parts(VTAB[0], "accuracy"))),
        Average(
            "general mean, all of Flickr30k",
            (*OF_PROBES, _parts(FLICKR30K_ALL, *RECALLS), _parts(VTAB[0], "accuracy")),
        ),
    ),
    # arXiv:2603.25722 defines no means either. Each is the plain mean of its table's columns, which all rows confirm.
    "Pham et al. 2026, Table 2": (
        Average(
            "mean of 12 columns", (*OF_SUGARCREPE, *OF_SUGARCREPE_PP, _parts(ZERO_SHOT[0], "accuracy"), *RETRIEVAL)
        ),
    ),
    "Pham et al. 2026, Table 3": (
        Average(
            "attribute-binding mean",
            tuple(
                _subset_parts(benchmark, metric, subset)
                for benchmark, metrics in ((SUGARCREPE, (CHOICE,)), (SUGARCREPE_PP, (ITT, TOT)))
                for subset in ATTRIBUTES
                for metric in metrics
            ),
        ),
    ),
    "Pham et al. 2026, Table A4": (
        Average("mean of 10 columns", tuple((part,) for group in OF_SUGARCREPE_PP for part in group)),
    ),
    "Pham et al. 2026, Table A5": (
        Average("retrieval mean", tuple((part,) for group in RETRIEVAL for part in group)),
    ),
    "Pham et al. 2026, Table A6": (
        Average("mean of 11 sets", tuple(_parts(dataset, "accuracy") for dataset in ZERO_SHOT)),
    ),
    "Huang et al. 2025, Table 1": (Average("ARO mean", ARO),),
    # Its own row has the mean of nine columns for VALSE. Other papers have the mean of eleven instruments.
    "Huang et al. 2025, Table 3": (
        Average(
            "mean of 4 columns",
            (*ARO, _subset_parts(VALSE, CHOICE, "mean of 9 columns (Counting is one)"), _parts(SUGARCREPE, CHOICE)),
        ),
    ),
}
"""Averages over benchmarks, by the place of their publication."""
