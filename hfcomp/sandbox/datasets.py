"""The sandbox world as `datasets.Dataset`s in the column contract: made once per seed and setting, then cached."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, Image, List, Value
from datasets.fingerprint import Hasher

from hfcomp.sandbox.alt_text import PLACES, WORDS, draw_alt_text
from hfcomp.sandbox.captions import BACKGROUND_PHRASES, Caption, paraphrase, place_phrase
from hfcomp.sandbox.drawing import (
    KIND_WEIGHTS,
    KINDS,
    ONE_OBJECT,
    PRETRAINING,
    PRETRAINING_PLACES,
    TUNING,
    TWO_OBJECTS,
    Style,
    Tuple,
    draw_pair,
    draw_tuple,
    weighted,
)
from hfcomp.sandbox.hierarchy import LEVELS, levels, rival_groups
from hfcomp.sandbox.negatives import Negative
from hfcomp.sandbox.noise import Noise, with_noise
from hfcomp.sandbox.rendering import changed_cells, encode_images, encode_mask, render
from hfcomp.sandbox.scenes import Scene

SOURCE = "hfcomp-sandbox (synthetic)"
LICENSE = "Apache-2.0"
MOST_RETRIEVAL_ROWS = 1000
# InpaintCOCO's name of what a kind edits.
EDITED_CONCEPTS = {
    "replace_obj": "object",
    "replace_att": "color",
    "replace_size": "size",
    "replace_rel": "location",
}
_STREAMS = ("pretraining", "training", "choice", "retrieval", "zero_shot", "levels", "places")
_CHUNK = 256
# All that can be said of a lone object.
EVERYTHING = Caption("", (0,), (), (0,), (0,), 0, True, BACKGROUND_PHRASES[0])

Worded = tuple[Scene, Caption, Caption]

_TEXT, _TEXTS = Value("string"), List(Value("string"))
_PAIR = {"image": Image(), "caption": _TEXT, "positive_captions": _TEXTS, "image_id": _TEXT}
_MEANING = {
    "concepts": _TEXTS,
    "concept_spans": List(List(Value("int32"))),
    "group": _TEXT,
    "hard_negative_groups": _TEXTS,
    "generalised_caption": _TEXT,
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
    return _cached(_pretraining_rows, columns, num_rows=_positive(num_rows), seed=seed, places=places)


def training_set(
    num_rows: int,
    seed: int,
    *,
    kind_weights: Mapping[str, float] | None = None,
    num_negatives: int = 1,
    edit_noise: float = 0.0,
    caption_noise: float = 0.0,
    false_negatives: float = 0.0,
) -> Dataset:
    """Images with a true caption, exact negative captions and the counterfactual image that the first describes.

    Args:
        num_rows: number of rows, at least 1.
        seed: non-negative; the same seed and settings give the same rows.
        kind_weights: relative frequency of each of `KINDS` among the kinds that a caption allows; a kind left out
            does not occur. Default `KIND_WEIGHTS`.
        num_negatives: entries of the negative lists; where a caption allows fewer kinds, the rest are empty strings.
        edit_noise: the chance that a counterfactual image does not show its change, for words of concreteness 3 or
            less; it falls to 0 at 5.
        caption_noise: the chance that the caption says something false.
        false_negatives: the chance that the first negative caption is true of the image.

    Returns:
        The column contract of training sets: `image`, `caption`, `positive_captions` (one other wording), the five
        `negative_*` lists, `negative_image`, `mask` (white where it may differ), `concepts`, `concept_spans`
        (`[start, end)` in characters), `group` with `hard_negative_groups`, `generalised_caption`, `level_1` to
        `level_4`, `image_id`, `source`, `license`; and `noise`, what is wrong in the row (`edit`, `caption`,
        `false_negative`). No image shows a scene of the evaluation sets.

    Raises:
        ValueError: `kind_weights` names an unknown kind, or holds a negative weight or no positive one; a noise is no
            probability.
    """
    return _cached(
        _training_rows,
        _PAIR | _MEANING | _NEGATIVES | {"noise": _TEXTS},
        num_rows=_positive(num_rows),
        seed=seed,
        weights=dict(_checked(KIND_WEIGHTS if kind_weights is None else kind_weights)),
        num_negatives=_positive(num_negatives),
        noise=Noise(edit_noise, caption_noise, false_negatives),
    )


def choice_set(num_rows_per_kind: int, seed: int, *, kinds: Sequence[str] = KINDS, novel: bool = False) -> Dataset:
    """The evaluation of composition: two images and two captions, of which each describes one.

    With its paraphrase in `positive_captions` a row is also a choice with two positives, as SugarCrepe++ asks it, and
    with `mask` an edited pair. The true caption of kinds that add is true of both images: their 2 x 2 match has no
    answer.

    Args:
        num_rows_per_kind: number of rows of each kind, at least 1.
        seed: non-negative; the same seed gives the same rows.
        kinds: which of `KINDS`, in the order of the rows.
        novel: whether each caption mentions a combination of shape and colour that no training image shows; if not,
            no scene has one.

    Returns:
        The columns of `training_set` but `noise`, and `kind`, one of `KINDS`, to report by; it is the entry of
        `negative_kinds` save for sizes, textures and numbers, which that column calls `replace_att`. Both scenes of a
        row are held out of training, and nothing in it is wrong.

    Raises:
        ValueError: an unknown kind.
    """
    return _cached(
        _choice_rows,
        _PAIR | _MEANING | _NEGATIVES | {"kind": _TEXT},
        num_rows=_positive(num_rows_per_kind),
        seed=seed,
        kinds=tuple(_checked(dict.fromkeys(kinds, 1.0))),
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
    return rows.add_column("inpaint_caption", negatives).add_column("concept", concepts)


def retrieval_set(num_rows: int, seed: int) -> Dataset:
    """The evaluation of retrieval and of wordings: held-out images with captions of two objects.

    No two captions name the same two coloured shapes, in whatever order, so that a caption fits its own image alone
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
    return _cached(_retrieval_rows, _PAIR, num_rows=num_rows, seed=seed)


def zero_shot_set(num_rows: int, seed: int, *, novel: bool = False) -> Dataset:
    """The evaluation of words: held-out images of one object, labelled by all that can be said of it.

    Args:
        num_rows: number of rows, at least 1.
        seed: non-negative; the same seed gives the same rows.
        novel: whether the objects combine shape and colour as no training image does; if not, none does.

    Returns:
        Columns `image`, `image_id`, `shape`, `colour`, `size`, `texture`, `place` ("at the top left"), and `caption`,
        which says all of it and the background.
    """
    columns = {"image": Image(), "image_id": _TEXT, "caption": _TEXT}
    columns |= dict.fromkeys(("shape", "colour", "size", "texture", "place"), _TEXT)
    return _cached(_zero_shot_rows, columns, num_rows=_positive(num_rows), seed=seed, novel=novel)


def levels_set(num_rows: int, seed: int) -> Dataset:
    """The evaluation of abstraction: held-out images with the names of their concepts on four levels.

    Args:
        num_rows: number of rows, at least 1.
        seed: non-negative; the same seed gives the same rows.

    Returns:
        Columns `image`, `caption`, `positive_captions`, `image_id`, `group`, `hard_negative_groups`,
        `generalised_caption`, `level_1` (most specific) to `level_4`, and the other columns of meaning.
    """
    return _cached(_levels_rows, _PAIR | _MEANING, num_rows=_positive(num_rows), seed=seed)


def _cached(rows: Callable[..., Iterator[dict]], features: Mapping[str, Any], **arguments: Any) -> Dataset:
    """The rows as a data set, from the cache of `datasets` where this code made the same ones before."""
    fingerprint = Hasher.hash((_source_digest(), rows.__name__, repr(sorted(arguments.items()))))
    return Dataset.from_generator(rows, Features(features), gen_kwargs=arguments, fingerprint=fingerprint)


@cache
def _source_digest() -> str:
    """Of the world's code: another version of it makes other rows."""
    return Hasher.hash([path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))])


def _generator(stream: str, seed: int) -> np.random.Generator:
    """Each set draws from a stream of its own, so that equal seeds do not give equal scenes."""
    return np.random.default_rng([seed, _STREAMS.index(stream)])


def _positive(count: int) -> int:
    if count < 1:
        raise ValueError(f"a data set needs at least one row and one negative, not {count}.")
    return count


def _checked(weights: Mapping[str, float]) -> Mapping[str, float]:
    unknown = sorted(weights.keys() - set(KINDS))
    if unknown:
        raise ValueError(f"unknown kinds {unknown}; the sandbox has {list(KINDS)}.")
    if min(weights.values(), default=0) < 0 or not any(weights.values()):
        raise ValueError(f"kind weights must be non-negative with at least one positive, not {dict(weights)}.")
    return weights


def _draw_worded(generator: np.random.Generator, style: Style, **sides: bool) -> Worded:
    scene, caption = draw_pair(generator, style, **sides)
    return scene, caption, paraphrase(generator, caption)


def _pretraining_rows(num_rows: int, seed: int, places: bool) -> Iterator[dict]:
    generator = _generator("places" if places else "pretraining", seed)
    style, forms = (PRETRAINING_PLACES, PLACES) if places else (PRETRAINING, WORDS)

    def draw() -> tuple[Scene, str]:
        scene, caption = draw_pair(generator, style, held_out=False)
        return scene, draw_alt_text(generator, scene, caption, forms)

    def columns(rows: Sequence[tuple[Scene, str]]) -> dict[str, list]:
        return {"image": _images([scene for scene, _ in rows]), "caption": [text for _, text in rows]}

    return _rows((draw() for _ in range(num_rows)), columns, f"{'places' if places else 'pretraining'}-{seed}")


def _training_rows(
    num_rows: int, seed: int, weights: Mapping[str, float], num_negatives: int, noise: Noise
) -> Iterator[dict]:
    generator = _generator("training", seed)

    def choose(kinds: Sequence[str]) -> str | None:
        return weighted(generator, kinds, weights)

    def draw() -> Tuple:
        row = draw_tuple(generator, TUNING, choose, held_out=False, num_negatives=num_negatives)
        return with_noise(generator, row, noise)

    def columns(rows: Sequence[Tuple]) -> dict[str, list]:
        return _tuple_columns(rows, num_negatives) | {"noise": [list(row.noise) for row in rows]}

    return _rows((draw() for _ in range(num_rows)), columns, f"training-{seed}")


def _choice_rows(num_rows: int, seed: int, kinds: Sequence[str], novel: bool) -> Iterator[dict]:
    generator = _generator("choice", seed)

    def draw(kind: str) -> Tuple:
        style = TUNING.of_kind(kind)
        return draw_tuple(
            generator, style, lambda allowed: kind if kind in allowed else None, held_out=True, novel=novel
        )

    def columns(rows: Sequence[Tuple]) -> dict[str, list]:
        return _tuple_columns(rows, 1) | {"kind": [row.negatives[0].kind for row in rows]}

    name = f"choice-{'novel-' if novel else ''}{seed}"
    return _rows((draw(kind) for kind in kinds for _ in range(num_rows)), columns, name)


def _retrieval_rows(num_rows: int, seed: int) -> Iterator[dict]:
    generator = _generator("retrieval", seed)
    pairs: dict[frozenset, Worded] = {}
    while len(pairs) < num_rows:
        pair = _draw_worded(generator, TWO_OBJECTS, held_out=True)
        named = frozenset((thing.colour, thing.shape) for thing in pair[0].things[:2])
        pairs.setdefault(named, pair)
    return _rows(pairs.values(), _pair_columns, f"retrieval-{seed}")


def _zero_shot_rows(num_rows: int, seed: int, novel: bool) -> Iterator[dict]:
    generator = _generator("zero_shot", seed)
    scenes = (draw_pair(generator, ONE_OBJECT, held_out=True, novel=novel)[0] for _ in range(num_rows))

    def columns(rows: Sequence[Scene]) -> dict[str, list]:
        things = [scene.things[0] for scene in rows]
        return {
            "image": _images(rows),
            "caption": [EVERYTHING.text(scene) for scene in rows],
            "shape": [thing.shape for thing in things],
            "colour": [thing.colour for thing in things],
            "size": [thing.size for thing in things],
            "texture": [thing.texture for thing in things],
            "place": [place_phrase(thing.cell) for thing in things],
        }

    return _rows(scenes, columns, f"zero-shot-{'novel-' if novel else ''}{seed}")


def _levels_rows(num_rows: int, seed: int) -> Iterator[dict]:
    generator = _generator("levels", seed)

    def columns(rows: Sequence[Worded]) -> dict[str, list]:
        return _pair_columns(rows) | _meaning_columns([row[:2] for row in rows])

    pairs = (_draw_worded(generator, TUNING, held_out=True) for _ in range(num_rows))
    return _rows(pairs, columns, f"levels-{seed}")


def _rows(drawn: Iterable, columns: Callable[[Sequence], dict[str, list]], name: str) -> Iterator[dict]:
    """Rows with an `image_id`, made a few hundred at a time: rendering is quick on many scenes together."""
    drawn, number = iter(drawn), 0
    while chunk := list(islice(drawn, _CHUNK)):
        made = columns(chunk)
        for values in zip(*made.values(), strict=True):
            yield {**dict(zip(made, values, strict=True)), "image_id": f"sandbox-{name}-{number}"}
            number += 1


def _images(scenes: Sequence[Scene]) -> list[dict]:
    return [_file(file) for file in encode_images(render(scenes))]


def _file(content: bytes) -> dict:
    return {"bytes": content, "path": None}


def _pair_columns(rows: Sequence[Worded]) -> dict[str, list]:
    return {
        "image": _images([scene for scene, _, _ in rows]),
        "caption": [caption.text(scene) for scene, caption, _ in rows],
        "positive_captions": [[positive.text(scene)] for scene, _, positive in rows],
    }


def _meaning_columns(rows: Sequence[tuple[Scene, Caption]], said: Sequence[Scene] | None = None) -> dict[str, list]:
    """What images and captions mean; `said` are the scenes that the captions' words are of, where they are others."""
    spoken = [scene for scene, _ in rows] if said is None else said
    captions = [caption for _, caption in rows]
    concepts = [caption.concepts(scene) for caption, scene in zip(captions, spoken, strict=True)]
    names = [levels(scene) for scene, _ in rows]
    return {
        "concepts": [phrases for phrases, _ in concepts],
        "concept_spans": [spans for _, spans in concepts],
        "group": [name[0] for name in names],
        "hard_negative_groups": [rival_groups(name[0]) for name in names],
        "generalised_caption": [caption.generalised(scene) for caption, scene in zip(captions, spoken, strict=True)],
        **{f"level_{level}": [name[level - 1] for name in names] for level in LEVELS},
        "source": [SOURCE] * len(rows),
        "license": [LICENSE] * len(rows),
    }


def _tuple_columns(rows: Sequence[Tuple], num_negatives: int) -> dict[str, list]:
    firsts = [row.negatives[0] for row in rows]

    def listed(value: Callable[[Negative], Any], padding: Any) -> list[list]:
        lists = [[value(negative) for negative in row.negatives] for row in rows]
        return [entries + [padding] * (num_negatives - len(entries)) for entries in lists]

    edited = [
        changed_cells(row.scene, first.scene) | changed_cells(row.scene, row.shown)
        for row, first in zip(rows, firsts, strict=True)
    ]
    return {
        "image": _images([row.scene for row in rows]),
        "caption": [row.text for row in rows],
        "positive_captions": [[row.positive.text(row.scene)] for row in rows],
        **_meaning_columns([(row.scene, row.caption) for row in rows], [row.said for row in rows]),
        "negative_captions": listed(lambda negative: negative.caption.text(negative.scene), ""),
        "negative_kinds": listed(lambda negative: negative.column_kind, ""),
        "negative_keywords": listed(lambda negative: negative.keyword, ""),
        "negative_categories": listed(lambda negative: negative.category, ""),
        "negative_concreteness": listed(lambda negative: negative.concreteness, None),
        "negative_image": _images([row.shown for row in rows]),
        "mask": [_file(encode_mask(cells)) for cells in edited],
    }
