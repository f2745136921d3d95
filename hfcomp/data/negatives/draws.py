"""Negative captions sampled in every epoch, instead of the first ones of a row."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from hfcomp.data.loading import TrainingRows

ALIGNED = ("negative_captions", "negative_kinds", "negative_concreteness")


class EpochOrder(torch.utils.data.Sampler[tuple[int, int]]):
    """An order of rows with the epoch in each index, so that workers know it too.

    Args:
        order: of the rows, with `set_epoch` if epochs differ.
    """

    def __init__(self, order: torch.utils.data.Sampler[int]) -> None:
        self.order = order
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch begins."""
        self.epoch = epoch
        if hasattr(self.order, "set_epoch"):
            self.order.set_epoch(epoch)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch = self.epoch
        for row in self.order:
            yield row, epoch


class DrawnNegatives(TrainingRows):
    """Training rows with their negatives shuffled per row and epoch, masked ones last.

    Whoever reads the first `K` reads `K` drawn from all. A draw depends on `seed`, epoch and row only.

    Args:
        rows: the training rows.
        seed: of the draws.
    """

    def __init__(self, rows: TrainingRows, *, seed: int) -> None:
        self.rows = rows
        self.dataset = rows.dataset
        self.seed = seed

    def __getitems__(self, indices: list[int | tuple[int, int]]) -> list[dict[str, Any]]:
        """Rows by `(index, epoch)`; an index alone is of epoch 0."""
        wanted = [index if isinstance(index, tuple) else (index, 0) for index in indices]
        read = self.rows.__getitems__([row for row, _ in wanted])
        return [
            with_drawn_order(row, random.Random(f"negatives {self.seed} {epoch} {index}"))
            for row, (index, epoch) in zip(read, wanted, strict=True)
        ]


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
