"""Scenes with captions and negatives, before anything is rendered."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hfcomp.sandbox.captions import Caption, draw_caption, paraphrase
from hfcomp.sandbox.negatives import EDITS, Negative, applicable_kinds, draw_negative
from hfcomp.sandbox.scenes import Scene, draw_scene, is_held_out, is_novel

KINDS = tuple(EDITS)
# Weighted towards binding, the failure that a model of this size both shows and can repair. Kinds that add are for
# evaluation: the true caption is true of their counterfactual image too.
KIND_WEIGHTS = {
    "swap_att": 3.0,
    "swap_obj": 1.0,
    "swap_rel": 0.5,
    "replace_att": 1.0,
    "replace_size": 1.0,
    "replace_texture": 0.5,
    "replace_count": 0.5,
    "replace_obj": 1.0,
    "replace_rel": 1.0,
}

# Number of things, whether the first is there several times, whether three form a corner.
Layout = tuple[int, bool, bool]


@dataclass(frozen=True)
class Style:
    """What the scenes and captions of a set are like.

    Attributes:
        layouts: relative frequencies of layouts.
        words: the probabilities that `draw_caption` takes.
    """

    layouts: Mapping[Layout, float]
    words: Mapping[str, float]

    def of_kind(self, kind: str) -> "Style":
        """The same with only the layouts in which a kind of negative occurs."""
        possible = _LAYOUTS_OF_KIND.get(kind, self.layouts)
        return replace(self, layouts={layout: share for layout, share in self.layouts.items() if layout in possible})


_PRETRAINING_WORDS = {"relation": 0.3, "size": 0.3, "texture": 0.3, "background": 0.3, "place": 0.3, "three": 0.2}
# Scenes with one object teach shapes and colors; scenes with two or three are what a bag of words solves.
PRETRAINING = Style(
    {(1, False, False): 0.45, (1, True, False): 0.05, (2, False, False): 0.35, (3, False, False): 0.15},
    _PRETRAINING_WORDS,
)
PRETRAINING_PLACES = Style(
    {(1, False, False): 0.15, (2, False, False): 0.60, (3, False, False): 0.25}, _PRETRAINING_WORDS
)
TUNING = Style(
    {
        (1, False, False): 0.05,
        (1, True, False): 0.10,
        (2, False, False): 0.50,
        (2, True, False): 0.05,
        (3, False, False): 0.15,
        (3, False, True): 0.15,
    },
    {"relation": 0.7, "size": 0.3, "texture": 0.25, "background": 0.3, "place": 0.3, "three": 0.7},
)
# Layouts in which to look for a kind that is rare or absent elsewhere: searching elsewhere would take most of the
# time.
_LAYOUTS_OF_KIND = {
    "swap_rel": {(3, False, True)},
    "replace_count": {(1, True, False)},
    "swap_obj": {(2, False, False), (3, False, False)},
    "replace_rel": {(2, False, False), (3, False, False)},
    "add_rel": {(2, False, False), (3, False, False)},
    "add_obj": {(1, False, False), (1, True, False), (2, False, False)},
}
# Captions of one object that name its shape and color, and captions of two: for retrieval and zero-shot.
ONE_OBJECT = Style({(1, False, False): 1.0}, {})
TWO_OBJECTS = Style({(2, False, False): 0.7, (3, False, False): 0.3}, TUNING.words | {"three": 0.0})


@dataclass(frozen=True)
class DrawnRow:
    """One row of a training or evaluation set.

    Attributes:
        scene: what the image shows.
        caption: of the scene.
        said: the scene that the caption describes; `scene` unless `noise` differs.
        positive: another wording of the caption, true of `scene`.
        negatives: one or more, of different kinds; the first has an image.
        shown: the negative image's scene; the first negative's unless `noise` differs.
        noise: what is wrong: `edit`, `caption`, `false_negative`.
    """

    scene: Scene
    caption: Caption
    said: Scene
    positive: Caption
    negatives: tuple[Negative, ...]
    shown: Scene
    noise: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The caption in words."""
        return self.caption.text(self.said)


def weighted(generator: np.random.Generator, options: Iterable, weights: Mapping):
    """One of `options` in proportion to its weight; None if all of them weigh nothing."""
    possible = [option for option in options if weights.get(option)]
    place = generator.random() * sum(weights[option] for option in possible)
    for option in possible:
        place -= weights[option]
        if place < 0:
            return option
    return possible[-1] if possible else None


def draw_pair(
    generator: np.random.Generator, style: Style, *, held_out: bool, novel: bool = False
) -> tuple[Scene, Caption]:
    """A scene on the asked side of the split and a true caption.

    With `novel` the caption mentions a combination of shape and color that training never shows; without it the
    scene has none.
    """
    # Drawn by rejection: the split and the combinations are properties of the whole scene.
    while True:
        number, counted, corner = weighted(generator, style.layouts, style.layouts)
        scene = draw_scene(generator, number, counted=counted, corner=corner)
        if is_held_out(scene) != held_out:
            continue
        caption = draw_caption(generator, scene, **style.words)
        things = [scene.things[index] for index in caption.mentioned] if novel else scene.things
        if is_novel(things) == novel:
            return scene, caption


def draw_tuple(
    generator: np.random.Generator,
    style: Style,
    choose: Callable[[Sequence[str]], str | None],
    *,
    held_out: bool,
    novel: bool = False,
    num_negatives: int = 1,
) -> DrawnRow:
    """A pair with its paraphrase and its negatives, whose scenes are all on the asked side of the split.

    `choose` takes the kinds that a caption allows and returns one, or None to have another caption. There are at most
    `num_negatives` negatives, of different kinds.
    """
    while True:
        scene, caption = draw_pair(generator, style, held_out=held_out, novel=novel)
        negatives: list[Negative] = []
        open_kinds = list(applicable_kinds(scene, caption))
        while len(negatives) < num_negatives and (kind := choose(open_kinds)):
            open_kinds.remove(kind)
            negative = draw_negative(generator, scene, caption, kind)
            fits = is_held_out(negative.scene) == held_out and (novel or not is_novel(negative.scene.things))
            if not fits and not negatives:
                # Another caption rather than another kind, which would favor the kinds that always fit.
                break
            if fits:
                negatives.append(negative)
        if negatives:
            positive = paraphrase(generator, caption)
            return DrawnRow(scene, caption, scene, positive, tuple(negatives), negatives[0].scene)
