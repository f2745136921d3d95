"""Options of `hfcomp gallery`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from hfcomp.data.urls import DEFAULT_TIMEOUT
from hfcomp.options import AllowUrls, BatchSize, Count, Device, NoCache, Options, Size, Spelling, UrlTimeout

ColumnNames = Annotated[
    str, Spelling("OURS=YOURS"), "Column mapping, for example caption=text (hfcomp's name first), or JSON."
]


@dataclass(kw_only=True)
class DataOptions(Options):
    """Data."""

    split: Annotated[str, "Split of the dataset."] = "train"
    config: Annotated[str | None, "Dataset configuration, if there are several."] = None
    column_names: ColumnNames = ""
    allow_urls: AllowUrls = False
    url_timeout: UrlTimeout = DEFAULT_TIMEOUT


@dataclass(kw_only=True)
class GalleryOptions(DataOptions):
    """Page."""

    overwrite: Annotated[bool, "Replace an existing page."] = False
    rows: Annotated[Count, "Number of rows to show, from the start of the dataset."] = 1000
    caption_choice: Annotated[
        Literal["longest", "first"],
        "For a row with a list of captions, the one to show first; the others are shown as positives.",
    ] = "longest"
    seed: Annotated[
        Size | None,
        "Sample the rows at random with this seed, instead of taking the first ones; they are shown in dataset order.",
    ] = None
    image_size: Annotated[int, Field(ge=16), "Longer side of an image, in pixels."] = 224
    models: Annotated[
        tuple[str, ...],
        Spelling(spaced=True),
        "One or two dual encoders to score the rows: Hub ids, folders or name=ID.",
    ] = ()
    batch_size: BatchSize = 128
    device: Device = None
    no_cache: NoCache = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.models) > 2:
            raise ValueError(
                f"models: found {len(self.models)} models, expected one or two, because the page compares two. "
                "`hfcomp compare` and `hfcomp evaluate` take more."
            )
