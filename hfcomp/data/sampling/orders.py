"""Orders of rows: batches without duplicate texts or images, and batches of texts of similar length."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from hfcomp.data.image_ids import image_key
from hfcomp.data.row_values import text_key
from hfcomp.data.sampling.draws import EpochSampler
from hfcomp.data.tokenizing import TextTokenizer

_Key = tuple[str, int]


class RowKeys(NamedTuple):
    """Keys of a row that may occur only once in a batch, restricted to keys that another row has too."""

    true: tuple[_Key, ...]  # captions and image
    false: tuple[_Key, ...]  # negative captions, which must not be the caption of another row

    @classmethod
    def from_columns(
        cls,
        captions: Sequence[Any],
        image_ids: Sequence[Any] | None = None,
        negative_captions: Sequence[Any] | None = None,
    ) -> list[RowKeys]:
        """Builds keys from the columns of a training set; if one caption of a list is drawn, all of them count."""
        true = [_text_keys(caption) for caption in captions]
        if image_ids is not None:
            for row, value in enumerate(image_ids):
                true[row].add(("image", image_key(value, row)))
        false = [_text_keys(texts) for texts in negative_captions or [None] * len(true)]
        # A key counts once for each row that has it. Only keys shared by several rows matter, but two negatives may
        # share a key.
        number = Counter(key for keys in true for key in keys)
        number.update(set().union(*false))
        nothing = cls((), ())  # one object for all rows that share nothing, which are most
        kept = (
            cls(*(tuple(sorted(key for key in keys if number[key] > 1)) for keys in row))
            for row in zip(true, false, strict=True)
        )
        return [keys if keys != nothing else nothing for keys in kept]


def _text_keys(texts: Any) -> set[_Key]:
    """Returns the keys of a text or of all texts in a (nested) list; empty if missing."""
    if isinstance(texts, list | tuple):
        return set().union(*map(_text_keys, texts))
    return {("text", text_key(texts))} if isinstance(texts, str) and texts.strip() else set()


class NoDuplicatesOrder(EpochSampler):
    """An order of rows in which all rows of a global batch have different captions and show different images.

    A row that shares a key with a batch waits for a later batch. If no batch is left for a waiting row when all other
    rows are used, it is left out of the epoch, and other rows are repeated in the free places. The order depends only
    on `seed`, the epoch and the original order; if no two rows share a key, it equals the original order.

    Attributes:
        left_out: Number of rows left out of the last planned epoch.
        repeated: Number of repetitions in that epoch.
    """

    def __init__(
        self, order: torch.utils.data.Sampler[int], keys: Sequence[RowKeys], *, batch_size: int, seed: int
    ) -> None:
        self.order, self.keys, self.batch_size, self.seed = order, keys, batch_size, seed
        self.left_out = self.repeated = 0
        self._planned: tuple[int, list[int]] = (-1, [])

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        return iter(self.plan(self.epoch))

    def plan(self, epoch: int) -> list[int]:
        # A plan takes seconds for millions of rows, and `ReplayDraws` requests it for every batch.
        if self._planned[0] == epoch:
            return self._planned[1]
        if hasattr(self.order, "set_epoch"):
            self.order.set_epoch(epoch)
        rows, waiting = iter(self.order), dict[_Key, deque[int]]()
        draw = random.Random(f"no duplicates {self.seed} {epoch}")
        planned: list[int] = []
        while len(planned) < len(self):
            size = min(self.batch_size, len(self) - len(planned))
            batch = _Batch(self.keys, size)
            # Waiting rows come first, because frequent captions would otherwise be delayed to the end of the epoch.
            batch.take_waiting(waiting)
            while not batch.is_full and (row := next(rows, None)) is not None:
                blocked = batch.add(row)
                # Each key has a queue, and only its head is tried, so a batch checks few of the waiting rows.
                if blocked is not None:
                    waiting.setdefault(blocked, deque()).append(row)
            if not batch.is_full:
                self._repeat(batch, draw)
            planned += batch.rows
        number = Counter(planned)
        self.left_out, self.repeated = len(self) - len(number), sum(count - 1 for count in number.values())
        self._planned = epoch, planned
        return planned

    def _repeat(self, batch: _Batch, draw: random.Random) -> None:
        used = set(batch.rows)
        for row in self._any_order(draw):
            if row not in used and batch.add(row) is None:
                used.add(row)
            if batch.is_full:
                return
        raise ValueError(
            f"no_duplicates: the {len(self.keys):,} rows cannot fill a batch of {self.batch_size} with different "
            f"captions and images; only {len(batch.rows)} rows fit. Lower per_device_train_batch_size."
        )

    def _any_order(self, draw: random.Random) -> Iterator[int]:
        # A few random rows are almost always enough. Shuffling all rows for each batch would be slow in a large
        # dataset.
        yield from (draw.randrange(len(self.keys)) for _ in range(20 * self.batch_size))
        yield from draw.sample(range(len(self.keys)), len(self.keys))


class _Batch:
    """Rows of a batch that share no keys."""

    def __init__(self, keys: Sequence[RowKeys], size: int) -> None:
        self.keys, self.size = keys, size
        self.rows: list[int] = []
        self._true, self._false = set[_Key](), set[_Key]()

    @property
    def is_full(self) -> bool:
        return len(self.rows) >= self.size

    def add(self, row: int) -> _Key | None:
        """Adds a row and returns None, or returns the key that the batch already contains."""
        true, false = self.keys[row]
        for key in self._shared_keys(true, false):
            return key
        self.rows.append(row)
        self._true.update(true)
        self._false.update(false)
        return None

    def _shared_keys(self, true: Iterable[_Key], false: Iterable[_Key]) -> Iterator[_Key]:
        # A true text must not be in the batch at all. A negative may equal another row's negative, but not a caption.
        yield from (key for key in true if key in self._true or key in self._false)
        yield from (key for key in false if key in self._true)

    def take_waiting(self, waiting: dict[_Key, deque[int]]) -> None:
        for key in list(waiting):
            if self.is_full:
                return
            if self.add(waiting[key][0]) is None:
                waiting[key].popleft()
            if not waiting[key]:
                del waiting[key]


GROUPED_BATCHES = 16
"""Number of batches that are sorted together."""


class LengthGroupedOrder(EpochSampler):
    """An order of rows in which batches contain texts of similar length and are otherwise as random as possible.

    Rows are shuffled. Then the rows of 16 batches at a time are sorted by length and split into batches, and all
    batches of the epoch are shuffled. So a row is batched with rows of about its length, different ones in each epoch.
    The rows left over from whole batches are random too and come last. The order depends only on seed and epoch.
    """

    def __init__(self, lengths: Sequence[int], *, batch_size: int, seed: int) -> None:
        self.lengths = torch.as_tensor(lengths)
        self.batch_size = batch_size
        self.seed = seed

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        rows = torch.randperm(len(self), generator=generator)
        # Sort within a window of batches, because sorting all rows would give every epoch the same batches.
        whole = len(rows) - len(rows) % self.batch_size
        parts = rows[:whole].split(GROUPED_BATCHES * self.batch_size)
        batches = [
            batch for part in parts for batch in part[self.lengths[part].argsort(stable=True)].split(self.batch_size)
        ]
        for index in torch.randperm(len(batches), generator=generator).tolist():
            yield from batches[index].tolist()
        yield from rows[whole:].tolist()


def text_lengths(rows: Any, tokenizer: TextTokenizer, *, num_negatives: int) -> list[int]:
    longest = [len(ids) for ids in _tokens(rows.column("caption"), tokenizer)]
    if num_negatives:
        for row, texts in enumerate(rows.column("negative_captions")):
            ids = _tokens(texts[:num_negatives], tokenizer)
            longest[row] = max(longest[row], *map(len, ids))
    return longest


def _tokens(texts: Sequence[str | None], tokenizer: TextTokenizer) -> list[list[int]]:
    return tokenizer([text or "" for text in texts])[0]
