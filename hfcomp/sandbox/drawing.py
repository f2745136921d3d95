"""Draws scenes with captions and negatives, before anything is rendered."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hfcomp.sandbox.captions import Caption, draw_caption, paraphrase
from hfcomp.sandbox.negatives import EDITS, Negative, applicable_kinds, draw_negative
from hfcomp.sandbox.scenes import Scene, draw_scene, is_held_out, is_novel

KINDS = tuple(EDITS)
# Weighted toward binding, the failure that a model of this size both shows and can unlearn. Kinds that add are for
# evaluation only, because the true caption is also true of their counterfactual image.
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

# Number of things, whether the first occurs several times, whether three things form a corner.
Layout = tuple[int, bool, bool]


@dataclass(frozen=True)
class Style:
    """Distribution of the scenes and captions of a dataset.

    Attributes:
        layouts: Relative frequencies of layouts.
        words: Probabilities for `draw_caption`.
    """

    layouts: Mapping[Layout, float]
    words: Mapping[str, float]

    def restrict_to_kind(self, kind: str) -> "Style":
        """Returns a copy restricted to the layouts in which a kind of negative occurs."""
        possible = _LAYOUTS_OF_KIND.get(kind, self.layouts)
        return replace(self, layouts={layout: share for layout, share in self.layouts.items() if layout in possible})


_PRETRAINING_WORDS = {"relation": 0.3, "size": 0.3, "texture": 0.3, "background": 0.3, "place": 0.3, "three": 0.2}
# Scenes with one object teach shapes and colors; a bag of words solves scenes with two or three.
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
# Layouts in which to search for a kind that is rare or absent elsewhere; searching all layouts would take most of the
# time.
_LAYOUTS_OF_KIND = {
    "swap_rel": {(3, False, True)},
    "replace_count": {(1, True, False)},
    "swap_obj": {(2, False, False), (3, False, False)},
    "replace_rel": {(2, False, False), (3, False, False)},
    "add_rel": {(2, False, False), (3, False, False)},
    "add_obj": {(1, False, False), (1, True, False), (2, False, False)},
}
# For zero-shot: captions that name the shape and color of one object. For retrieval: captions of two objects.
ONE_OBJECT = Style({(1, False, False): 1.0}, {})
TWO_OBJECTS = Style({(2, False, False): 0.7, (3, False, False): 0.3}, TUNING.words | {"three": 0.0})


@dataclass(frozen=True)
class DrawnRow:
    """Row of a training or evaluation dataset.

    Attributes:
        scene: Scene of the image.
        caption: Caption of the scene.
        described: Scene that the caption describes; equal to `scene` unless noise changed it.
        positive: Paraphrase of the caption, true of `scene`.
        negatives: One or more negatives of different kinds; the first one has an image.
        shown: Scene of the negative image; that of the first negative unless noise changed it.
        noise: Defects of the row: `edit`, `caption`, `false_negative`.
    """

    scene: Scene
    caption: Caption
    described: Scene
    positive: Caption
    negatives: tuple[Negative, ...]
    shown: Scene
    noise: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The caption as text."""
        return self.caption.text(self.described)


def weighted_choice(generator: np.random.Generator, options: Iterable, weights: Mapping):
    """Draws one of `options` in proportion to its weight; None if all weights are zero."""
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
    """Draws a scene on the requested side of the split, and a true caption.

    With `novel`, the caption mentions a combination of shape and color that training never shows. Without it, the
    scene contains no such combination.
    """
    # Rejection sampling, because the split and the combinations are properties of the whole scene.
    while True:
        number, counted, corner = weighted_choice(generator, style.layouts, style.layouts)
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
    """Draws a pair with a paraphrase and negatives; all scenes are on the requested side of the split.

    `choose` receives the kinds that a caption allows and returns one of them, or None to request another caption.
    There are at most `num_negatives` negatives, of different kinds.
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
                # Draw another caption instead of another kind, which would favor the kinds that always fit.
                break
            if fits:
                negatives.append(negative)
        if negatives:
            positive = paraphrase(generator, caption)
            return DrawnRow(scene, caption, scene, positive, tuple(negatives), negatives[0].scene)
