"""Probes: does a classifier separate captions from negatives without the image, or images without the caption?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.analysis.audit.checks import Check, unchecked
from hfcomp.analysis.audit.choices import FOLDS, NO_PAIRS, folds
from hfcomp.analysis.audit.decided import decided, signs_of
from hfcomp.analysis.audit.reading import AuditSet

STEPS = 1000
FEWEST = 2 * FOLDS
NO_SKLEARN = 'it needs scikit-learn: pip install "hfcomp[eval]"'


def text_probe(data: AuditSet, seed: int = 0) -> Check:
    """Pairs that a logistic regression of words and pairs of words decides, trained on the texts of other images.

    Args:
        data: the set.
        seed: of the folds.
    """
    if not len(data.pairs):
        return unchecked("text_probe", NO_PAIRS)
    try:
        from sklearn.feature_extraction.text import CountVectorizer
    except ImportError:
        return unchecked("text_probe", NO_SKLEARN)
    # punctuation counts: a generator that ends its sentences is known by it
    counter = CountVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", binary=True, min_df=2)
    try:
        features = counter.fit_transform([*data.pairs["caption"], *data.pairs["negative"]])
    except ValueError:  # of scikit-learn, where no word is left
        return unchecked("text_probe", "no word is in two texts")
    return probe("text_probe", features, data.pairs["image_id"].tolist(), data, seed)


def probe(name: str, features: Any, images: Sequence[str], data: AuditSet, seed: int = 0, *, note: str = "") -> Check:
    """Pairs that a probe trained on other images, or its reverse, decides; a tie counts half.

    Args:
        name: of the check.
        features: `[2 n, D]`, of the n true ones, then of the n negatives; may be sparse.
        images: `[n]`, of each pair; all pairs of an image are in one fold.
        data: the set, for the interval.
        seed: of the folds.
        note: what a reader has to know of the number.
    """
    number = len(images)
    if len(set(images)) < FEWEST:
        return unchecked(name, f"{len(set(images))} images are too few for {FOLDS} folds: it takes {FEWEST}")
    fold_of = folds(images, seed)
    of_pair = np.array([fold_of[one] for one in images])
    of_row = np.concatenate([of_pair, of_pair])
    labels = np.repeat([1, 0], number)
    scores = np.zeros(2 * number)
    for fold in range(FOLDS):
        out = of_row == fold
        model = _regression()
        model.fit(features[np.flatnonzero(~out)], labels[~out])
        scores[out] = model.decision_function(features[np.flatnonzero(out)])
    signs = signs_of(scores[:number], scores[number:])
    bootstrap = data.bootstrap if set(images) <= set(data.pairs["image_id"]) else None
    return decided(name, signs, images, bootstrap, either_way=True, facts={"folds": FOLDS}, reason=note)


def embedding_features(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Vectors `[n, D]` centred and scaled as a whole, so that one strength of the penalty suits every encoder."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    return centred / max(float(centred.std()), 1e-12)


def _regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=0.1, max_iter=STEPS, tol=1e-3)
