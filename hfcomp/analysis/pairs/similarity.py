"""Numbers of every pair: edits of words, comparisons and logit gaps of a dual encoder, cosines of images and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.analysis.pairs.items import PairSet, image_features
from hfcomp.data.images import Unreadable
from hfcomp.evaluation.cells import CellsWithout, damaged_images
from hfcomp.evaluation.encoding.embed import Embedder, Indexed
from hfcomp.evaluation.encoding.embedded import Numbers, indexed_cosines
from hfcomp.metrics.choice import all_higher

CAPTION_IMAGE, NEGATIVE_IMAGE = "caption and image", "negative caption and image"
CAPTION_WRONG_IMAGE, WRONG_PAIR = "caption and negative image", "negative caption and negative image"

PUNCTUATION = ".,;:!?\"'()[]"


@dataclass
class Scores:
    """Measures by name, one value for each of n pairs; NaN for a pair without the measure."""

    values: dict[str, Numbers] = field(default_factory=dict)  # `[n]` each
    ties: dict[str, NDArray[np.bool_]] = field(default_factory=dict)  # `[n]`, for the numbers that are 0 or 1

    def judge(self, name: str, *comparisons: tuple[Numbers, Numbers]) -> None:
        """Adds whether all comparisons of a pair are strictly right; NaN where one is missing.

        Args:
            comparisons: the cosines that have to be higher, and those that have to be lower.
        """
        outcome = all_higher(*comparisons)
        # A comparison with NaN is false, which would count a missing image as a wrong answer.
        known = np.logical_and.reduce([np.isfinite(high + low) for high, low in comparisons])
        self.values[name] = np.where(known, outcome.correct.astype(float), np.nan)
        self.ties[name] = outcome.tie

    def tied(self, name: str) -> dict[str, float]:
        """The number of ties and their share of the pairs, where the number is a comparison."""
        if name not in self.ties:
            return {}
        # A pair with a missing image was not compared.
        ties = self.ties[name][np.isfinite(self.values[name])]
        return {"ties": int(ties.sum()), "tie_rate": float(ties.mean())}


def words_of(text: str) -> list[str]:
    """Words for comparing: split at blanks, lower-cased, without punctuation around them.

    Our choice: the paper does not say how it counts. A generator that drops the full stop has changed no word.
    """
    return [word for word in (part.strip(PUNCTUATION) for part in text.lower().split()) if word]


def word_edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """The fewest insertions, deletions and replacements of words from one text to the other (Levenshtein)."""
    # Most negatives differ in one place: equal words at both ends are skipped, which leaves a tiny table.
    start, ends = 0, [len(first), len(second)]
    while start < min(ends) and first[start] == second[start]:
        start += 1
    while min(ends) > start and first[ends[0] - 1] == second[ends[1] - 1]:
        ends = [end - 1 for end in ends]
    first, second = first[start : ends[0]], second[start : ends[1]]
    row = list(range(len(second) + 1))
    for place, word in enumerate(first, start=1):
        diagonal, row[0] = row[0], place
        for column, other in enumerate(second, start=1):
            diagonal, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, diagonal + (word != other))
    return row[-1]


class ImageEncoder(Protocol):
    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """Vectors of the distinct images; an image that is `None` gets none."""


class PairImages:
    """The columns `image` and `negative_image` of a set.

    Attributes:
        columns: those that the set has.
    """

    def __init__(self, pairs: PairSet, *, progress: bool = False) -> None:
        self._pairs, self._progress = pairs, progress
        used = set(pairs.items["row"])
        unused = set(range(len(pairs.dataset))) - used
        self.columns = image_features(pairs)
        # Rows without a pair are not encoded.
        self._without = {column: set(unused) for column in self.columns}
        self._scanned: set[str] = set()

    def index(self, encoder: ImageEncoder, column: str) -> Indexed:
        """Encodes a column; where an image cannot be read all are tried, and the bad ones left out and counted."""
        try:
            return self._encode(encoder, column)
        except Unreadable:
            # Trying each image takes as long as encoding them, so it waits for the first failure.
            if column in self._scanned or not self._scan(column):
                raise
        return self._encode(encoder, column)

    def readable(self, column: str, row: int) -> bool:
        if row in self._without[column]:
            return False
        cells = self._pairs.dataset.select([row])[column]
        return cells[0] is not None and not damaged_images(cells, column)

    def _encode(self, encoder: ImageEncoder, column: str) -> Indexed:
        cells = CellsWithout(self._pairs.dataset[column], self._without[column])
        return encoder.index_images(cells, column=column, progress=self._progress)

    def _scan(self, column: str) -> bool:
        self._scanned.add(column)
        cells = CellsWithout(self._pairs.dataset[column], self._without[column])
        reasons = damaged_images(cells, column, progress=self._progress)
        if not reasons:
            return False
        row, reason = min(reasons.items())
        there = sum(cell is not None for cell in cells)
        if len(reasons) == there:
            raise ValueError(f"{self._pairs.source}: none of the {there:,} images can be read; the first: {reason}")
        self._without[column] |= reasons.keys()
        self._pairs.note(
            f"{len(reasons):,} of {there:,} images of column {column!r} cannot be read and are left out; the first, "
            f"in row {row}: {reason}"
        )
        return True


def word_scores(items: pd.DataFrame) -> Scores:
    """Numbers that need no model: word edit distance, and of keywords whether they have two words, or more."""
    pairs = zip(items["caption"], items["negative_caption"], strict=True)
    distance = np.array([word_edit_distance(words_of(one), words_of(other)) for one, other in pairs], dtype=float)
    found = Scores({"word edit distance": distance, "concreteness": items["concreteness"].to_numpy(float)})
    keywords = items["keyword"].fillna("")
    if keywords.any():
        # A pair without a keyword counts in neither share.
        lengths = keywords.map(lambda text: len(text.split()) or np.nan).to_numpy(float)
        found.values["words of the keyword"] = lengths
        for name, holds in (("bi-gram keywords", lengths == 2), ("longer keywords", lengths > 2)):
            found.values[name] = np.where(np.isnan(lengths), np.nan, holds.astype(float))
    return found


def image_similarity(pairs: PairSet, images: PairImages, encoder: ImageEncoder) -> Numbers:
    """`[n]`: the cosine of image and negative image."""
    index = {column: images.index(encoder, column) for column in images.columns}
    return _within(indexed_cosines(*_of_images(pairs, index, "image"), *_of_images(pairs, index, "negative_image")))


def dual_encoder_scores(pairs: PairSet, images: PairImages, embedder: Embedder, *, progress: bool = False) -> Scores:
    """All that a dual encoder says of the pairs, as far as there are images."""
    items, number = pairs.items, len(pairs.items)
    texts = embedder.index_texts([*items["caption"], *items["negative_caption"]], progress=progress)
    if texts.flagged:
        pairs.note(f"{texts.flagged:,} texts are longer than a model's text tower and are cut for it")
    caption, negative = ((texts.vectors, part) for part in (texts.index[:number], texts.index[number:]))
    found = Scores({"CLIP-L": _within(indexed_cosines(*caption, *negative))})
    index = {column: images.index(embedder, column) for column in images.columns}
    if "image" in index:
        image = _of_images(pairs, index, "image")
        own, other = indexed_cosines(*image, *caption), indexed_cosines(*image, *negative)
        scale = float(embedder.backbone.logit_scale.detach().exp())
        found.values |= {CAPTION_IMAGE: own, NEGATIVE_IMAGE: other, "I2T logit gap": scale * (own - other)}
        found.judge("I2T accuracy", (own, other))
        if "negative_image" in index:
            wrong_image = _of_images(pairs, index, "negative_image")
            found.values["CLIP-V"] = _within(indexed_cosines(*image, *wrong_image))
            elsewhere, wrong = (indexed_cosines(*wrong_image, *text) for text in (caption, negative))
            _compare(found, own, other, elsewhere, wrong, scale)
    return found


def _compare(found: Scores, own: Numbers, other: Numbers, elsewhere: Numbers, wrong: Numbers, scale: float) -> None:
    found.values |= {CAPTION_WRONG_IMAGE: elsewhere, WRONG_PAIR: wrong, "T2I logit gap": scale * (own - elsewhere)}
    found.judge("T2I accuracy", (own, elsewhere))
    images, captions = ((own, other), (wrong, elsewhere)), ((own, elsewhere), (wrong, other))
    found.judge("both images", *images)
    found.judge("both captions", *captions)
    found.judge("group", *images, *captions)
    # The four comparisons of a pair. If an image is missing, the result is NaN and not wrong.
    four = [np.where(np.isnan(high + low), np.nan, high > low) for high, low in (*images, *captions)]
    found.values["pair accuracy"] = np.mean(four, axis=0)


def _of_images(
    pairs: PairSet, index: Mapping[str, Indexed], column: str
) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    """Vectors of the distinct images of a column and `[n]`, which of them each pair has, -1 for none."""
    rows = index[column].index[pairs.items["row"].to_numpy()]
    if column == "negative_image":  # it shows the first negative caption
        rows = np.where(pairs.items["place"].to_numpy() == 0, rows, -1)
    return index[column].vectors, rows


def _within(cosines: Numbers) -> Numbers:
    """Cosines without what rounding adds to those of equal vectors; comparisons see them as they are."""
    return np.clip(cosines, -1.0, 1.0)
