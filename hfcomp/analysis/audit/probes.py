"""Probes of words and embeddings, and negatives that a dual encoder finds truer than the caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.analysis.audit.checks import Check, Example, decided, share, signs_of, unchecked
from hfcomp.analysis.audit.images import NO_IMAGES
from hfcomp.analysis.audit.options import AuditOptions
from hfcomp.analysis.audit.reading import IMAGES, AuditSet
from hfcomp.analysis.audit.texts import FOLDS, NO_PAIRS, folds
from hfcomp.data.images import SKIP_ADVICE, DamagedImage
from hfcomp.data.overlap.image_columns import each_cell
from hfcomp.data.publishing import without_local_paths
from hfcomp.evaluation.cells import CellsWithout, damaged_images, is_missing
from hfcomp.evaluation.encoding.cache import open_cache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.embedded import indexed_cosines
from hfcomp.evaluation.models import open_embedder

STEPS = 1000
FEWEST = 2 * FOLDS
NO_SKLEARN = 'it needs scikit-learn: pip install "hfcomp[eval]"'


def text_probe(data: AuditSet, seed: int = 0) -> Check:
    """Pairs that a logistic regression of words and pairs of words decides, trained on the texts of other images."""
    if not len(data.pairs):
        return unchecked("text_probe", NO_PAIRS)
    try:
        from sklearn.feature_extraction.text import CountVectorizer
    except ImportError:
        return unchecked("text_probe", NO_SKLEARN)
    # Punctuation counts: it gives away a generator that ends its sentences.
    counter = CountVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", binary=True, min_df=2)
    try:
        features = counter.fit_transform([*data.pairs["caption"], *data.pairs["negative"]])
    except ValueError:  # of scikit-learn, where no word is left
        return unchecked("text_probe", "no word is in two texts")
    return probe("text_probe", features, data.pairs["image_id"].tolist(), data, seed)


def probe(name: str, features: Any, images: Sequence[str], data: AuditSet, seed: int = 0, *, note: str = "") -> Check:
    """Pairs that a probe trained on other images, or its reverse, decides; a tie counts half.

    Args:
        features: `[2 n, D]`, of the n true ones, then of the n negatives; may be sparse.
        images: `[n]`, of each pair; all pairs of an image are in one fold.
    """
    number = len(images)
    if len(set(images)) < FEWEST:
        return unchecked(name, f"{len(set(images))} images are too few for {FOLDS} folds: it takes {FEWEST}")
    fold_of = folds(images, seed)
    of_pair = np.array([fold_of[one] for one in images])
    # A caption and its negative share most words: in different folds, the probe would learn the pair and not the rule.
    of_row = np.concatenate([of_pair, of_pair])
    labels = np.repeat([1, 0], number)
    scores = np.zeros(2 * number)
    for fold in range(FOLDS):
        out = of_row == fold
        model = _regression()
        model.fit(features[np.flatnonzero(~out)], labels[~out])
        scores[out] = model.decision_function(features[np.flatnonzero(out)])
    signs = signs_of(scores[:number], scores[number:])
    # Rows without a pair can be probed by their images, but the bootstrap draws images of pairs only.
    bootstrap = data.bootstrap if set(images) <= set(data.pairs["image_id"]) else None
    return decided(name, signs, images, bootstrap, either_way=True, facts={"folds": FOLDS}, reason=note)


def embedding_features(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Vectors `[n, D]` centered and scaled as a whole, so that one strength of the penalty suits every encoder."""
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    return centered / max(float(centered.std()), 1e-12)


def _regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=0.1, max_iter=STEPS, tol=1e-3)


NAMES = ("embedding_probe", "image_probe", "true_negatives")
NO_MODEL = "it needs a dual encoder: --model ID"
NO_NEGATIVE_IMAGES = "the set has no negative images"


def model_checks(data: AuditSet, options: AuditOptions, *, progress: bool = False) -> list[Check]:
    """The checks of `NAMES`; without a model they are not made."""
    if options.model is None:
        reasons = {"image_probe": NO_MODEL if set(IMAGES) <= data.images.keys() else NO_NEGATIVE_IMAGES}
        return [unchecked(name, reasons.get(name, NO_MODEL if len(data.pairs) else NO_PAIRS)) for name in NAMES]
    cache = open_cache(not options.no_cache)
    embedder = open_embedder(options.model, cache=cache, batch_size=options.batch_size, device=options.device)
    shown = without_damaged(data, progress=progress) if options.skip_damaged else data
    try:
        # Texts are never damaged, so their probe uses the whole set.
        found = [
            embedding_probe(data, embedder, options.seed, progress=progress),
            image_probe(shown, embedder, options.seed, progress=progress),
            true_negatives(shown, embedder, options.margin, options.examples, progress=progress),
        ]
    except DamagedImage as error:
        raise DamagedImage(f"{error} {SKIP_ADVICE}") from error
    cache.trim()
    return found


def without_damaged(data: AuditSet, *, progress: bool = False) -> AuditSet:
    """The set without its damaged images, which are counted in a note of `data`."""
    images = dict(data.images)
    for column, cells in data.images.items():
        damaged = damaged_images(cells, column, progress=progress)
        if damaged:
            first = without_local_paths(next(iter(damaged.values())))
            data.notes.append(
                f"{len(damaged):,} of {len(data):,} rows have a damaged {column!r}, which --model is not shown; the "
                f"first: {first}"
            )
            images[column] = CellsWithout(cells, damaged)
    return replace(data, images=images)


def embedding_probe(data: AuditSet, embedder: Embedder, seed: int = 0, *, progress: bool = False) -> Check:
    if not len(data.pairs):
        return unchecked("embedding_probe", NO_PAIRS)
    if not _has_sklearn():
        return unchecked("embedding_probe", NO_SKLEARN)
    # Both sides are indexed in one call, so equal texts are encoded once.
    found = embedder.index_texts([*data.pairs["caption"], *data.pairs["negative"]], progress=progress)
    features = embedding_features(found.take(slice(None)))
    return probe("embedding_probe", features, data.pairs["image_id"].tolist(), data, seed)


def image_probe(data: AuditSet, embedder: Embedder, seed: int = 0, *, progress: bool = False) -> Check:
    if not set(IMAGES) <= data.images.keys():
        return unchecked("image_probe", NO_NEGATIVE_IMAGES)
    if not _has_sklearn():
        return unchecked("image_probe", NO_SKLEARN)
    cells = [[cell for _, cell in each_cell(data.images[name], range(len(data)))] for name in IMAGES]
    rows = [row for row, both in enumerate(zip(*cells, strict=True)) if not any(map(is_missing, both))]
    if not rows:
        return unchecked("image_probe", NO_NEGATIVE_IMAGES)
    vectors = [
        embedder.index_images([own[row] for row in rows], column=name, progress=progress)
        for name, own in zip(IMAGES, cells, strict=True)
    ]
    features = embedding_features(np.concatenate([one.take(slice(None)) for one in vectors]))
    absent = len(data) - len(rows)
    note = f"{absent:,} of {len(data):,} rows lack one of both images and are not probed" if absent else ""
    return probe("image_probe", features, [data.image_ids[row] for row in rows], data, seed, note=note)


def true_negatives(
    data: AuditSet, embedder: Embedder, margin: float, examples: int = 0, *, progress: bool = False
) -> Check:
    """Pairs whose negative has a higher cosine with the image than the caption has, by more than a margin.

    A model's preference is a hint to look, not a proof: it may be the model that is wrong.
    """
    name = "true_negatives"
    if not len(data.pairs) or not data.first_rows:
        return unchecked(name, NO_PAIRS if not len(data.pairs) else NO_IMAGES)
    rows = data.pairs["row"].to_numpy()
    images = embedder.index_images(data.images["image"], progress=progress)
    texts = embedder.index_texts([*data.pairs["caption"], *data.pairs["negative"]], progress=progress)
    own, other = (
        indexed_cosines(images.vectors, images.index[rows], texts.vectors, part)
        for part in (texts.index[: len(rows)], texts.index[len(rows) :])
    )
    # The cosine with a missing image is NaN.
    there = np.flatnonzero(np.isfinite(own))
    change = (other - own)[there]
    # Strongest preferences come first, equal ones in the set's order.
    worst = there[np.argsort(-change, kind="stable")][: min(examples, int((change > margin).sum()))]
    shown = [_example(data, place, float(other[place] - own[place])) for place in worst.tolist()]
    facts: dict[str, Any] = {
        "margin": margin,
        "pairs": int((change > margin).sum()),
        "preferred": int((change > 0).sum()),
    }
    absent = len(rows) - len(there)
    note = f"{absent:,} of {len(rows):,} pairs have no image and are not judged" if absent else ""
    ids: Sequence[str] = data.pairs["image_id"].to_numpy()[there]
    return share(name, change > margin, ids, data.bootstrap, facts=facts, examples=shown, reason=note)


def _example(data: AuditSet, place: int, change: float) -> Example:
    pair = data.pairs.iloc[place]
    words = f"the negative is preferred by {change:.3f} in cosine"
    return Example(int(pair["row"]), pair["caption"], pair["negative"], words, images=("image",))


def _has_sklearn() -> bool:
    from importlib.util import find_spec

    return find_spec("sklearn") is not None
