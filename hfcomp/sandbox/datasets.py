"""The sandbox world as `datasets.Dataset`s: for pretraining, for fine-tuning and for evaluation."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from datasets import Dataset, Features, Image, List, Value

from hfcomp.sandbox.captions import Caption, draw_caption
from hfcomp.sandbox.negatives import EDITS, Negative, applicable_kinds, draw_negative
from hfcomp.sandbox.rendering import encode_images, render
from hfcomp.sandbox.scenes import Scene, draw_scene, is_held_out

SOURCE = "hfcomp-sandbox (synthetic)"
LICENSE = "Apache-2.0"
KINDS = tuple(EDITS)
# Weighted towards attribute binding, the failure that a model of this size both shows and can repair.
KIND_WEIGHTS = {
    "swap_att": 3.0,
    "replace_att": 1.0,
    "replace_size": 1.0,
    "replace_obj": 1.0,
    "replace_rel": 1.0,
    "swap_obj": 1.0,
}

# One-object scenes are what teaches shapes and colours; two- and three-object ones are what a bag of words solves.
_PRETRAINING_THINGS = {1: 0.40, 2: 0.45, 3: 0.15}
_TUNING_THINGS = {2: 0.7, 3: 0.3}
_PRETRAINING_WORDS = {"relation": 0.5, "size": 0.3, "background": 0.3}
_TUNING_WORDS = {"relation": 0.7, "size": 0.4, "background": 0.3}
_STREAMS = {"pretraining": 0, "training": 1, "choice": 2, "retrieval": 3}
_CHUNK = 128

_PAIR = {"image": Image(), "caption": Value("string"), "image_id": Value("string")}
_NEGATIVES = {
    "negative_captions": List(Value("string")),
    "negative_kinds": List(Value("string")),
    "negative_keywords": List(Value("string")),
    "negative_categories": List(Value("string")),
    "negative_concreteness": List(Value("float32")),
    "negative_image": Image(),
    "source": Value("string"),
    "license": Value("string"),
}

_Draw = tuple[Scene, Caption, Negative]


def pretraining_set(num_rows: int, seed: int) -> Dataset:
    """Images with one true caption each, on which a small model learns words and becomes a bag of words.

    Args:
        num_rows: number of rows, at least 1.
        seed: non-negative; the same seed gives the same rows.

    Returns:
        Columns `image` (36 x 36), `caption`, `image_id`; no scene of the evaluation sets.
    """
    generator = _generator("pretraining", seed)
    pairs = [
        _draw_pair(generator, _PRETRAINING_THINGS, _PRETRAINING_WORDS, held_out=False)
        for _ in range(_positive(num_rows))
    ]
    return Dataset.from_dict(_pair_columns(pairs, f"pretraining-{seed}"), features=Features(_PAIR))


def training_set(num_rows: int, seed: int, *, kind_weights: Mapping[str, float] | None = None) -> Dataset:
    """Images with a true caption, one exact negative caption and the counterfactual image that it describes.

    Args:
        num_rows: number of rows, at least 1.
        seed: non-negative; the same seed gives the same rows.
        kind_weights: relative frequency of each of `KINDS` among the kinds that a caption allows; a kind left out
            does not occur. Default `KIND_WEIGHTS`.

    Returns:
        The column contract of training sets: `image`, `caption`, the five `negative_*` lists with one entry each,
        `negative_image`, `image_id`, `source`, `license`. Neither image shows a scene of the evaluation sets.

    Raises:
        ValueError: `kind_weights` names an unknown kind, or holds a negative weight or no positive one.
    """
    weights = _checked(KIND_WEIGHTS if kind_weights is None else kind_weights)
    generator = _generator("training", seed)
    draws = [
        _draw_tuple(generator, lambda kinds: _weighted(generator, kinds, weights), held_out=False)
        for _ in range(_positive(num_rows))
    ]
    return Dataset.from_dict(_tuple_columns(draws, f"training-{seed}"), features=Features(_PAIR | _NEGATIVES))


def choice_set(num_rows_per_kind: int, seed: int, *, kinds: Sequence[str] = KINDS) -> Dataset:
    """The evaluation of composition: two images and two captions, of which each describes one.

    Args:
        num_rows_per_kind: number of rows of each kind, at least 1.
        seed: non-negative; the same seed gives the same rows.
        kinds: which of `KINDS`, in the order of the rows.

    Returns:
        The columns of `training_set` and `kind`, one of `KINDS`, to report by; it is the entry of `negative_kinds`
        save for `replace_size`, which that column calls `replace_att`. Both scenes of a row are held out of training.

    Raises:
        ValueError: an unknown kind.
    """
    _checked(dict.fromkeys(kinds, 1.0))
    generator = _generator("choice", seed)
    draws = [
        _draw_tuple(generator, lambda allowed, kind=kind: kind if kind in allowed else None, held_out=True)
        for kind in kinds
        for _ in range(_positive(num_rows_per_kind))
    ]
    columns = _tuple_columns(draws, f"choice-{seed}") | {"kind": [negative.kind for _, _, negative in draws]}
    return Dataset.from_dict(columns, features=Features(_PAIR | _NEGATIVES | {"kind": Value("string")}))


def retrieval_set(num_rows: int, seed: int) -> Dataset:
    """The evaluation of retrieval: held-out images with captions of two objects.

    No two captions name the same two coloured shapes, in whatever order, so that a caption fits its own image alone
    (but for the rare scene of three objects that happens to contain another row's two).

    Args:
        num_rows: number of rows, 1 to 1,000 (there are 1,568 pairs to name).
        seed: non-negative; the same seed gives the same rows.

    Returns:
        Columns `image`, `caption`, `image_id`.

    Raises:
        ValueError: `num_rows` is out of range.
    """
    if _positive(num_rows) > 1000:
        raise ValueError(f"a retrieval set of distinct captions has at most 1,000 rows, not {num_rows}.")
    generator = _generator("retrieval", seed)
    pairs = {}
    while len(pairs) < num_rows:
        scene, caption = _draw_pair(generator, _TUNING_THINGS, _TUNING_WORDS, held_out=True)
        named = frozenset((thing.colour, thing.shape) for thing in scene.things[:2])
        pairs.setdefault(named, (scene, caption))
    return Dataset.from_dict(_pair_columns(list(pairs.values()), f"retrieval-{seed}"), features=Features(_PAIR))


def _generator(stream: str, seed: int) -> np.random.Generator:
    """Each set draws from a stream of its own, so that equal seeds do not give equal scenes."""
    return np.random.default_rng([seed, _STREAMS[stream]])


def _positive(count: int) -> int:
    if count < 1:
        raise ValueError(f"a data set needs at least one row, not {count}.")
    return count


def _checked(weights: Mapping[str, float]) -> Mapping[str, float]:
    unknown = sorted(weights.keys() - set(KINDS))
    if unknown:
        raise ValueError(f"unknown kinds {unknown}; the sandbox has {list(KINDS)}.")
    if min(weights.values(), default=0) < 0 or not any(weights.values()):
        raise ValueError(f"kind weights must be non-negative with at least one positive, not {dict(weights)}.")
    return weights


def _weighted(generator: np.random.Generator, options: Iterable, weights: Mapping):
    """One of `options` in proportion to its weight; None where all of them weigh nothing."""
    possible = [option for option in options if weights.get(option)]
    place = generator.random() * sum(weights[option] for option in possible)
    for option in possible:
        place -= weights[option]
        if place < 0:
            return option
    return possible[-1] if possible else None


def _draw_pair(
    generator: np.random.Generator, things: Mapping[int, float], words: Mapping[str, float], *, held_out: bool
) -> tuple[Scene, Caption]:
    """A scene on the asked side of the split and a true caption."""
    while True:
        scene = draw_scene(generator, _weighted(generator, things, things))
        if is_held_out(scene) == held_out:
            return scene, draw_caption(generator, scene, **words)


def _draw_tuple(
    generator: np.random.Generator, choose: Callable[[Sequence[str]], str | None], *, held_out: bool
) -> _Draw:
    """A pair and a negative whose scenes are both on the asked side of the split; `choose` may refuse a caption."""
    while True:
        scene, caption = _draw_pair(generator, _TUNING_THINGS, _TUNING_WORDS, held_out=held_out)
        kind = choose(applicable_kinds(caption))
        if kind is None:
            continue
        negative = draw_negative(generator, scene, caption, kind)
        if is_held_out(negative.scene) == held_out:
            return scene, caption, negative


def _images(scenes: Iterable[Scene]) -> list[dict]:
    scenes = list(scenes)
    chunks = (render(scenes[i : i + _CHUNK]) for i in range(0, len(scenes), _CHUNK))
    return [{"bytes": file, "path": None} for chunk in chunks for file in encode_images(chunk)]


def _pair_columns(pairs: Sequence[tuple[Scene, Caption]], name: str) -> dict[str, list]:
    return {
        "image": _images(scene for scene, _ in pairs),
        "caption": [caption.text(scene) for scene, caption in pairs],
        "image_id": [f"sandbox-{name}-{row}" for row in range(len(pairs))],
    }


def _tuple_columns(draws: Sequence[_Draw], name: str) -> dict[str, list]:
    negatives = [negative for _, _, negative in draws]
    return _pair_columns([(scene, caption) for scene, caption, _ in draws], name) | {
        "negative_captions": [[negative.caption.text(negative.scene)] for negative in negatives],
        "negative_kinds": [[negative.column_kind] for negative in negatives],
        "negative_keywords": [[negative.keyword] for negative in negatives],
        "negative_categories": [[negative.category] for negative in negatives],
        "negative_concreteness": [[negative.concreteness] for negative in negatives],
        "negative_image": _images(negative.scene for negative in negatives),
        "source": [SOURCE] * len(draws),
        "license": [LICENSE] * len(draws),
    }
