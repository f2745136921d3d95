"""Batches of rows whose texts are about equally long, so that little of them is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hfcomp.data.tokenizing import TextTokenizer

GROUPED_BATCHES = 16
"""Batches that are sorted together."""


class LengthGroupedOrder(torch.utils.data.Sampler[int]):
    """An order of rows in which batches hold texts of like length, and are as random as that allows.

    Rows are shuffled; those of 16 batches at a time are sorted by length and cut into batches, and all batches of the
    epoch are shuffled. A row meets others of about its length, drawn anew in each epoch. Which rows make no whole
    batch is random too: they come last. The order depends on seed and epoch alone.

    Args:
        lengths: of the rows' texts, in tokens.
        batch_size: rows of a batch over all processes.
        seed: of the shuffles.
    """

    def __init__(self, lengths: Sequence[int], *, batch_size: int, seed: int) -> None:
        self.lengths = torch.as_tensor(lengths)
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.lengths)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch begins."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        rows = torch.randperm(len(self), generator=generator)
        whole = len(rows) - len(rows) % self.batch_size
        parts = rows[:whole].split(GROUPED_BATCHES * self.batch_size)
        batches = [
            batch for part in parts for batch in part[self.lengths[part].argsort(stable=True)].split(self.batch_size)
        ]
        for index in torch.randperm(len(batches), generator=generator).tolist():
            yield from batches[index].tolist()
        yield from rows[whole:].tolist()


def text_lengths(rows: Any, tokenizer: TextTokenizer, *, num_negatives: int) -> list[int]:
    """The tokens of each row's longest text.

    Args:
        rows: training rows with the column `caption`.
        tokenizer: the model's.
        num_negatives: of `negative_captions`, those that are read.

    Returns:
        One number for each row, at least 1.
    """
    longest = [len(ids) for ids in _tokens(rows.column("caption"), tokenizer)]
    if num_negatives:
        for row, texts in enumerate(rows.column("negative_captions")):
            ids = _tokens(texts[:num_negatives], tokenizer)
            longest[row] = max(longest[row], *(len(one) for one in ids))
    return longest


def _tokens(texts: Sequence[str | None], tokenizer: TextTokenizer) -> list[list[int]]:
    return tokenizer([text or "" for text in texts])[0]
