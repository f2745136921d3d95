"""Sandbox datasets in the column contract, generated once per seed and setting, then cached."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from datasets import (
    Dataset,
    Features,
    Image,
    List,
    Value,
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from datasets.fingerprint import Hasher

from hfcomp.data.columns import CONCEPT_FEATURES
from hfcomp.sandbox.drawing import KIND_WEIGHTS, KINDS
from hfcomp.sandbox.noise import Noise
from hfcomp.sandbox.ratings import Ratings, check_ratings
from hfcomp.sandbox.rows import (
    choice_rows,
    levels_rows,
    pretraining_rows,
    retrieval_rows,
    training_rows,
    zero_shot_rows,
)

MOST_RETRIEVAL_ROWS = 1000
# Replay scenes use the run's seed plus this number, because bases are pretrained on scenes of small seeds.
REPLAY_SEED = 1_000_000
# InpaintCOCO's name for the concept that a kind edits.
EDITED_CONCEPTS = {
    "replace_obj": "object",
    "replace_att": "color",
    "replace_size": "size",
    "replace_rel": "location",
}
_TEXT, _TEXTS = Value("string"), List(Value("string"))
_PAIR = {"image": Image(), "caption": _TEXT, "positive_captions": _TEXTS, "image_id": _TEXT}
_MEANING = {
    **CONCEPT_FEATURES,
    "group": _TEXT,
    "hard_negative_groups": _TEXTS,
    "generalized_caption": _TEXT,
    "level_1": _TEXT,
    "level_2": _TEXT,
    "level_3": _TEXT,
    "level_4": _TEXT,
    "source": _TEXT,
    "license": _TEXT,
}
_NEGATIVES = {
    "negative_captions": _TEXTS,
    "negative_kinds": _TEXTS,
    "negative_keywords": _TEXTS,
    "negative_categories": _TEXTS,
    "negative_concreteness": List(Value("float32")),
    "negative_image": Image(),
    "mask": Image(),
}


def pretraining_set(num_rows: int, seed: int, *, places: bool = False) -> Dataset:
    """Generates images with one true caption each, from which a small model learns words and becomes a bag of words.

    Args:
        num_rows: Number of rows, at least 1.
        seed: Non-negative random seed; the same seed gives the same rows.
        places: Whether most scenes have several things, with a caption that names one thing and its place.

    Returns:
        Columns `image` (36 x 36), `caption`, `image_id`, without scenes of the evaluation sets. Captions resemble
        alt-text: often tags, or the mention of one of several things.
    """
    columns = {name: _PAIR[name] for name in ("image", "caption", "image_id")}
    return _cached_rows(pretraining_rows, columns, num_rows=_check_count(num_rows), seed=seed, places=places)


def training_set(
    num_rows: int,
    seed: int,
    *,
    kind_weights: Mapping[str, float] | None = None,
    num_negatives: int = 1,
    edit_noise: float = 0.0,
    edit_noise_step: bool = False,
    caption_noise: float = 0.0,
    false_negatives: float = 0.0,
    ratings: Ratings = "bands",
) -> Dataset:
    """Generates images with a true caption, exact negative captions and the first negative's counterfactual image.

    Args:
        num_rows: Number of rows, at least 1.
        seed: Non-negative random seed; the same seed and settings give the same rows.
        kind_weights: Relative frequency of each of `KINDS` among the kinds that a caption allows. A missing kind does
            not occur. Defaults to `KIND_WEIGHTS`.
        num_negatives: Length of the negative lists. If a caption allows fewer kinds, the rest are empty strings.
        edit_noise: Probability that a counterfactual image does not show its change, for words with
            `hfcomp.sandbox.negatives.DRAWABILITY` of 3 or less. It falls to 0 at 5, whatever the ratings.
        edit_noise_step: Whether this probability is `edit_noise` for words of drawability below 4, and 0 for others.
        caption_noise: Probability that the caption contains a false word.
        false_negatives: Probability that the first negative caption is true of the image.
        ratings: Source of the column `negative_concreteness`: `bands`, our bands in the order of human norms, or
            `synthetic`, a made-up table. Neither contains human ratings.

    Returns:
        The columns of the training contract: `image`, `caption`, `positive_captions` (one paraphrase), the five
        `negative_*` lists, `negative_image`, `mask` (white where the images may differ), `concepts`, `concept_spans`
        (a list with one `[start, end)` per concept), `group` with `hard_negative_groups`, `generalized_caption`,
        `level_1` to `level_4`, `image_id`, `source`, `license`; and `noise`, the defects of the row (`edit`,
        `caption`, `false_negative`). No image shows a scene of the evaluation sets.

    Raises:
        ValueError: If `kind_weights` names an unknown kind, or has a negative weight or no positive one; if a noise is
            not a probability; or if the ratings are unknown.
    """
    return _cached_rows(
        training_rows,
        _PAIR | _MEANING | _NEGATIVES | {"noise": _TEXTS},
        num_rows=_check_count(num_rows),
        seed=seed,
        weights=dict(_check_kinds(KIND_WEIGHTS if kind_weights is None else kind_weights)),
        num_negatives=_check_count(num_negatives),
        noise=Noise(edit_noise, caption_noise, false_negatives, edit_noise_step),
        ratings=check_ratings(ratings),
    )


def choice_set(num_rows_per_kind: int, seed: int, *, kinds: Sequence[str] = KINDS, novel: bool = False) -> Dataset:
    """Generates the composition evaluation: two images and two captions, each describing one image.

    With the paraphrase in `positive_captions`, a row is also a choice with two positives like in SugarCrepe++. With
    `mask`, it is an edited pair. For kinds that add, the true caption is true of both images, so the group score
    leaves them out.

    Args:
        num_rows_per_kind: Number of rows per kind, at least 1.
        seed: Non-negative random seed; the same seed gives the same rows.
        kinds: Kinds from `KINDS`, in the order of the rows.
        novel: Whether each caption mentions a combination of shape and color that no training image shows. If False,
            no scene contains such a combination.

    Returns:
        The columns of `training_set` except for `noise`, and `kind`, one of `KINDS`, to group results by. It equals
        the entry of `negative_kinds` except for sizes, textures and numbers, which that column calls `replace_att`.
        Both scenes of a row are held out of training, and rows have no defects.

    Raises:
        ValueError: If a kind is unknown.
    """
    return _cached_rows(
        choice_rows,
        _PAIR | _MEANING | _NEGATIVES | {"kind": _TEXT},
        num_rows=_check_count(num_rows_per_kind),
        seed=seed,
        kinds=tuple(_check_kinds(dict.fromkeys(kinds, 1.0))),
        novel=novel,
    )


def edited_pairs_set(num_rows_per_concept: int, seed: int) -> Dataset:
    """Generates images and their edits in the columns of InpaintCOCO (Roesch et al. 2024).

    Args:
        num_rows_per_concept: Number of rows per concept: object, color, size and location.
        seed: Non-negative random seed; the same seed gives the same rows.

    Returns:
        Columns `concept`, `coco_caption`, `coco_image`, `inpaint_caption`, `inpaint_image`, `mask`, `image_id`, with
        those rows of `choice_set` of the same size and seed whose kind has a name in InpaintCOCO.
    """
    rows = choice_set(num_rows_per_concept, seed)
    rows = rows.select([row for row, kind in enumerate(rows["kind"]) if kind in EDITED_CONCEPTS])
    negatives = [texts[0] for texts in rows["negative_captions"]]
    concepts = [EDITED_CONCEPTS[kind] for kind in rows["kind"]]
    rows = rows.select_columns(["caption", "image", "negative_image", "mask", "image_id"])
    rows = rows.rename_columns({"caption": "coco_caption", "image": "coco_image", "negative_image": "inpaint_image"})
    with _hide_progress_bars():
        return rows.add_column("inpaint_caption", negatives).add_column("concept", concepts)


def retrieval_set(num_rows: int, seed: int) -> Dataset:
    """Generates the evaluation of retrieval and wordings: held-out images with captions of two objects.

    No two captions name the same two colored shapes, in any order, so a caption fits only its own image (except for
    the rare scene of three objects that happens to contain the two of another row).

    Args:
        num_rows: Number of rows, 1 to 1,000.
        seed: Non-negative random seed; the same seed gives the same rows.

    Returns:
        Columns `image`, `caption`, `positive_captions` (one paraphrase), `image_id`.

    Raises:
        ValueError: If `num_rows` is out of range.
    """
    if _check_count(num_rows) > MOST_RETRIEVAL_ROWS:
        raise ValueError(
            f"num_rows: found {num_rows}, but a retrieval set of distinct captions has at most 1,000 rows."
        )
    return _cached_rows(retrieval_rows, _PAIR, num_rows=num_rows, seed=seed)


def zero_shot_set(num_rows: int, seed: int, *, novel: bool = False) -> Dataset:
    """Generates the evaluation of words: held-out images of one object, labeled with all its attributes.

    Args:
        num_rows: Number of rows, at least 1.
        seed: Non-negative random seed; the same seed gives the same rows.
        novel: Whether all objects have shape-color combinations that no training image shows. If False, none has.

    Returns:
        Columns `image`, `image_id`, `shape`, `color`, `size`, `texture`, `place` ("at the top left"), and `caption`,
        which mentions all of these and the background.
    """
    columns = {"image": Image(), "image_id": _TEXT, "caption": _TEXT}
    columns |= dict.fromkeys(("shape", "color", "size", "texture", "place"), _TEXT)
    return _cached_rows(zero_shot_rows, columns, num_rows=_check_count(num_rows), seed=seed, novel=novel)


def levels_set(num_rows: int, seed: int) -> Dataset:
    """Generates the evaluation of abstraction: held-out images with concept names on four levels.

    Args:
        num_rows: Number of rows, at least 1.
        seed: Non-negative random seed; the same seed gives the same rows.

    Returns:
        Columns `image`, `caption`, `positive_captions`, `image_id`, `group`, `hard_negative_groups`,
        `generalized_caption`, `level_1` (most specific) to `level_4`, `concepts`, `concept_spans`, `source`,
        `license`.
    """
    return _cached_rows(levels_rows, _PAIR | _MEANING, num_rows=_check_count(num_rows), seed=seed)


def _cached_rows(rows: Callable[..., Iterator[dict]], features: Mapping[str, Any], **arguments: Any) -> Dataset:
    """Returns the rows as a dataset, from the `datasets` cache if this code generated the same rows before."""
    columns = Features(features)
    # The fingerprint includes the code of the sandbox, because another version may generate other rows.
    fingerprint = Hasher.hash((_source_digest(), rows.__name__, repr(columns), repr(sorted(arguments.items()))))
    with _hide_progress_bars():
        return Dataset.from_generator(rows, columns, gen_kwargs=arguments, fingerprint=fingerprint)


@contextmanager
def _hide_progress_bars() -> Iterator[None]:
    # `datasets` shows a progress bar for every small dataset, but drawing shows its own.
    enabled = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if enabled:
            enable_progress_bars()


@cache
def _source_digest() -> str:
    return Hasher.hash([path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))])


def _check_count(count: int) -> int:
    if count < 1:
        raise ValueError(f"found {count}, expected at least 1: a dataset needs at least one row and one negative.")
    return count


def _check_kinds(weights: Mapping[str, float]) -> Mapping[str, float]:
    unknown = sorted(weights.keys() - set(KINDS))
    if unknown:
        raise ValueError(f"unknown kinds {unknown}, expected some of {list(KINDS)}.")
    if min(weights.values(), default=0) < 0 or not any(weights.values()):
        raise ValueError(f"kind weights: found {dict(weights)}, expected numbers from 0 with at least one above 0.")
    return weights
