"""Groups a source's rows by image: a concept comes from all captions of an image, in one row or several."""

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
        images: A row per image, in the order of first rows, with `image_id` and the list of all captions, `caption`.
        image_of: `[rows of the source]`, the row in `images` of each source row.
        captions: `[rows of the source]`, the number of captions of each source row.
    """

    images: Dataset
    image_of: NDArray[np.int64]
    captions: NDArray[np.int64]


def image_rows(source: Dataset) -> ImageRows:
    """Groups rows by photograph, as identified by [`photographs_or_rows`].

    Args:
        source: Rows with `caption`, a string or a list of strings.
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
            own_texts = texts_of(captions)
            texts[image] += own_texts
            image_of.append(image)
            number_of.append(len(own_texts))
            row += 1
    images = Dataset.from_dict({IMAGE_ID: list(ids), CAPTION: texts}, features=_FEATURES)
    return ImageRows(images, np.array(image_of, np.int64), np.array(number_of, np.int64))


def _check_ids(source: Dataset) -> Dataset:
    """Returns the source if its ids are texts or whole numbers, and raises otherwise."""
    for row, value in enumerate(source[IMAGE_ID] if IMAGE_ID in source.column_names else ()):
        image_key(value, row)  # raises
    return source
