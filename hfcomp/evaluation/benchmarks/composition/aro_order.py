"""ARO's two sets of word order (Yuksekgonul et al. 2023): a caption against four shuffles of its words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hfcomp.evaluation.benchmarks.composition.aro import PAPER
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark

if TYPE_CHECKING:
    from datasets import Dataset

SHUFFLED = ("hard_text_1", "hard_text_2", "hard_text_3", "hard_text_4")


def in_one_list(rows: Dataset) -> Dataset:
    """Rows with their four shuffled captions in one list."""
    lists = [list(texts) for texts in zip(*(rows[name] for name in SHUFFLED), strict=True)]
    return rows.remove_columns(list(SHUFFLED)).add_column("negative_captions", lists)


def _benchmark(name: str, title: str, repo: str, revision: str, licence: str) -> Benchmark:
    columns = {"image": "images", "caption": "correct_caption", **{column: column for column in SHUFFLED}}
    return Benchmark(
        name=name,
        title=title,
        suite=COMPOSITIONAL,
        protocol=CaptionChoice(),
        # The authors shuffle while they load, with spaCy, nltk and the generators of the process, so their negatives
        # are others on every machine. The copy holds one draw.
        data=(HubData(repo, columns, reshape=in_one_list, revision=revision),),
        paper=PAPER,
        licence=licence,
        obtain=f"It comes from the Hub ({repo}).",
    )


# the revisions are those that MTEB reads
ARO_ORDER = (
    _benchmark(
        "aro_coco_order",
        "ARO COCO-Order",
        "mteb/ARO-COCO-order",
        "53c20afc02a87fed8c0245dde2e00f054da4b861",
        "MIT according to MTEB's copy; captions of COCO, CC BY 4.0",
    ),
    _benchmark(
        "aro_flickr_order",
        "ARO Flickr-Order",
        "mteb/ARO-Flickr-Order",
        "e5d7f3502345b2c398a6645b4d09b44e650287bf",
        "MIT according to MTEB's copy; images of Flickr30k, research and education only",
    ),
)
