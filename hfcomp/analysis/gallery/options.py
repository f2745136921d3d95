"""How rows of a dataset are shown: the options of `hfcomp gallery`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from hfcomp.data.urls import DEFAULT_TIMEOUT
from hfcomp.options import AllowUrls, BatchSize, Count, Device, NoCache, Options, Size, Spelling, UrlTimeout

ColumnNames = Annotated[
    str, Spelling("OURS=YOURS"), "hfcomp's name=the set's name of columns, as caption=text; or JSON."
]


@dataclass(kw_only=True)
class DataOptions(Options):
    """Data."""

    split: Annotated[str, "Split of the dataset."] = "train"
    config: Annotated[str | None, "The configuration, if the set has several."] = None
    column_names: ColumnNames = ""
    allow_urls: AllowUrls = False
    url_timeout: UrlTimeout = DEFAULT_TIMEOUT


@dataclass(kw_only=True)
class GalleryOptions(DataOptions):
    """The page."""

    overwrite: Annotated[bool, "Replace a page that is there."] = False
    rows: Annotated[Count, "Rows that are shown, the first ones."] = 1000
    caption_choice: Annotated[
        Literal["longest", "first"],
        "Which caption of a row with a list stands first; the others are shown as positives.",
    ] = "longest"
    seed: Annotated[
        Size | None, "Random seed that draws the rows instead; they are shown in the order of the set."
    ] = None
    image_size: Annotated[int, Field(ge=16), "Pixels of the longer side of a picture."] = 224
    models: Annotated[
        tuple[str, ...],
        Spelling(spaced=True),
        "One or two dual encoders that score the rows: Hub ids, folders or name=ID.",
    ] = ()
    batch_size: BatchSize = 128
    device: Device = None
    no_cache: NoCache = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.models) > 2:
            raise ValueError(
                f"models: found {len(self.models)} models, expected one or two: the page compares two. `hfcomp "
                "compare` and `hfcomp evaluate` take more."
            )
