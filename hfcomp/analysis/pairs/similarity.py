"""What models say of every pair: comparisons and logit gaps of a dual encoder, and cosines within images and texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.analysis.pairs.images import ImageEncoder, PairImages
from hfcomp.analysis.pairs.items import PairSet
from hfcomp.analysis.pairs.words import word_edit_distance, words_of
from hfcomp.evaluation.encoding.embed import Embedder, Indexed
from hfcomp.evaluation.encoding.embedded import Numbers, indexed_cosines
from hfcomp.metrics.choice import all_higher

CAPTION_IMAGE, NEGATIVE_IMAGE = "caption and image", "negative caption and image"
CAPTION_WRONG_IMAGE, WRONG_PAIR = "caption and negative image", "negative caption and negative image"


@dataclass
class Scores:
    """Numbers of each of n pairs by name; NaN where a pair has none.

    Attributes:
        values: `[n]` each.
        ties: `[n]` bool, of those that are 0 or 1.
    """

    values: dict[str, Numbers] = field(default_factory=dict)
    ties: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    def judge(self, name: str, *comparisons: tuple[Numbers, Numbers]) -> None:
        """Adds whether all comparisons of a pair are strictly right; NaN where one is missing.

        Args:
            name: of the number.
            comparisons: the cosines that have to be higher, and those that have to be lower.
        """
        outcome = all_higher(*comparisons)
        known = np.logical_and.reduce([np.isfinite(high + low) for high, low in comparisons])
        self.values[name] = np.where(known, outcome.correct.astype(float), np.nan)
        self.ties[name] = outcome.tie


def word_scores(items: pd.DataFrame) -> Scores:
    """Numbers that need no model: word edit distance, and of keywords whether they have two words, or more."""
    pairs = zip(items["caption"], items["negative_caption"], strict=True)
    distance = np.array([word_edit_distance(words_of(one), words_of(other)) for one, other in pairs], dtype=float)
    found = Scores({"word edit distance": distance, "concreteness": items["concreteness"].to_numpy(float)})
    keywords = items["keyword"].fillna("")
    if keywords.any():
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
    """All that a dual encoder says of the pairs, as far as there are images.

    Args:
        pairs: the set; a note in it counts texts that the model cuts.
        images: of the set.
        embedder: the model.
        progress: whether to show bars.
    """
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
    """What needs a negative image.

    Args:
        found: that receives it.
        own: `[n]`, cosines of caption and image.
        other: of negative caption and image.
        elsewhere: of caption and negative image.
        wrong: of negative caption and negative image.
        scale: from a cosine to a logit.
    """
    found.values |= {CAPTION_WRONG_IMAGE: elsewhere, WRONG_PAIR: wrong, "T2I logit gap": scale * (own - elsewhere)}
    found.judge("T2I accuracy", (own, elsewhere))
    images, captions = ((own, other), (wrong, elsewhere)), ((own, elsewhere), (wrong, other))
    found.judge("both images", *images)
    found.judge("both captions", *captions)
    found.judge("group", *images, *captions)
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
