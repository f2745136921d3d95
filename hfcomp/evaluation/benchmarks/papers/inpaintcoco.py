"""InpaintCOCO (Rösch et al. 2024): a COCO image and a copy with one thing inpainted, each with its caption."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark, BenchmarkData, Folders, Origin, with_columns

if TYPE_CHECKING:
    from datasets import Dataset

REPO = "phiyodr/InpaintCOCO"


def strip_captions(rows: Dataset) -> Dataset:
    """Strips spaces around captions, and adds the number of the COCO image if known."""
    added = {
        "caption": [(text or "").strip() for text in rows["caption"]],
        "negative_captions": [[(text or "").strip()] for text in rows["negative_captions"]],
    }
    if "image_id" in rows.column_names:
        added["image_id"] = [None if details is None else str(details["id"]) for details in rows["image_id"]]
    return with_columns(rows, added)


@dataclass(frozen=True)
class Pairs(HubData):
    """The published dataset, or one built by `hfcomp build inpaintcoco`, with the same columns and verified."""

    @property
    def layout(self) -> str:
        return f"{super().layout}, or a dataset built by `hfcomp build inpaintcoco`"

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        from hfcomp.data.built_sets.files import is_build

        if not is_build(folder):
            return super().local(folder, folders)
        from hfcomp.data.loading import load_training_set

        # Not loaded as plain Parquet files, because this loader checks the dataset against its manifest.
        rows = load_training_set(str(folder), split="test")
        return self._items({"all": rows}, Origin(str(folder)), None, folders, folder)


INPAINTCOCO = Benchmark(
    name="inpaintcoco",
    title="InpaintCOCO",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(metrics=("image", "group", "text")),  # the paper's score is the image score (Eq. 2)
    data=(
        Pairs(
            REPO,
            {
                "image": "coco_image",
                "negative_image": "inpaint_image",
                "caption": "coco_caption",
                "negative_captions": "inpaint_caption",
                "subset": "concept",
            },
            reshape=strip_captions,
            optional={"image_id": "coco_details"},
        ),
    ),
    averages=(Average("macro of 3 concepts", (("object",), ("color",), ("size",))), Average("micro", pooled=True)),
    paper="Rösch et al. 2024, arXiv:2403.02875",
    license="captions CC BY 4.0; each image its own, in its row",
    obtain=f"It comes from the Hub ({REPO}, 1.06 GB). `hfcomp annotate` and `hfcomp build inpaintcoco` make another.",
)
