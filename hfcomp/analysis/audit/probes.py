"""Probes of words and embeddings, and a search for negatives that a dual encoder prefers to the caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.analysis.audit.checks import Check, Example, decision_check, decision_signs, share, skipped_check
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
NO_SKLEARN = 'needs scikit-learn: pip install "hfcomp[eval]"'


def text_probe(data: AuditSet, seed: int = 0) -> Check:
    """Checks pairs decided by a logistic regression on words and word pairs, trained on texts of other images."""
    if not len(data.pairs):
        return skipped_check("text_probe", NO_PAIRS)
    try:
        from sklearn.feature_extraction.text import CountVectorizer
    except ImportError:
        return skipped_check("text_probe", NO_SKLEARN)
    # Punctuation counts as a word, because it gives away a generator that ends its sentences.
    counter = CountVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", binary=True, min_df=2)
    try:
        features = counter.fit_transform([*data.pairs["caption"], *data.pairs["negative"]])
    except ValueError:  # scikit-learn raises it if no word is left
        return skipped_check("text_probe", "no word occurs in two texts")
    return probe("text_probe", features, data.pairs["image_id"].tolist(), data, seed)


def probe(name: str, features: Any, images: Sequence[str], data: AuditSet, seed: int = 0, *, note: str = "") -> Check:
    """Checks pairs decided by a probe, or its reverse, trained on other images; a tie counts as one half.

    Args:
        features: Features `[2 n, D]` of the n true items, then of the n negatives; may be sparse.
        images: Image ids `[n]` of the pairs. All pairs of an image are in the same fold.
    """
    number = len(images)
    if len(set(images)) < FEWEST:
        return skipped_check(
            name, f"{len(set(images))} images are too few for {FOLDS} folds: at least {FEWEST} are needed"
        )
    fold_of = folds(images, seed)
    pair_folds = np.array([fold_of[image] for image in images])
    # A caption and its negative share most words. In different folds, the probe would learn the pair, not the rule.
    row_folds = np.concatenate([pair_folds, pair_folds])
    labels = np.repeat([1, 0], number)
    scores = np.zeros(2 * number)
    for fold in range(FOLDS):
        held_out = row_folds == fold
        model = _regression()
        model.fit(features[np.flatnonzero(~held_out)], labels[~held_out])
        scores[held_out] = model.decision_function(features[np.flatnonzero(held_out)])
    signs = decision_signs(scores[:number], scores[number:])
    # Rows without a pair can be probed by their images, but the bootstrap only draws images of pairs.
    bootstrap = data.bootstrap if set(images) <= set(data.pairs["image_id"]) else None
    return decision_check(name, signs, images, bootstrap, either_way=True, facts={"folds": FOLDS}, reason=note)


def embedding_features(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Centers and scales vectors `[n, D]` as a whole to make one penalty strength suit every encoder."""
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    return centered / max(float(centered.std()), 1e-12)


def _regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=0.1, max_iter=STEPS, tol=1e-3)


NAMES = ("embedding_probe", "image_probe", "true_negatives")
NO_MODEL = "needs a dual encoder: --model ID"
NO_NEGATIVE_IMAGES = "the dataset has no negative images"


def model_checks(data: AuditSet, options: AuditOptions, *, progress: bool = False) -> list[Check]:
    """Runs the checks of `NAMES`. Without a model, returns them as skipped."""
    if options.model is None:
        reasons = {"image_probe": NO_MODEL if set(IMAGES) <= data.images.keys() else NO_NEGATIVE_IMAGES}
        return [skipped_check(name, reasons.get(name, NO_MODEL if len(data.pairs) else NO_PAIRS)) for name in NAMES]
    cache = open_cache(not options.no_cache)
    embedder = open_embedder(options.model, cache=cache, batch_size=options.batch_size, device=options.device)
    readable = without_damaged(data, progress=progress) if options.skip_damaged else data
    try:
        # Texts are never damaged, so their probe uses the whole dataset.
        checks = [
            embedding_probe(data, embedder, options.seed, progress=progress),
            image_probe(readable, embedder, options.seed, progress=progress),
            true_negatives(readable, embedder, options.margin, options.examples, progress=progress),
        ]
    except DamagedImage as error:
        raise DamagedImage(f"{error} {SKIP_ADVICE}") from error
    cache.trim()
    return checks


def without_damaged(data: AuditSet, *, progress: bool = False) -> AuditSet:
    """Returns the dataset without its damaged images, and adds their number to the notes of `data`."""
    images = dict(data.images)
    for column, cells in data.images.items():
        damaged = damaged_images(cells, column, progress=progress)
        if damaged:
            first = without_local_paths(next(iter(damaged.values())))
            data.notes.append(
                f"{len(damaged):,} of {len(data):,} rows have a damaged {column!r} and are left out for --model; the "
                f"first: {first}"
            )
            images[column] = CellsWithout(cells, damaged)
    return replace(data, images=images)


def embedding_probe(data: AuditSet, embedder: Embedder, seed: int = 0, *, progress: bool = False) -> Check:
    if not len(data.pairs):
        return skipped_check("embedding_probe", NO_PAIRS)
    if not _has_sklearn():
        return skipped_check("embedding_probe", NO_SKLEARN)
    # Index both sides in one call to encode equal texts only once.
    texts = embedder.index_texts([*data.pairs["caption"], *data.pairs["negative"]], progress=progress)
    features = embedding_features(texts.take(slice(None)))
    return probe("embedding_probe", features, data.pairs["image_id"].tolist(), data, seed)


def image_probe(data: AuditSet, embedder: Embedder, seed: int = 0, *, progress: bool = False) -> Check:
    if not set(IMAGES) <= data.images.keys():
        return skipped_check("image_probe", NO_NEGATIVE_IMAGES)
    if not _has_sklearn():
        return skipped_check("image_probe", NO_SKLEARN)
    cells = [[cell for _, cell in each_cell(data.images[name], range(len(data)))] for name in IMAGES]
    rows = [row for row, pair in enumerate(zip(*cells, strict=True)) if not any(map(is_missing, pair))]
    if not rows:
        return skipped_check("image_probe", NO_NEGATIVE_IMAGES)
    vectors = [
        embedder.index_images([own[row] for row in rows], column=name, progress=progress)
        for name, own in zip(IMAGES, cells, strict=True)
    ]
    features = embedding_features(np.concatenate([indexed.take(slice(None)) for indexed in vectors]))
    missing = len(data) - len(rows)
    note = f"{missing:,} of {len(data):,} rows lack an image or a negative image and are not probed" if missing else ""
    return probe("image_probe", features, [data.image_ids[row] for row in rows], data, seed, note=note)


def true_negatives(
    data: AuditSet, embedder: Embedder, margin: float, examples: int = 0, *, progress: bool = False
) -> Check:
    """Checks for pairs whose negative exceeds the caption in cosine with the image by more than a margin.

    A model's preference is a reason to look at a pair, not a proof. The model may be wrong.
    """
    name = "true_negatives"
    if not len(data.pairs) or not data.first_rows:
        return skipped_check(name, NO_PAIRS if not len(data.pairs) else NO_IMAGES)
    rows = data.pairs["row"].to_numpy()
    images = embedder.index_images(data.images["image"], progress=progress)
    texts = embedder.index_texts([*data.pairs["caption"], *data.pairs["negative"]], progress=progress)
    own, other = (
        indexed_cosines(images.vectors, images.index[rows], texts.vectors, part)
        for part in (texts.index[: len(rows)], texts.index[len(rows) :])
    )
    # The cosine with a missing image is NaN.
    present = np.flatnonzero(np.isfinite(own))
    change = (other - own)[present]
    # Strongest preferences come first, ties in the order of the dataset.
    worst = present[np.argsort(-change, kind="stable")][: min(examples, int((change > margin).sum()))]
    worst_examples = [_example(data, index, float(other[index] - own[index])) for index in worst.tolist()]
    facts: dict[str, Any] = {
        "margin": margin,
        "pairs": int((change > margin).sum()),
        "preferred": int((change > 0).sum()),
    }
    missing = len(rows) - len(present)
    note = f"{missing:,} of {len(rows):,} pairs have no image and are not scored" if missing else ""
    ids: Sequence[str] = data.pairs["image_id"].to_numpy()[present]
    return share(name, change > margin, ids, data.bootstrap, facts=facts, examples=worst_examples, reason=note)


def _example(data: AuditSet, index: int, change: float) -> Example:
    pair = data.pairs.iloc[index]
    note = f"the model prefers the negative by {change:.3f} in cosine"
    return Example(int(pair["row"]), pair["caption"], pair["negative"], note, images=("image",))


def _has_sklearn() -> bool:
    from importlib.util import find_spec

    return find_spec("sklearn") is not None
