"""ARO's two sets of word order (Yuksekgonul et al. 2023): a caption against four shuffles of its words."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.composition.aro import PAPER
from hfcomp.evaluation.benchmarks.readers.aro import SHUFFLED, in_one_list
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark

COLUMNS = {"image": "images", "caption": "correct_caption", **{column: column for column in SHUFFLED}}


def _benchmark(source: str, repo: str, revision: str, images: str) -> Benchmark:
    return Benchmark(
        name=f"aro_{source.lower()}_order",
        title=f"ARO {source}-Order",
        suite=COMPOSITIONAL,
        protocol=CaptionChoice(),
        # The authors shuffle while they load, with spaCy, nltk and the generators of the process, so their negatives
        # are others on every machine. The copy holds one draw.
        data=(HubData(repo, COLUMNS, reshape=in_one_list, revision=revision),),
        paper=PAPER,
        licence=f"MIT according to MTEB's copy; {images}",
        obtain=f"It comes from the Hub ({repo}).",
    )


# the revisions are those that MTEB reads
COCO_AT, FLICKR_AT = "53c20afc02a87fed8c0245dde2e00f054da4b861", "e5d7f3502345b2c398a6645b4d09b44e650287bf"
TERMS = "images of Flickr30k, research and education only"
ARO_ORDER = (
    _benchmark("COCO", "mteb/ARO-COCO-order", COCO_AT, "captions of COCO, CC BY 4.0"),
    _benchmark("Flickr", "mteb/ARO-Flickr-Order", FLICKR_AT, TERMS),
)
