"""Images by their captions and captions by their images, among those of the whole set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.spec import Measured, ScoringProtocol
from hfcomp.metrics.retrieval import rank_bounds, recall_chance


@dataclass(frozen=True)
class Retrieval(ScoringProtocol):
    """Columns `image` and `captions`, a list: a row is an image with all its captions.

    An image's own captions are right for it, and no other row's, even where they read the same (the practice of the
    field); captions that read the same as one of another image tie with it.

    Attributes:
        k: of recall@k. In a direction where some query has fewer than `k` wrong keys, as every text has for recall@5
            among five images, nobody could miss it and recall@k is left out; of a single image nothing is left.
    """

    texts = ("captions",)
    all_pairs = True

    k: tuple[int, ...] = (1, 5, 10)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return tuple(f"{way} recall@{k}" for way in ("text-to-image", "image-to-text") for k in self.k)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """Recall@k in both directions, of each `k` that can be missed; chance is that of a random order."""
        image = embedded.image("image", slice(None))
        column = embedded.columns["captions"]
        there = column.index >= 0
        owner = np.repeat(np.arange(len(image)), np.diff(column.offsets))[there]
        text = embedded.text_vectors.take(column.index[there])
        place = np.arange(len(column.index)) - column.offsets[:-1].repeat(np.diff(column.offsets))
        names = np.asarray(embedded.items.rows["item"][:], dtype=object)
        queries = [f"{names[row]}/{number}" for row, number in zip(owner, place[there], strict=True)]

        to_image = rank_bounds(text, image, lambda start, stop: owner[start:stop, None] == np.arange(len(image)))
        to_text = rank_bounds(image, text, lambda start, stop: np.arange(start, stop)[:, None] == owner)
        own = np.bincount(owner, minlength=len(image))
        for k in [k for k in self.k if k < len(image)]:
            found = to_image.within(k)
            chance = k / len(image)
            yield Measured(f"text-to-image recall@{k}", found.correct, found.tie, chance, rows=owner, items=queries)
        for k in [k for k in self.k if k <= len(text) - own.max()]:
            found = to_text.within(k)
            yield Measured(f"image-to-text recall@{k}", found.correct, found.tie, recall_chance(own, len(text), k))
