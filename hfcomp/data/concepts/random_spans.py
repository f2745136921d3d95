"""Training rows whose phrases are runs of words from anywhere in their captions, as many and as long."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from datasets import Dataset

from hfcomp.data.loading import TrainingRows
from hfcomp.fields import FIELDS, columns_of

_WORD = re.compile(r"\S+")


class RandomSpans(TrainingRows):
    """Training rows with `concepts` and `concept_spans` drawn at random; a row has the same ones whenever it is read.

    Args:
        dataset: in the column contract, with `concepts`.
        seed: of the draws.
    """

    def __init__(self, dataset: Dataset, seed: int) -> None:
        super().__init__(dataset, columns_of(FIELDS))
        self.seed = seed

    def column(self, name: str) -> list[Any]:
        """A column of all rows."""
        if name not in ("concepts", "concept_spans"):
            return super().column(name)
        texts = zip(super().column("caption"), super().column("concepts"), strict=True)
        return [self._drawn(index, *row)[name] for index, row in enumerate(texts)]

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        """Rows by index."""
        rows = super().__getitems__(indices)
        return [{**row, **self._drawn(row["row"], row["caption"], row["concepts"])} for row in rows]

    def _drawn(self, index: int, caption: Any, phrases: list[Any] | None) -> dict[str, list[Any]]:
        numbers = np.random.default_rng((self.seed, index))
        if isinstance(caption, list):  # with the phrases of each
            parts = [_spans(text, own, numbers) for text, own in zip(caption, phrases or [], strict=True)]
            return {name: [part[name] for part in parts] for name in ("concepts", "concept_spans")}
        return _spans(caption, phrases, numbers)


def _spans(caption: str | None, phrases: list[str] | None, numbers: np.random.Generator) -> dict[str, list[Any]]:
    spans = random_spans(caption or "", phrases or [], numbers)
    return {
        "concepts": [caption[start:end] for start, end in spans],
        "concept_spans": [[[start, end]] for start, end in spans],
    }


def random_spans(caption: str, phrases: list[str], generator: np.random.Generator) -> list[tuple[int, int]]:
    """Draw a run of words of the caption for each phrase, as long as it, every place as likely.

    Args:
        caption: words are what stands between spaces.
        phrases: only their numbers of words are read; a phrase longer than the caption gives all of it.
        generator: of the draws.

    Returns:
        Characters `(start, end)` in the caption, one for each phrase.
    """
    words = list(_WORD.finditer(caption))
    spans = []
    for phrase in phrases:
        length = min(len(words), max(1, len(phrase.split())))
        first = int(generator.integers(len(words) - length + 1))
        spans.append((words[first].start(), words[first + length - 1].end()) if words else (0, len(caption)))
    return spans
