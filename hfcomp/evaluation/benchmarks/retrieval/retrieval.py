"""Retrieval among photographs with five captions each: Flickr8k, Flickr30k and COCO, Karpathy's test images."""

from __future__ import annotations

from collections.abc import Sequence

from hfcomp.evaluation.benchmarks.readers.coco import COCO2017_CAPTIONS
from hfcomp.evaluation.benchmarks.readers.karpathy import COCO_CAPTIONS, FLICKR8K_CAPTIONS, FLICKR30K_CAPTIONS
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.spec import GENERAL, Benchmark, Data


def _benchmark(name: str, title: str, data: Sequence[Data], paper: str, version: int = 2) -> Benchmark:
    flickr = f"not stated on the Hub; {title} is for research and teaching only"
    return Benchmark(
        name=name,
        title=f"{title} retrieval",
        suite=GENERAL,
        in_suites=name != "coco2017_retrieval",  # another split of COCO, for models that were trained on train2017
        protocol=Retrieval(),
        data=tuple(data),
        paper=paper,
        licence="captions CC BY 4.0; images of Flickr, a licence each" if "COCO" in title else flickr,
        obtain="Downloaded automatically from the Hub.",
        version=version,
    )


SPLIT, CHEN = "split of Karpathy and Fei-Fei 2015, arXiv:1412.2306", "Chen et al. 2015, arXiv:1504.00325"
HODOSH, YOUNG = f"Hodosh et al. 2013, JAIR 47; {SPLIT}", f"Young et al. 2014, TACL 2; {SPLIT}"
VAL2017 = f"{CHEN}; on val2017: Rösch et al. 2024, arXiv:2403.02875, section 5.1"
FLICKR8K = _benchmark("flickr8k", "Flickr8k", FLICKR8K_CAPTIONS, HODOSH, version=1)
FLICKR30K = _benchmark("flickr30k", "Flickr30k", FLICKR30K_CAPTIONS, YOUNG)
COCO_RETRIEVAL = _benchmark("coco_retrieval", "COCO", COCO_CAPTIONS, f"{CHEN}; {SPLIT}")
COCO2017_RETRIEVAL = _benchmark("coco2017_retrieval", "COCO 2017", COCO2017_CAPTIONS, VAL2017)
