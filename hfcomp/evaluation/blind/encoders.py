"""Blind encoders, which ignore everything a benchmark tests. Whatever they score, the benchmark gives away.

If a blind encoder is far from chance on a benchmark, the benchmark can be solved without the image; a model's own
score then means only how far it is above. SugarCrepe's ADD is the known case: in 99 of 100 items, the shorter caption
is the true one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.cells import distinct, image_key, is_missing, text_key

if TYPE_CHECKING:
    from hfcomp.evaluation.encoding.embed import Indexed

WIDTH = 64


class BlindEncoder:
    """Vectors computed from a key of an image or text, not from its content.

    Args:
        image: Function from an image's key to its vector `[D]` of length 1.
        text: Function from a text to its vector `[D]` of length 1.
    """

    def __init__(
        self, image: Callable[[bytes], NDArray[np.float32]], text: Callable[[str], NDArray[np.float32]]
    ) -> None:
        self._image = image
        self._text = text

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        keys = [
            None if is_missing(cell) else image_key(cell, f"column '{column}', row {row}")
            for row, cell in enumerate(images)
        ]
        return _index(keys, lambda key, _: self._image(key))

    def index_texts(self, texts: Sequence[str], *, progress: bool = False) -> Indexed:
        keys = [text_key(text, row) for row, text in enumerate(texts)]
        return _index(keys, lambda _, row: self._text(texts[row]))


def _index(keys: Sequence[bytes | None], vector: Callable[[bytes, int], NDArray[np.float32]]) -> Indexed:
    from hfcomp.evaluation.encoding.embed import (
        Indexed,  # imports torch, which --help does not need to list the encoders
    )

    distinct_keys, index, first = distinct(keys)
    vectors = [vector(key, row) for key, row in zip(distinct_keys, first, strict=True)]
    table = np.stack(vectors) if vectors else np.empty((0, WIDTH), dtype=np.float32)
    return Indexed(table, index, 0, len(table))


def _first(_: Any = None) -> NDArray[np.float32]:
    return np.eye(1, WIDTH, dtype=np.float32)[0]


def _random_vector(seed: bytes) -> NDArray[np.float32]:
    # Seeded by the key, so an image or text has the same vector in every run and process.
    vector = np.random.default_rng(np.frombuffer(seed, dtype=np.uint32)).standard_normal(WIDTH)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def _by_length(text: str) -> NDArray[np.float32]:
    angle = math.pi / 2 * len(text) / (len(text) + 100)  # grows with the length and never reaches a right angle
    vector = np.zeros(WIDTH, dtype=np.float32)
    vector[:2] = math.cos(angle), math.sin(angle)
    return vector


BLIND: dict[str, tuple[str, Callable[[], BlindEncoder]]] = {
    "constant": ("scores everything the same: 0 if ties are wrong", lambda: BlindEncoder(_first, _first)),
    "random": (
        "a fixed random vector for each image and text",
        lambda: BlindEncoder(_random_vector, lambda text: _random_vector(text_key(text, 0))),
    ),
    "shorter": ("the shorter text wins, whatever the image", lambda: BlindEncoder(_first, _by_length)),
}
"""Blind encoders by name, each with a description."""
