"""Retrieval among photographs with five captions each: Flickr8k, Flickr30k and COCO."""

from __future__ import annotations

from collections.abc import Sequence

from hfcomp.evaluation.benchmarks.readers.coco import COCO2017_CAPTIONS
from hfcomp.evaluation.benchmarks.readers.flickr30k import ALL_CAPTIONS
from hfcomp.evaluation.benchmarks.readers.sets.karpathy import COCO_CAPTIONS, FLICKR8K_CAPTIONS, FLICKR30K_CAPTIONS
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.spec import GENERAL, Benchmark, Data

OF_ALL = (
    "coco2017_retrieval",
    "flickr30k_all",
)  # for models that were trained on train2017, and for one paper's numbers


def _benchmark(name: str, title: str, data: Sequence[Data], paper: str, version: int = 2) -> Benchmark:
    flickr = f"not stated on the Hub; {title.partition(' ')[0]} is for research and teaching only"
    return Benchmark(
        name=name,
        title=title,
        suite=GENERAL,
        # the others: for models that were trained on train2017, and for one paper's numbers
        in_suites=name not in ("coco2017_retrieval", "flickr30k_all"),
        protocol=Retrieval(),
        data=tuple(data),
        paper=paper,
        licence="captions CC BY 4.0; images of Flickr, a licence each" if "COCO" in title else flickr,
        obtain=f"Downloaded automatically from the Hub{' (4.4 GB)' if data is ALL_CAPTIONS else ''}.",
        version=version,
    )


SPLIT, CHEN = "split of Karpathy and Fei-Fei 2015, arXiv:1412.2306", "Chen et al. 2015, arXiv:1504.00325"
HODOSH, YOUNG = "Hodosh et al. 2013, JAIR 47", "Young et al. 2014, TACL 2"
VAL2017 = f"{CHEN}; on val2017: Rösch et al. 2024, arXiv:2403.02875, section 5.1"
EVERY = f"{YOUNG}; all images: our reading of Im et al. 2026, Table 3"
FLICKR8K = _benchmark("flickr8k", "Flickr8k retrieval", FLICKR8K_CAPTIONS, f"{HODOSH}; {SPLIT}", 1)
FLICKR30K = _benchmark("flickr30k", "Flickr30k retrieval", FLICKR30K_CAPTIONS, f"{YOUNG}; {SPLIT}")
COCO_RETRIEVAL = _benchmark("coco_retrieval", "COCO retrieval", COCO_CAPTIONS, f"{CHEN}; {SPLIT}")
COCO2017_RETRIEVAL = _benchmark("coco2017_retrieval", "COCO 2017 retrieval", COCO2017_CAPTIONS, VAL2017)
FLICKR30K_ALL = _benchmark("flickr30k_all", "Flickr30k retrieval, all images", ALL_CAPTIONS, EVERY, version=1)
