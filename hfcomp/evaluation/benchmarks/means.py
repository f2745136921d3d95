"""Means over several benchmarks that papers report, made of the lines of ours."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.classification.coco_labels import COCO_LABELS
from hfcomp.evaluation.benchmarks.classification.linear_probes import IMAGENET_PROBES
from hfcomp.evaluation.benchmarks.classification.vtab import VTAB
from hfcomp.evaluation.benchmarks.composition.sugarcrepe import SUGARCREPE
from hfcomp.evaluation.benchmarks.composition.sugarcrepe_pp import SUGARCREPE_PP
from hfcomp.evaluation.benchmarks.composition.winoground import WINOGROUND
from hfcomp.evaluation.benchmarks.retrieval.retrieval import FLICKR30K
from hfcomp.evaluation.spec import Average, Benchmark

PROBES = {one.name: one for one in (*COCO_LABELS, *IMAGENET_PROBES)}


def _parts(benchmark: Benchmark, *metrics: str) -> tuple[tuple[str, str, str], ...]:
    """Metrics of a benchmark, each by its first average where it has averages."""
    subset = benchmark.averages[0].name if benchmark.averages else "all"
    return tuple((benchmark.title, subset, metric) for metric in metrics)


RECALLS = tuple(f"{way} recall@{k}" for way in ("text-to-image", "image-to-text") for k in (1, 5))
MEANS = {
    # arXiv:2604.13313 defines neither mean. Both are read off its rows: the columns of a benchmark are averaged first.
    # Its "SCpp-T2I" is the text-only task of SugarCrepe++, by the numbers of its baselines. Its linear probes have ten
    # epochs, as adamw10; it gives no further value of them.
    "Im et al. 2026, Table 2": (
        Average(
            "compositional mean",
            (
                _parts(SUGARCREPE, "caption choice"),
                _parts(SUGARCREPE_PP, "image-to-text", "text only"),
                _parts(WINOGROUND, "text", "image", "group"),
            ),
        ),
    ),
    "Im et al. 2026, Table 3": (
        Average(
            "general mean",
            (
                _parts(PROBES["coco_labels_adamw10"], "mAP"),
                _parts(PROBES["imagenet1k_probe_adamw10"], "accuracy", "top-5 accuracy"),
                _parts(FLICKR30K, *RECALLS),
                _parts(VTAB[0], "accuracy"),
            ),
        ),
    ),
}
"""Averages over benchmarks, by where they are published."""
