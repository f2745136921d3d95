"""How rows of a data set are shown; the fields are the options of `hfcomp gallery`, their descriptions its help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hfcomp.data.urls import DEFAULT_TIMEOUT


@dataclass(kw_only=True)
class DataOptions:
    """Data.

    Attributes:
        split: of the data set.
        config: the configuration, where the set has several.
        column_names: hfcomp's name=the set's name, as caption=text; or JSON.
        allow_urls: fetch images that the data names by URL; only for data you trust.
        url_timeout: seconds for one image.
    """

    split: str = "train"
    config: str | None = None
    column_names: str = ""
    allow_urls: bool = False
    url_timeout: float = DEFAULT_TIMEOUT


@dataclass(kw_only=True)
class GalleryOptions(DataOptions):
    """The page.

    Attributes:
        overwrite: replace a page that is there.
        rows: how many rows are shown, the first ones.
        caption_choice: which caption of a row with a list stands first; the others are shown as positives.
        seed: draws the rows at random instead; they are shown in the order of the set.
        image_size: pixels of the longer side of a picture.
        models: one or two dual encoders that score the rows: Hub ids, folders or name=ID.
        batch_size: images or texts that a model encodes at a time.
        device: such as cpu or cuda:1; by default a GPU where there is one.
        no_cache: encode everything anew and keep nothing.
    """

    overwrite: bool = False
    rows: int = 1000
    caption_choice: Literal["longest", "first"] = "longest"
    seed: int | None = None
    image_size: int = 224
    models: tuple[str, ...] = ()
    batch_size: int = 128
    device: str | None = None
    no_cache: bool = False

    def __post_init__(self) -> None:
        for name, least in (("rows", 1), ("image_size", 16), ("batch_size", 1), ("seed", 0)):
            number = getattr(self, name)
            if number is not None and number < least:
                raise ValueError(f"{name}: found {number}, expected {least} or more.")
        if len(self.models) > 2:
            raise ValueError(
                f"models: found {len(self.models)} models, expected one or two: the page compares two. `hfcomp "
                "compare` and `hfcomp evaluate` take more."
            )
