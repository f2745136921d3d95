"""Row generators of the sandbox datasets, one per dataset: draw, render and arrange rows in columns."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from hfcomp.sandbox.alt_text import PLACES, WORDS, draw_alt_text
from hfcomp.sandbox.captions import BACKGROUND_PHRASES, Caption, paraphrase, place_phrase
from hfcomp.sandbox.drawing import (
    ONE_OBJECT,
    PRETRAINING,
    PRETRAINING_PLACES,
    TUNING,
    TWO_OBJECTS,
    DrawnRow,
    Style,
    draw_pair,
    draw_tuple,
    weighted_choice,
)
from hfcomp.sandbox.hierarchy import LEVELS, levels, rival_groups
from hfcomp.sandbox.negatives import Negative
from hfcomp.sandbox.noise import Noise, add_noise
from hfcomp.sandbox.ratings import TABLES, Ratings
from hfcomp.sandbox.rendering import changed_cells, encode_images, encode_mask, render
from hfcomp.sandbox.scenes import Scene

SOURCE = "hfcomp-sandbox (synthetic)"
LICENSE = "Apache-2.0"
# Streams are numbered by position. Append new streams at the end, or the datasets of all later streams would change.
_STREAMS = ("pretraining", "training", "choice", "retrieval", "zero_shot", "levels", "places")
_CHUNK = 256
# Everything that can be said about a single object.
EVERYTHING = Caption("", (0,), (), (0,), (0,), 0, True, BACKGROUND_PHRASES[0])

ParaphrasedPair = tuple[Scene, Caption, Caption]


def _draw_paraphrased(generator: np.random.Generator, style: Style, **sides: bool) -> ParaphrasedPair:
    scene, caption = draw_pair(generator, style, **sides)
    return scene, caption, paraphrase(generator, caption)


def pretraining_rows(num_rows: int, seed: int, places: bool) -> Iterator[dict]:
    stream = "places" if places else "pretraining"
    generator = _generator(stream, seed)
    style, forms = (PRETRAINING_PLACES, PLACES) if places else (PRETRAINING, WORDS)

    def draw() -> tuple[Scene, str]:
        scene, caption = draw_pair(generator, style, held_out=False)
        return scene, draw_alt_text(generator, scene, caption, forms)

    def columns(rows: Sequence[tuple[Scene, str]]) -> dict[str, list]:
        return {"image": _images([scene for scene, _ in rows]), "caption": [text for _, text in rows]}

    return _rows((draw() for _ in range(num_rows)), columns, f"{stream}-{seed}", num_rows)


def training_rows(
    num_rows: int, seed: int, weights: Mapping[str, float], num_negatives: int, noise: Noise, ratings: Ratings
) -> Iterator[dict]:
    generator = _generator("training", seed)

    def choose(kinds: Sequence[str]) -> str | None:
        return weighted_choice(generator, kinds, weights)

    def draw() -> DrawnRow:
        row = draw_tuple(generator, TUNING, choose, held_out=False, num_negatives=num_negatives)
        return add_noise(generator, row, noise)

    def columns(rows: Sequence[DrawnRow]) -> dict[str, list]:
        return _tuple_columns(rows, num_negatives, ratings) | {"noise": [list(row.noise) for row in rows]}

    return _rows((draw() for _ in range(num_rows)), columns, f"training-{seed}", num_rows)


def choice_rows(num_rows: int, seed: int, kinds: Sequence[str], novel: bool) -> Iterator[dict]:
    generator = _generator("choice", seed)

    def draw(kind: str) -> DrawnRow:
        style = TUNING.restrict_to_kind(kind)
        return draw_tuple(
            generator, style, lambda allowed: kind if kind in allowed else None, held_out=True, novel=novel
        )

    def columns(rows: Sequence[DrawnRow]) -> dict[str, list]:
        return _tuple_columns(rows, 1, "bands") | {"kind": [row.negatives[0].kind for row in rows]}

    name = f"choice-{'novel-' if novel else ''}{seed}"
    return _rows((draw(kind) for kind in kinds for _ in range(num_rows)), columns, name, len(kinds) * num_rows)


def retrieval_rows(num_rows: int, seed: int) -> Iterator[dict]:
    generator = _generator("retrieval", seed)
    pairs: dict[frozenset, ParaphrasedPair] = {}
    while len(pairs) < num_rows:
        pair = _draw_paraphrased(generator, TWO_OBJECTS, held_out=True)
        mentioned = frozenset((thing.color, thing.shape) for thing in pair[0].things[:2])
        # Keep only the first of equal pairs, because a caption must fit only its own image.
        pairs.setdefault(mentioned, pair)
    return _rows(pairs.values(), _pair_columns, f"retrieval-{seed}", num_rows)


def zero_shot_rows(num_rows: int, seed: int, novel: bool) -> Iterator[dict]:
    generator = _generator("zero_shot", seed)
    scenes = (draw_pair(generator, ONE_OBJECT, held_out=True, novel=novel)[0] for _ in range(num_rows))

    def columns(rows: Sequence[Scene]) -> dict[str, list]:
        things = [scene.things[0] for scene in rows]
        return {
            "image": _images(rows),
            "caption": [EVERYTHING.text(scene) for scene in rows],
            "shape": [thing.shape for thing in things],
            "color": [thing.color for thing in things],
            "size": [thing.size for thing in things],
            "texture": [thing.texture for thing in things],
            "place": [place_phrase(thing.cell) for thing in things],
        }

    return _rows(scenes, columns, f"zero-shot-{'novel-' if novel else ''}{seed}", num_rows)


def levels_rows(num_rows: int, seed: int) -> Iterator[dict]:
    generator = _generator("levels", seed)

    def columns(rows: Sequence[ParaphrasedPair]) -> dict[str, list]:
        return _pair_columns(rows) | _meaning_columns([row[:2] for row in rows])

    pairs = (_draw_paraphrased(generator, TUNING, held_out=True) for _ in range(num_rows))
    return _rows(pairs, columns, f"levels-{seed}", num_rows)


def _rows(draws: Iterable, columns: Callable[[Sequence], dict[str, list]], name: str, total: int) -> Iterator[dict]:
    """Yields rows with an `image_id`, rendered in chunks, because rendering many scenes at once is fast."""
    draws, number = iter(draws), 0
    with tqdm(total=total, desc=f"drawing {name}", leave=False, delay=1, disable=None) as bar:
        while chunk := list(islice(draws, _CHUNK)):
            cells = columns(chunk)
            for values in zip(*cells.values(), strict=True):
                yield {**dict(zip(cells, values, strict=True)), "image_id": f"sandbox-{name}-{number}"}
                number += 1
            bar.update(len(chunk))


def _images(scenes: Sequence[Scene]) -> list[dict]:
    return [_file(file) for file in encode_images(render(scenes))]


def _file(content: bytes) -> dict:
    return {"bytes": content, "path": None}


def _pair_columns(rows: Sequence[ParaphrasedPair]) -> dict[str, list]:
    return {
        "image": _images([scene for scene, _, _ in rows]),
        "caption": [caption.text(scene) for scene, caption, _ in rows],
        "positive_captions": [[positive.text(scene)] for scene, _, positive in rows],
    }


def _meaning_columns(
    rows: Sequence[tuple[Scene, Caption]], described: Sequence[Scene] | None = None
) -> dict[str, list]:
    """Returns the columns about meaning. `described` holds the scenes that captions describe, if they differ."""
    caption_scenes = [scene for scene, _ in rows] if described is None else described
    captions = [caption for _, caption in rows]
    concepts = [caption.concepts(scene) for caption, scene in zip(captions, caption_scenes, strict=True)]
    names = [levels(scene) for scene, _ in rows]
    return {
        "concepts": [phrases for phrases, _ in concepts],
        "concept_spans": [spans for _, spans in concepts],
        "group": [name[0] for name in names],
        "hard_negative_groups": [rival_groups(name[0]) for name in names],
        "generalized_caption": [
            _generalize(caption, scene) for caption, scene in zip(captions, caption_scenes, strict=True)
        ],
        **{f"level_{level}": [name[level - 1] for name in names] for level in LEVELS},
        "source": [SOURCE] * len(rows),
        "license": [LICENSE] * len(rows),
    }


def _generalize(caption: Caption, scene: Scene) -> str:
    # Never return a bare concept name, because training must not show what the levels test.
    text = caption.generalized_text(scene)
    return replace(caption, prefix="there is").generalized_text(scene) if text in levels(scene) else text


def _tuple_columns(rows: Sequence[DrawnRow], num_negatives: int, ratings: Ratings) -> dict[str, list]:
    concreteness = TABLES[ratings]
    firsts = [row.negatives[0] for row in rows]

    def padded_lists(value: Callable[[Negative], Any], padding: Any) -> list[list]:
        lists = [[value(negative) for negative in row.negatives] for row in rows]
        return [entries + [padding] * (num_negatives - len(entries)) for entries in lists]

    # White where the true counterfactual differs, and where the shown one differs if noise changed it.
    changed = [
        changed_cells(row.scene, first.scene) | changed_cells(row.scene, row.shown)
        for row, first in zip(rows, firsts, strict=True)
    ]
    return {
        "image": _images([row.scene for row in rows]),
        "caption": [row.text for row in rows],
        "positive_captions": [[row.positive.text(row.scene)] for row in rows],
        **_meaning_columns([(row.scene, row.caption) for row in rows], [row.described for row in rows]),
        "negative_captions": padded_lists(lambda negative: negative.caption.text(negative.scene), ""),
        "negative_kinds": padded_lists(lambda negative: negative.column_kind, ""),
        "negative_keywords": padded_lists(lambda negative: negative.keyword, ""),
        "negative_categories": padded_lists(lambda negative: negative.category, ""),
        "negative_concreteness": padded_lists(lambda negative: concreteness[negative.keyword], None),
        "negative_image": _images([row.shown for row in rows]),
        "mask": [_file(encode_mask(cells)) for cells in changed],
    }


def _generator(stream: str, seed: int) -> np.random.Generator:
    # Each dataset has its own random stream, so equal seeds do not give equal scenes.
    return np.random.default_rng([seed, _STREAMS.index(stream)])
