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
    """Images decoded and resized once, to train from (pixel_cache)."""

    what: ClassVar[str] = "pixels"
    source: Annotated[str, "Hub id, folder or file of the training set, as dataset of a recipe."]
    model: Annotated[str, "Hub id or folder of the model that is trained; only its processor is loaded."]
    output: Annotated[Path, "Folder of the store; images are added to one that is there."]
    split: Annotated[str, "Split of the source."] = "train"
    config: Annotated[str | None, "Configuration of the source."] = None
    column_names: Annotated[ColumnNames, "hfcomp's name=the source's name of columns, as image=photo; or JSON."] = ""
    limit: Annotated[Count | None, "Read the first N rows only."] = None
    num_workers: Annotated[Size, "Processes that decode beside this one; 0 decodes in this one."] = 0
    max_image_pixels: Annotated[Count, "An image with more is left out."] = MAX_IMAGE_PIXELS
    allow_urls: AllowUrls = False
    url_timeout: UrlTimeout = DEFAULT_TIMEOUT
