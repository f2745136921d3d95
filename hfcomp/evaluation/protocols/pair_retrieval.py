"""Images by a caption each and captions by their image, where rows may share images or captions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.encoding.embedded import EmbeddedItems, ScoredItems
from hfcomp.evaluation.protocols.caption_choice import CHANCE, CHOICE_PAIRS
from hfcomp.evaluation.spec import ASPECTS, COMPOSITIONAL, GENERAL, BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.choice import all_higher
from hfcomp.metrics.retrieval import rank_bounds, recall_chance

TEXT_TO_IMAGE, IMAGE_TO_TEXT = "text-to-image", "image-to-text"


def same_image_or_caption(images: Sequence[str], captions: Sequence[str]) -> NDArray[np.bool_]:
    """Which image is right for which caption, where rows share images or captions.

    A caption is right for every image that has it in some row; so the rows that share an image or a caption are right
    for each other, and a copy of a right image is never a wrong one.

    Args:
        images: name of each row's image.
        captions: of each row.

    Returns:
        `[n, n]`: row i's caption for row j's image. It takes n * n bytes.
    """
    image = np.unique(np.asarray(images, dtype=object), return_inverse=True)[1]
    caption = np.unique(np.asarray(captions, dtype=object), return_inverse=True)[1]
    together = np.zeros((caption.max() + 1, image.max() + 1), dtype=bool)
    together[caption, image] = True
    return together[caption[:, None], image[None, :]]


@dataclass(frozen=True)
class PairRetrieval(ScoringProtocol):
    """Columns `image` and `caption`, one pair per row; [`same_image_or_caption`] defines the positives, by `image_id`.

    `Retrieval` is for images with all their captions in one row.

    Attributes:
        k: of recall@k.
        directions: which of text-to-image and image-to-text.
    """

    texts = ("caption",)
    all_pairs = True

    k: tuple[int, ...] = (1,)
    directions: tuple[str, ...] = (TEXT_TO_IMAGE, IMAGE_TO_TEXT)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return tuple(f"{direction} recall@{k}" for direction in self.directions for k in self.k)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """Recall@k in each direction; chance is that of a random order, the same for all rows."""
        rows = embedded.items.rows
        right = same_image_or_caption(rows["image_id"][:], rows["caption"][:])
        image, text = embedded.image("image", slice(None)), embedded.text("caption", slice(None))
        for direction in self.directions:
            asked, keys, positive = (text, image, right) if direction == TEXT_TO_IMAGE else (image, text, right.T)
            ranks = rank_bounds(asked, keys, positive)
            for k in self.k:
                found = ranks.within(k)
                yield Measured(f"{direction} recall@{k}", found.correct, found.tie, _chance(positive, k))


def _chance(positive: NDArray[np.bool_], k: int) -> float:
    number = positive.sum(axis=1)
    if k == 1 or (number == 1).all():
        return k * int(number.sum()) / positive.size
    return float(recall_chance(number, len(positive), k).mean())


@dataclass(frozen=True)
class PairsAndNegatives(PairRetrieval):
    """[`PairRetrieval`], and in rows with `negative_captions` the choice of the caption against the first of them."""

    optional_texts = ("negative_captions",)
    beyond_pairs = "recall"

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return (*FirstNegative().metric_names, *super().metric_names)

    def pairs(self, items: BenchmarkData) -> Sequence[tuple[str, str]]:
        """Where there are negatives, the image with its caption and the first of them."""
        return CHOICE_PAIRS if "negative_captions" in items.rows.column_names else ()

    def text_choice(self, items: BenchmarkData) -> ScoringProtocol | None:
        """The choice of the caption, where rows have a negative."""
        return FirstNegative() if "negative_captions" in items.rows.column_names else None

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """The metric "caption choice" as composition, and the recalls as general abilities; they need embeddings."""
        yield from FirstNegative().score(scored)
        if isinstance(scored, EmbeddedItems):
            for measured in super().score(scored):
                yield replace(measured, aspect=ASPECTS[GENERAL])


@dataclass(frozen=True)
class FirstNegative(ScoringProtocol):
    """Columns `image`, `caption`, `negative_captions`, which a row may lack: the caption or the first of them?"""

    texts = ("caption",)
    optional_texts = ("negative_captions",)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return ("caption choice",)

    def text_choice(self, items: BenchmarkData) -> FirstNegative:
        """All of it."""
        return self

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """The metric "caption choice" of the rows that have a negative."""
        column = scored.columns.get("negative_captions")
        if column is not None:
            rows = np.flatnonzero((column.ragged(slice(None)) >= 0).any(axis=1))
            chosen = all_higher(tuple(scored.scores(*pair, rows) for pair in CHOICE_PAIRS))
            yield Measured("caption choice", chosen.correct, chosen.tie, CHANCE, rows, aspect=ASPECTS[COMPOSITIONAL])
