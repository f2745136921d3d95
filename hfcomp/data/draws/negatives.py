"""Negative captions sampled in every epoch, instead of the first ones of a row."""

from __future__ import annotations

import random
from typing import Any

from hfcomp.data.draws.epochs import DrawnRows

ALIGNED = ("negative_captions", "negative_kinds", "negative_concreteness")


class DrawnNegatives(DrawnRows):
    """Training rows with their negatives shuffled per row and epoch, masked ones last.

    Whoever reads the first `K` reads `K` drawn from all. A draw depends on `seed`, epoch and row only.

    Args:
        rows: the training rows.
        seed: of the draws.
    """

    what = "negatives"

    def draw(self, row: dict[str, Any], random_numbers: random.Random) -> dict[str, Any]:
        """See `with_drawn_order`."""
        return with_drawn_order(row, random_numbers)


def with_drawn_order(row: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """A row with its negatives in random order, those that are empty last, and with each what is said of it.

    Columns that do not fit each other stay as they are, for the collator to refuse.
    """
    columns = {name: row[name] for name in ALIGNED if row.get(name) is not None}
    texts = columns.get("negative_captions")
    if texts is None or any(not isinstance(values, list) or len(values) != len(texts) for values in columns.values()):
        return row
    valid = [index for index, text in enumerate(texts) if text is not None and str(text).strip()]
    empty = [index for index in range(len(texts)) if index not in valid]
    order = [*draw.sample(valid, len(valid)), *empty]
    return {**row, **{name: [values[index] for index in order] for name, values in columns.items()}}
