"""InpaintCOCO (Rösch et al. 2024): a COCO image and the same with one thing repainted, each with its caption."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

if TYPE_CHECKING:
    from datasets import Dataset

REPO = "phiyodr/InpaintCOCO"


def stripped(rows: Dataset) -> Dataset:
    """Rows whose captions have no spaces around them, with the number of the COCO image where it is known."""
    added = {
        "caption": [(text or "").strip() for text in rows["caption"]],
        "negative_captions": [[(text or "").strip()] for text in rows["negative_captions"]],
    }
    if "image_id" in rows.column_names:
        added["image_id"] = [None if details is None else str(details["id"]) for details in rows["image_id"]]
    rows = rows.remove_columns(list(added))
    for name, values in added.items():
        rows = rows.add_column(name, values)
    return rows


INPAINTCOCO = Benchmark(
    name="inpaintcoco",
    title="InpaintCOCO",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(metrics=("image", "group", "text")),  # the paper's score is the image score (Eq. 2)
    data=(
        HubData(
            REPO,
            {
                "image": "coco_image",
                "negative_image": "inpaint_image",
                "caption": "coco_caption",
                "negative_captions": "inpaint_caption",
                "subset": "concept",
            },
            reshape=stripped,
            optional={"image_id": "coco_details"},
        ),
    ),
    averages=(Average("macro of 3 concepts", (("object",), ("color",), ("size",))), Average("micro", pooled=True)),
    paper="Rösch et al. 2024, arXiv:2403.02875",
    licence="captions CC BY 4.0; each image its own, in its row",
    obtain=f"It comes from the Hub ({REPO}, 1.06 GB).",
)
