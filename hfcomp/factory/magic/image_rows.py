"""The rows of a source by image: a concept is of an image with all its captions, in one row or several."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from datasets import Dataset, Features, List, Value
from numpy.typing import NDArray

from hfcomp.data.image_ids import IMAGE_ID, image_key, photographs_or_rows
from hfcomp.data.pair_table import texts_of

CAPTION = "caption"
_FEATURES = Features({IMAGE_ID: Value("string"), CAPTION: List(Value("string"))})
_ROWS_AT_A_TIME = 10_000


@dataclass(frozen=True)
class ImageRows:
    """Images of a source.

    Attributes:
        images: a row for each image, in the order of their first rows: `image_id`, `caption` (a list, all of them).
        image_of: `[rows of the source]`, the row in `images` of each.
        captions: `[rows of the source]`, how many captions each has.
    """

    images: Dataset
    image_of: NDArray[np.int64]
    captions: NDArray[np.int64]


def image_rows(source: Dataset) -> ImageRows:
    """Groups rows by photograph, as [`photographs_or_rows`] knows it.

    Args:
        source: with `caption`, a text or a list of texts.
    """
    names = photographs_or_rows(_check_ids(source))
    ids: dict[str, int] = {}
    texts: list[list[str]] = []
    image_of, number_of = [], []
    row = 0
    for batch in source.select_columns([CAPTION]).iter(_ROWS_AT_A_TIME):
        for captions in batch[CAPTION]:
            image = ids.setdefault(names[row], len(texts))
            if image == len(texts):
                texts.append([])
            found = texts_of(captions)
            texts[image] += found
            image_of.append(image)
            number_of.append(len(found))
            row += 1
    images = Dataset.from_dict({IMAGE_ID: list(ids), CAPTION: texts}, features=_FEATURES)
    return ImageRows(images, np.array(image_of, np.int64), np.array(number_of, np.int64))


def _check_ids(source: Dataset) -> Dataset:
    """The source, whose ids are texts or whole numbers."""
    for row, value in enumerate(source[IMAGE_ID] if IMAGE_ID in source.column_names else ()):
        image_key(value, row)  # raises
    return source
