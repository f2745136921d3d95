"""The rows of a source by image: a concept is of an image with all its captions, in one row or several."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from datasets import Dataset, Features, List, Value
from numpy.typing import NDArray

from hfcomp.data.image_ids import IMAGE_ID, image_key

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
    """Groups rows by `image_id`; a row without one, or a source without the column, is an image of its own.

    Args:
        source: with `caption`, a text or a list of texts.

    Raises:
        ValueError: for an `image_id` that is neither a text nor a whole number, naming the row.
    """
    columns = [name for name in (IMAGE_ID, CAPTION) if name in source.column_names]
    ids: dict[str, int] = {}
    texts: list[list[str]] = []
    image_of, number_of = [], []
    row = 0
    for batch in source.select_columns(columns).iter(_ROWS_AT_A_TIME):
        values = batch.get(IMAGE_ID, [None] * len(batch[CAPTION]))
        for value, captions in zip(values, batch[CAPTION], strict=True):
            image = ids.setdefault(_name(value, row), len(texts))
            if image == len(texts):
                texts.append([])
            found = [captions] if isinstance(captions, str) else captions or []
            found = [text for text in found if text and text.strip()]
            texts[image] += found
            image_of.append(image)
            number_of.append(len(found))
            row += 1
    images = Dataset.from_dict({IMAGE_ID: list(ids), CAPTION: texts}, features=_FEATURES)
    return ImageRows(images, np.array(image_of, np.int64), np.array(number_of, np.int64))


def _name(value: object, row: int) -> str:
    """The id as a text; of a row without one a name that no other row has."""
    return f"row {row}" if image_key(value, row) < 0 else str(value)
