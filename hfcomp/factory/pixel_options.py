"""Options of `hfcomp build pixels`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from hfcomp.data.images import MAX_IMAGE_PIXELS
from hfcomp.data.urls import DEFAULT_TIMEOUT
from hfcomp.factory.options import ColumnNames
from hfcomp.options import AllowUrls, Count, Options, Size, UrlTimeout


@dataclass(kw_only=True)
class PixelOptions(Options):
    """A store of images decoded and resized once, for training (pixel_cache)."""

    what: ClassVar[str] = "pixels"
    source: Annotated[str, "Hub id, folder or file of the training set, as in the recipe field dataset."]
    model: Annotated[str, "Hub id or folder of the model to train; only its processor is loaded."]
    output: Annotated[Path, "Folder of the store; images are added to an existing store."]
    split: Annotated[str, "Split of the source."] = "train"
    config: Annotated[str | None, "Configuration of the source."] = None
    column_names: Annotated[
        ColumnNames, "Mapping from hfcomp's column names to yours, for example image=photo, or JSON."
    ] = ""
    limit: Annotated[Count | None, "Read only the first N rows."] = None
    num_workers: Annotated[Size, "Number of additional processes for decoding; with 0, this process decodes."] = 0
    max_image_pixels: Annotated[Count, "Leave out images with more pixels."] = MAX_IMAGE_PIXELS
    allow_urls: AllowUrls = False
    url_timeout: UrlTimeout = DEFAULT_TIMEOUT
