"""InpaintCOCO: the options of `hfcomp build inpaintcoco`, and the text of the card."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from hfcomp.data.annotations.entries import Quality
from hfcomp.data.annotations.project import DATABASE
from hfcomp.factory.builder import Builder, CardText, Counts
from hfcomp.factory.options import BuildOptions
from hfcomp.options import Count

PAIRS = Counts("pair: ", "pairs", "concept")
FLAGGED_PAIRS = Counts("flag: ", "pairs flagged, not left out", "flag")
_OF_DATA_SETS = ("config", "columns")


@dataclass(kw_only=True)
class InpaintCocoOptions(BuildOptions):
    """Pairs of an image and a copy of it in which one thing is repainted (InpaintCOCO).

    The source is an annotation project folder, or a dataset in the layout of phiyodr/InpaintCOCO.
    """

    what: ClassVar[str] = "inpaintcoco"
    column_names: str = field(default="", init=False)
    only_adaptable: bool = field(default=True, init=False)
    split: Annotated[str, "Split, if the source is a dataset."] = "test"
    shard_size: Annotated[Count, "Rows of the source per file; each row has three images."] = 200
    quality: Annotated[
        Quality | None,
        "For an annotation project: only pairs of this quality, which is the lower of the annotator's and the "
        "reviewer's rating.",
    ] = None
    concepts: Annotated[tuple[str, ...], "Only pairs with these concepts (default: all)."] = ()
    any_license: Annotated[bool, "Include images whose license forbids adaptation or is unknown."] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.only_adaptable = not self.any_license
        if self.is_project:
            given = [name for name in _OF_DATA_SETS if getattr(self, name) is not None]
            if given:
                raise ValueError(
                    f"--{given[0]} works only with a dataset, but {self.source} is an annotation project."
                )
        elif self.quality is not None:
            raise ValueError(
                f"--quality works only with an annotation project. {self.source} is not one: it has no {DATABASE}. "
                "Remove --quality."
            )

    @property
    def is_project(self) -> bool:
        """Whether the source is an annotation project."""
        return (Path(self.source) / DATABASE).is_file()


INPAINTCOCO = Builder(
    InpaintCocoOptions,
    CardText(
        "InpaintCOCO",
        "Pairs of an image and a copy of it in which one thing is repainted, each image with its own caption: a model "
        "must tell which image a caption describes (Rösch et al. 2024, arXiv:2403.02875). For evaluation, not for "
        "training.",
        {
            "`concept`": "the kind of change, such as `object`, `color` or `size`",
            "`coco_image`, `coco_caption`": "the original image and its caption",
            "`inpaint_image`, `inpaint_caption`": "the edited image and its caption",
            "`mask`": "white where the image was repainted; in a dataset from an annotation project, all pixels "
            "outside it and a feathered border of 4 pixels are the original's",
            "`worker`": "number of the person who made the edit",
            "`coco_details`": "the image: `id`, `captions`, `image_license` and more",
            "`inpaint_details`": "the edit: prompts, seed, ratings and more, as far as the source has them",
            "`flags`, `changed_outside`": "for a published dataset: problems of the row, and the share (0 to 1) of "
            "pixels outside the mask and a border of 4 pixels that differ",
            "`license`, `source`": "license and source of the original image",
        },
        "Other columns come from the source. Images are copied byte for byte.",
        ("concept", "caption", "caption of the edited image"),
        ("concept", "coco_caption", "inpaint_caption"),
        lambda *texts: [[text or "" for text in texts]],
        counts=(PAIRS, FLAGGED_PAIRS),
    ),
    "hfcomp.factory.inpaintcoco.source:InpaintCocoBuild",
)
