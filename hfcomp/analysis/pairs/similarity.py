"""Numbers of every pair: word edits, comparisons and logit gaps of a dual encoder, cosines of images and texts."""

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
from hfcomp.modeling import similarity_scale

CAPTION_IMAGE, NEGATIVE_IMAGE = "caption and image", "negative caption and image"
CAPTION_WRONG_IMAGE, WRONG_PAIR = "caption and negative image", "negative caption and negative image"

PUNCTUATION = ".,;:!?\"'()[]"


@dataclass
class Scores:
    """Measures by name with one value per pair, n in total; NaN for a pair without the measure."""

    values: dict[str, Numbers] = field(default_factory=dict)  # `[n]` each
    ties: dict[str, NDArray[np.bool_]] = field(default_factory=dict)  # `[n]`, for measures that are 0 or 1

    def judge(self, name: str, *comparisons: tuple[Numbers, Numbers]) -> None:
        """Adds whether all comparisons of a pair are strictly right; NaN if a comparison is missing.

        Args:
            comparisons: Cosines that must be higher, each with the cosines that must be lower.
        """
        outcome = all_higher(*comparisons)
        # A comparison with NaN is False, which would count a missing image as a wrong answer.
        known = np.logical_and.reduce([np.isfinite(high + low) for high, low in comparisons])
        self.values[name] = np.where(known, outcome.correct.astype(float), np.nan)
        self.ties[name] = outcome.tie

    def tie_counts(self, name: str) -> dict[str, float]:
        """Returns the number of ties and their share of the pairs; empty if the measure is not a comparison."""
        if name not in self.ties:
            return {}
        # A pair with a missing image was not compared.
        ties = self.ties[name][np.isfinite(self.values[name])]
        return {"ties": int(ties.sum()), "tie_rate": float(ties.mean())}


def words_of(text: str) -> list[str]:
    """Splits a text into words to compare: lowercase, split at spaces, without surrounding punctuation.

    This is our choice, because the paper does not specify it. A generator that drops the full stop changes no word.
    """
    return [word for word in (part.strip(PUNCTUATION) for part in text.lower().split()) if word]


def word_edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Returns the minimum number of word insertions, deletions and replacements between two texts (Levenshtein)."""
    # Most negatives differ in one place. Skipping equal words at both ends leaves a tiny table.
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
        """Returns one vector per distinct image. An image that is `None` gets no vector."""


class PairImages:
    """Image columns `image` and `negative_image` of a dataset.

    Attributes:
        columns: Names of the existing columns.
    """

    def __init__(self, pairs: PairSet, *, progress: bool = False) -> None:
        self._pairs, self._progress = pairs, progress
        used = set(pairs.items["row"])
        unused = set(range(len(pairs.dataset))) - used
        self.columns = image_features(pairs)
        # Do not encode rows without a pair.
        self._without = {column: set(unused) for column in self.columns}
        self._scanned: set[str] = set()

    def index(self, encoder: ImageEncoder, column: str) -> Indexed:
        """Encodes a column. If an image is unreadable, then leaves out and counts all unreadable images."""
        try:
            return self._encode(encoder, column)
        except Unreadable:
            # Checking every image takes as long as encoding, so do it only after the first failure.
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
        present = sum(cell is not None for cell in cells)
        if len(reasons) == present:
            raise ValueError(f"{self._pairs.source}: none of the {present:,} images can be read. The first: {reason}")
        self._without[column] |= reasons.keys()
        self._pairs.note(
            f"{len(reasons):,} of {present:,} images of column {column!r} cannot be read and are left out; the first, "
            f"in row {row}: {reason}"
        )
        return True


def word_scores(items: pd.DataFrame) -> Scores:
    """Computes numbers that need no model: word edit distance, concreteness, and the number of words of keywords."""
    pairs = zip(items["caption"], items["negative_caption"], strict=True)
    distance = np.array(
        [word_edit_distance(words_of(caption), words_of(negative)) for caption, negative in pairs], dtype=float
    )
    scores = Scores({"word edit distance": distance, "concreteness": items["concreteness"].to_numpy(float)})
    keywords = items["keyword"].fillna("")
    if keywords.any():
        # A pair without a keyword counts in neither share.
        lengths = keywords.map(lambda text: len(text.split()) or np.nan).to_numpy(float)
        scores.values["words of the keyword"] = lengths
        for name, holds in (("bi-gram keywords", lengths == 2), ("longer keywords", lengths > 2)):
            scores.values[name] = np.where(np.isnan(lengths), np.nan, holds.astype(float))
    return scores


def image_similarity(pairs: PairSet, images: PairImages, encoder: ImageEncoder) -> Numbers:
    """Returns the cosine `[n]` of image and negative image."""
    index = {column: images.index(encoder, column) for column in images.columns}
    return _clip_cosines(
        indexed_cosines(*_pair_vectors(pairs, index, "image"), *_pair_vectors(pairs, index, "negative_image"))
    )


def dual_encoder_scores(pairs: PairSet, images: PairImages, embedder: Embedder, *, progress: bool = False) -> Scores:
    """Scores the pairs with a dual encoder. Without images, only some of the numbers exist."""
    items, number = pairs.items, len(pairs.items)
    texts = embedder.index_texts([*items["caption"], *items["negative_caption"]], progress=progress)
    if texts.flagged:
        pairs.note(f"{texts.flagged:,} texts are too long for the model's text tower and are truncated")
    caption, negative = ((texts.vectors, part) for part in (texts.index[:number], texts.index[number:]))
    scores = Scores({"CLIP-L": _clip_cosines(indexed_cosines(*caption, *negative))})
    index = {column: images.index(embedder, column) for column in images.columns}
    if "image" in index:
        image = _pair_vectors(pairs, index, "image")
        own, other = indexed_cosines(*image, *caption), indexed_cosines(*image, *negative)
        scale = float(similarity_scale(embedder.backbone).detach())
        scores.values |= {CAPTION_IMAGE: own, NEGATIVE_IMAGE: other, "I2T logit gap": scale * (own - other)}
        scores.judge("I2T accuracy", (own, other))
        if "negative_image" in index:
            wrong_image = _pair_vectors(pairs, index, "negative_image")
            scores.values["CLIP-V"] = _clip_cosines(indexed_cosines(*image, *wrong_image))
            wrong_image_scores, wrong = (indexed_cosines(*wrong_image, *text) for text in (caption, negative))
            _add_image_comparisons(scores, own, other, wrong_image_scores, wrong, scale)
    return scores


def _add_image_comparisons(
    scores: Scores, own: Numbers, other: Numbers, with_wrong_image: Numbers, wrong: Numbers, scale: float
) -> None:
    scores.values |= {
        CAPTION_WRONG_IMAGE: with_wrong_image,
        WRONG_PAIR: wrong,
        "T2I logit gap": scale * (own - with_wrong_image),
    }
    scores.judge("T2I accuracy", (own, with_wrong_image))
    images, captions = ((own, other), (wrong, with_wrong_image)), ((own, with_wrong_image), (wrong, other))
    scores.judge("both images", *images)
    scores.judge("both captions", *captions)
    scores.judge("group", *images, *captions)
    # The four comparisons of a pair. A missing image gives NaN instead of a wrong answer.
    four = [np.where(np.isnan(high + low), np.nan, high > low) for high, low in (*images, *captions)]
    scores.values["pair accuracy"] = np.mean(four, axis=0)


def _pair_vectors(
    pairs: PairSet, index: Mapping[str, Indexed], column: str
) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    """Returns the vectors of a column's distinct images, and the index `[n]` of each pair's vector, -1 for none."""
    rows = index[column].index[pairs.items["row"].to_numpy()]
    if column == "negative_image":  # a negative image shows the first negative caption
        rows = np.where(pairs.items["place"].to_numpy() == 0, rows, -1)
    return index[column].vectors, rows


def _clip_cosines(cosines: Numbers) -> Numbers:
    """Clips cosines to [-1, 1], since rounding may exceed it for equal vectors. Comparisons use unclipped cosines."""
    return np.clip(cosines, -1.0, 1.0)
