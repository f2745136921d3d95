"""Which edited images are set aside: those without content, those without a change, those of the wrong caption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from hfcomp.evaluation.encoding.embed import Embedder

SAFETY_CHECKER = "negative image blanked by the safety checker"
BLANK = "negative image of one colour"
UNCHANGED = "negative image unchanged"
WRONG_CAPTION = "negative image nearer to the original caption"


def is_blank(image: Image.Image, *, below: float) -> bool:
    """Whether an image is of one colour, as the black ones that overflows in half precision leave.

    Args:
        image: RGB.
        below: standard deviation of 255 levels that some channel has to reach.
    """
    return bool(np.asarray(image, dtype=np.float32).std(axis=(0, 1)).max() < below)


def is_unchanged(image: Image.Image, source: Image.Image, *, below: float) -> bool:
    """Whether an edited image is the one that the pipeline was given.

    Args:
        image: RGB.
        source: RGB, of the same size.
        below: root of the mean squared difference of 255 levels that it has to reach.
    """
    difference = np.asarray(image, dtype=np.float32) - np.asarray(source, dtype=np.float32)
    return bool(np.sqrt(np.square(difference).mean()) < below)


class PairFilter:
    """Finds negative images that a dual encoder does not find nearer to the negative caption than to the original one.

    Args:
        model: Hub id or folder.
        device: where it runs.
    """

    def __init__(self, model: str, *, device: str | None) -> None:
        self._embedder = Embedder(model, device=device)

    def __call__(self, images: Sequence[Any], captions: Sequence[str], negatives: Sequence[str]) -> list[bool]:
        """Whether each image is to be left out; one as near to both captions is.

        Args:
            images: negative images, as rows hold them.
            captions: the original captions.
            negatives: the negative captions.
        """
        vectors = self._embedder.images(images, column="negative_image")
        texts = self._embedder.texts([*captions, *negatives]).vectors
        original, negative = texts[: len(captions)], texts[len(captions) :]
        return ((vectors * negative).sum(-1) <= (vectors * original).sum(-1)).tolist()
