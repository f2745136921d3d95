"""The sandbox world as `datasets.Dataset`s in the column contract: made once per seed and setting, then cached."""

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
# A run's seed plus this number seeds its replay scenes: bases are pretrained on scenes of small seeds.
REPLAY_SEED = 1_000_000
# InpaintCOCO's name for what a kind edits.
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
    """Images with one true caption each, on which a small model learns words and becomes a bag of words.

    Args:
        num_rows: number of rows, at least 1.
        seed: non-negative; the same seed gives the same rows.
        places: mostly scenes of several things of which the caption names one and its place.

    Returns:
        Columns `image` (36 x 36), `caption`, `image_id`; no scene of the evaluation sets. Captions are alt-text: often
        tags, or the mention of one thing of several.
    """
    columns = {name: _PAIR[name] for name in ("image", "caption", "image_id")}
    return _cached_rows(pretraining_rows, columns, num_rows=_positive(num_rows), seed=seed, places=places)


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
    """Images with a true caption, exact negative captions and the counterfactual image that the first describes.

    Args:
        num_rows: number of rows, at least 1.
        seed: non-negative; the same seed and settings give the same rows.
        kind_weights: relative frequency of each of `KINDS` among the kinds that a caption allows; a kind left out
            does not occur. Default `KIND_WEIGHTS`.
        num_negatives: entries of the negative lists; where a caption allows fewer kinds, the rest are empty strings.
        edit_noise: the chance that a counterfactual image does not show its change, for words of
            `hfcomp.sandbox.negatives.DRAWABILITY` 3 or less; it falls to 0 at 5, whatever the ratings.
        edit_noise_step: whether that chance is `edit_noise` for words of drawability below 4, and 0 for others.
        caption_noise: the probability that the caption has a false word.
        false_negatives: the chance that the first negative caption is true of the image.
        ratings: of the column `negative_concreteness`: `bands`, our bands in the order of human norms, or
            `synthetic`, a table that is made up. Neither is human.

    Returns:
        The column contract of training sets: `image`, `caption`, `positive_captions` (one other wording), the five
        `negative_*` lists, `negative_image`, `mask` (white where it may differ), `concepts`, `concept_spans` (a list
        of one `[start, end)` for each), `group` with `hard_negative_groups`, `generalized_caption`, `level_1` to
        `level_4`, `image_id`, `source`, `license`; and `noise`, what is wrong in the row (`edit`, `caption`,
        `false_negative`). No image shows a scene of the evaluation sets.

    Raises:
        ValueError: `kind_weights` names an unknown kind, or holds a negative weight or no positive one; a noise is no
            probability; no such ratings.
    """
    return _cached_rows(
        training_rows,
        _PAIR | _MEANING | _NEGATIVES | {"noise": _TEXTS},
        num_rows=_positive(num_rows),
        seed=seed,
        weights=dict(_validate(KIND_WEIGHTS if kind_weights is None else kind_weights)),
        num_negatives=_positive(num_negatives),
        noise=Noise(edit_noise, caption_noise, false_negatives, edit_noise_step),
        ratings=check_ratings(ratings),
    )


def choice_set(num_rows_per_kind: int, seed: int, *, kinds: Sequence[str] = KINDS, novel: bool = False) -> Dataset:
    """The evaluation of composition: two images and two captions, each describing one image.

    With its paraphrase in `positive_captions` a row is also a choice with two positives, as SugarCrepe++ asks it, and
    with `mask` an edited pair. The true caption of kinds that add is true of both images: their 2 x 2 match has no
    answer.

    Args:
        num_rows_per_kind: number of rows of each kind, at least 1.
        seed: non-negative; the same seed gives the same rows.
        kinds: which of `KINDS`, in the order of the rows.
        novel: whether each caption mentions a combination of shape and color that no training image shows; if not,
            no scene has one.

    Returns:
        The columns of `training_set` but `noise`, and `kind`, one of `KINDS`, to report by; it is the entry of
        `negative_kinds` save for sizes, textures and numbers, which that column calls `replace_att`. Both scenes of a
        row are held out of training, and nothing in it is wrong.

    Raises:
        ValueError: an unknown kind.
    """
    return _cached_rows(
        choice_rows,
        _PAIR | _MEANING | _NEGATIVES | {"kind": _TEXT},
        num_rows=_positive(num_rows_per_kind),
        seed=seed,
        kinds=tuple(_validate(dict.fromkeys(kinds, 1.0))),
        novel=novel,
    )


def edited_pairs_set(num_rows_per_concept: int, seed: int) -> Dataset:
    """Images and their edits in the columns of InpaintCOCO (Roesch et al. 2024).

    Args:
        num_rows_per_concept: number of rows for each of object, color, size and location.
        seed: non-negative; the same seed gives the same rows.

    Returns:
        Columns `concept`, `coco_caption`, `coco_image`, `inpaint_caption`, `inpaint_image`, `mask`, `image_id`: the
        rows of `choice_set` of the same size and seed whose kind InpaintCOCO has a name for.
    """
    rows = choice_set(num_rows_per_concept, seed)
    rows = rows.select([row for row, kind in enumerate(rows["kind"]) if kind in EDITED_CONCEPTS])
    negatives = [texts[0] for texts in rows["negative_captions"]]
    concepts = [EDITED_CONCEPTS[kind] for kind in rows["kind"]]
    rows = rows.select_columns(["caption", "image", "negative_image", "mask", "image_id"])
    rows = rows.rename_columns({"caption": "coco_caption", "image": "coco_image", "negative_image": "inpaint_image"})
    with _without_bars():
        return rows.add_column("inpaint_caption", negatives).add_column("concept", concepts)


def retrieval_set(num_rows: int, seed: int) -> Dataset:
    """The evaluation of retrieval and of wordings: held-out images with captions of two objects.

    No two captions name the same two colored shapes, in whatever order, so that a caption fits its own image alone
    (but for the rare scene of three objects that happens to contain another row's two).

    Args:
        num_rows: number of rows, 1 to 1,000.
        seed: non-negative; the same seed gives the same rows.

    Returns:
        Columns `image`, `caption`, `positive_captions` (one other wording), `image_id`.

    Raises:
        ValueError: `num_rows` is out of range.
    """
    if _positive(num_rows) > MOST_RETRIEVAL_ROWS:
        raise ValueError(f"a retrieval set of distinct captions has at most 1,000 rows, not {num_rows}.")
    return _cached_rows(retrieval_rows, _PAIR, num_rows=num_rows, seed=seed)


def zero_shot_set(num_rows: int, seed: int, *, novel: bool = False) -> Dataset:
    """The evaluation of words: held-out images of one object, labeled by all that can be said of it.

    Args:
        num_rows: number of rows, at least 1.
        seed: non-negative; the same seed gives the same rows.
        novel: whether all objects have shape-color combinations that no training image has, or none.

    Returns:
        Columns `image`, `image_id`, `shape`, `color`, `size`, `texture`, `place` ("at the top left"), and `caption`,
        which says all of it and the background.
    """
    columns = {"image": Image(), "image_id": _TEXT, "caption": _TEXT}
    columns |= dict.fromkeys(("shape", "color", "size", "texture", "place"), _TEXT)
    return _cached_rows(zero_shot_rows, columns, num_rows=_positive(num_rows), seed=seed, novel=novel)


def levels_set(num_rows: int, seed: int) -> Dataset:
    """The evaluation of abstraction: held-out images with the names of their concepts on four levels.

    Args:
        num_rows: number of rows, at least 1.
        seed: non-negative; the same seed gives the same rows.

    Returns:
        Columns `image`, `caption`, `positive_captions`, `image_id`, `group`, `hard_negative_groups`,
        `generalized_caption`, `level_1` (most specific) to `level_4`, and the other columns of meaning.
    """
    return _cached_rows(levels_rows, _PAIR | _MEANING, num_rows=_positive(num_rows), seed=seed)


def _cached_rows(rows: Callable[..., Iterator[dict]], features: Mapping[str, Any], **arguments: Any) -> Dataset:
    """The rows as a dataset, from the cache of `datasets` if this code made the same ones before."""
    columns = Features(features)
    # The world's code is part of the fingerprint: another version makes other rows.
    fingerprint = Hasher.hash((_source_digest(), rows.__name__, repr(columns), repr(sorted(arguments.items()))))
    with _without_bars():
        return Dataset.from_generator(rows, columns, gen_kwargs=arguments, fingerprint=fingerprint)


@contextmanager
def _without_bars() -> Iterator[None]:
    # `datasets` shows a bar for every little set; drawing shows its own.
    shown = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            enable_progress_bars()


@cache
def _source_digest() -> str:
    return Hasher.hash([path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))])


def _positive(count: int) -> int:
    if count < 1:
        raise ValueError(f"a dataset needs at least one row and one negative, not {count}.")
    return count


def _validate(weights: Mapping[str, float]) -> Mapping[str, float]:
    unknown = sorted(weights.keys() - set(KINDS))
    if unknown:
        raise ValueError(f"unknown kinds {unknown}; the sandbox has {list(KINDS)}.")
    if min(weights.values(), default=0) < 0 or not any(weights.values()):
        raise ValueError(f"kind weights must be non-negative with at least one positive, not {dict(weights)}.")
    return weights
