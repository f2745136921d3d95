"""Options of `hfcomp build pixels`; the fields are its options, their descriptions its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hfcomp.data.images import MAX_IMAGE_PIXELS
from hfcomp.data.urls import DEFAULT_TIMEOUT


@dataclass(kw_only=True)
class PixelOptions:
    """Images decoded and resized once, to train from (pixel_cache).

    Attributes:
        source: Hub id, folder or file of the training set, as dataset of a recipe.
        model: Hub id or folder of the model that is trained; only its processor is loaded.
        output: folder of the store; images are added to one that is there.
        split: of the source.
        config: the source's configuration.
        column_names: hfcomp's name=the source's name, as image=photo; or JSON.
        limit: read the first N rows only.
        num_workers: processes that decode beside this one; 0 decodes in this one.
        max_image_pixels: an image with more is left out.
        allow_urls: fetch images that the data names by URL; only for data you trust.
        url_timeout: seconds for one image.
    """

    what: ClassVar[str] = "pixels"
    source: str
    model: str
    output: Path
    split: str = "train"
    config: str | None = None
    column_names: str = ""
    limit: int | None = None
    num_workers: int = 0
    max_image_pixels: int = MAX_IMAGE_PIXELS
    allow_urls: bool = False
    url_timeout: float = DEFAULT_TIMEOUT

    def __post_init__(self) -> None:
        for name in ("limit", "max_image_pixels"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name}: found {number}, expected 1 or more.")
        if self.num_workers < 0:
            raise ValueError(f"num_workers: found {self.num_workers}, expected 0 or more.")
