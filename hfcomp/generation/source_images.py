"""The stage that comes before all that read images: rows without a readable one are set aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hfcomp.data.images import decode_image
from hfcomp.data.publishing import without_local_paths
from hfcomp.generation.shards import BAD_IMAGE, SET_ASIDE, Batch

NO_IMAGE = "no image"


def make_image_check() -> Callable[[Batch], Batch]:
    """The stage that sets rows aside whose image cannot be decoded."""

    def images(batch: Batch) -> Batch:
        return batch | {SET_ASIDE: [_objection(image) for image in batch["image"]]}

    return images


def _objection(image: Any) -> str | None:
    if image is None or (image["bytes"] is None and not image["path"]):
        return NO_IMAGE
    try:
        decode_image(image)
    except (ValueError, OSError) as error:
        return f"{BAD_IMAGE}: {without_local_paths(str(error))}"
    return None
