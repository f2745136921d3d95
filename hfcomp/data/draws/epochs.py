"""Draws by seed, epoch and row alone: the same on any number of processes and workers, and after a resume."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from hfcomp.data.loading import TrainingRows


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


class DrawnRows(TrainingRows):
    """Training rows of which something is drawn in each epoch; a subclass names it and draws it.

    Args:
        rows: the training rows, of which something else may be drawn.
        seed: of the draws.

    Attributes:
        what: is drawn; with seed, epoch and row it makes the draw.
    """

    what: str

    def __init__(self, rows: TrainingRows, *, seed: int) -> None:
        self.rows = rows
        self.dataset = rows.dataset
        self.seed = seed

    @property
    def features(self) -> dict[str, Any]:
        """As of the rows, before anything is drawn; likewise the columns."""
        return self.rows.features

    def column(self, name: str) -> list[Any]:
        """A column of all rows, before anything is drawn."""
        return self.rows.column(name)

    def batch_column(self, name: str) -> list[Any]:
        """A column of all rows that a batch may hold, before anything is drawn."""
        return self.rows.batch_column(name)

    def number_of_entries(self, name: str) -> int:
        """How many rows have something in a column; 0 without the column."""
        return self.rows.number_of_entries(name)

    def draw(self, row: dict[str, Any], random_numbers: random.Random) -> dict[str, Any]:
        """A row with what is drawn of it."""
        raise TypeError(f"{type(self).__name__} does not say how a row is drawn: define draw().")

    def __getitems__(self, indices: list[int | tuple[int, int]]) -> list[dict[str, Any]]:
        """Rows by `(index, epoch)`; an index alone is of epoch 0."""
        wanted = [index if isinstance(index, tuple) else (index, 0) for index in indices]
        read = self.rows.__getitems__(wanted if isinstance(self.rows, DrawnRows) else [row for row, _ in wanted])
        return [
            self.draw(row, random.Random(f"{self.what} {self.seed} {epoch} {index}"))
            for row, (index, epoch) in zip(read, wanted, strict=True)
        ]
