"""BiVLC (Miranda et al. 2024): SugarCrepe's captions, each false one with an image that was generated for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hfcomp.evaluation.benchmarks.readers.groups import one_negative
from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

if TYPE_CHECKING:
    from datasets import Dataset

REPO = "imirandam/BiVLC"
COLUMNS = {"image": "image", "caption": "caption", "negative_image": "negative_image"}
SUGARCREPE = {"negative_captions": "negative_caption", "type": "type", "subtype": "subtype"}


def in_subsets(rows: Dataset) -> Dataset:
    """Rows under the names of SugarCrepe's subsets, such as `replace_obj`."""
    names = [f"{kind}_{part}".lower() for kind, part in zip(rows["type"][:], rows["subtype"][:], strict=True)]
    return one_negative(rows.remove_columns(["type", "subtype"]).add_column("subset", names))


BIVLC = Benchmark(
    name="bivlc",
    title="BiVLC",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(),  # the paper's I2T is the text score, its T2I the image score
    data=(HubData(REPO, COLUMNS | SUGARCREPE, reshape=in_subsets),),
    averages=(Average("all items", pooled=True), Average("macro of subsets")),
    paper="Miranda et al. 2024, arXiv:2406.09952",
    licence="MIT; images and captions of COCO, a licence each",
    obtain=f"It comes from the Hub ({REPO}, 540 MB).",
)
