"""Scenes, captions and negatives of every layout and kind, drawn once for all tests."""

from functools import cache
from itertools import cycle, islice

import numpy as np

from hfcomp.sandbox.captions import draw_caption
from hfcomp.sandbox.negatives import applicable_kinds, draw_negative
from hfcomp.sandbox.scenes import draw_scene

LAYOUTS = (
    {"num_things": 1},
    {"num_things": 1, "counted": True},
    {"num_things": 2},
    {"num_things": 2, "counted": True},
    {"num_things": 3},
    {"num_things": 3, "corner": True},
)
EVERYTHING = dict.fromkeys(("relation", "size", "texture", "background", "place", "three"), 1.0)
ADDING = ("add_att", "add_obj", "add_rel")


def draw_scenes(seed, count=300):
    generator = np.random.default_rng(seed)
    return [draw_scene(generator, **layout) for layout in islice(cycle(LAYOUTS), count)]


@cache
def drawn_captions(count=420):
    """Pairs of a scene and a caption, in which anything may be said or not."""
    generator = np.random.default_rng(1)
    half = dict.fromkeys(EVERYTHING, 0.5) | {"relation": 0.7, "three": 0.8}
    return [(scene, draw_caption(generator, scene, **half)) for scene in draw_scenes(0, count)]


@cache
def drawn_negatives():
    """Triples of a scene, a caption and a negative, of all kinds that the caption allows."""
    generator = np.random.default_rng(2)
    return [
        (scene, caption, draw_negative(generator, scene, caption, kind))
        for scene, caption in drawn_captions()
        for kind in applicable_kinds(scene, caption)
    ]


def same_looks(scene):
    """The content of a scene, regardless of the order of its things, jitter, specks and noise."""
    things = {(thing.shape, thing.color, thing.size, thing.texture, frozenset(thing.cells)) for thing in scene.things}
    return scene.background, frozenset(things)
