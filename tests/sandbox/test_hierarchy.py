"""Levels of abstraction: a tree that can be read off the scene alone, and groups whose rivals exist."""

from dataclasses import replace
from functools import cache

import pytest

from hfcomp.sandbox.hierarchy import COLOR_FAMILIES, LEVELS, OUTLINES, SHAPE_FAMILIES, levels, rival_groups
from hfcomp.sandbox.scenes import COLORS, SHAPES, Scene, Thing

from .drawn import draw_scenes


@cache
def groups():
    """The groups that scenes have. All families of three things are rare, hence so many."""
    return {levels(scene)[0] for scene in draw_scenes(0, 8_000)}


def thing(shape, color, column, *twins):
    return Thing(shape, color, "small", "plain", (0, column), twins)


@pytest.mark.parametrize(
    ("things", "names"),
    [
        (
            [thing("ring", "red", 0)],
            ("one warm round figure", "one warm curved figure", "one warm figure", "one figure"),
        ),
        (
            [thing("star", "blue", 0, (2, 2)), thing("cross", "pink", 1)],
            ("three motley spiky figures", "three motley straight figures", "three motley figures", "three figures"),
        ),
        (
            [thing("heart", "blue", 0), thing("circle", "green", 1)],
            ("two cool curved assorted figures", "two cool curved figures", "two cool figures", "two figures"),
        ),
        (
            [thing("heart", "red", 0), thing("star", "pink", 1)],
            ("two warm assorted figures", "two warm assorted figures", "two warm figures", "two figures"),
        ),
    ],
)
def test_levels_in_words(things, names):
    assert levels(Scene(tuple(things), "navy")) == names


def test_families_hold_every_shape_and_color_once():
    assert sorted(shape for shapes in SHAPE_FAMILIES.values() for shape in shapes) == sorted(SHAPES)
    assert sorted(color for colors in COLOR_FAMILIES.values() for color in colors) == sorted(COLORS)
    assert sorted(family for families in OUTLINES.values() for family in families) == sorted(SHAPE_FAMILIES)


def test_every_node_has_one_parent():
    parents = {}
    for scene in draw_scenes(0, 1200):
        names = levels(scene)
        assert len(names) == len(LEVELS)
        for level, (name, parent) in enumerate(zip(names, names[1:], strict=False)):
            assert parents.setdefault((level, name), parent) == parent
    counts = [len({name for at, name in parents if at == level}) for level in range(3)]
    assert counts[0] > counts[1] > counts[2] > 3


def test_levels_are_seen_in_the_scene_alone():
    for scene in draw_scenes(0, 120):
        things = [
            replace(t, size="small", texture="plain", cell=t.cells[-1], twins=t.cells[:-1], jitter=(0, 0))
            for t in scene.things[::-1]
        ]
        assert levels(Scene(tuple(things), "plum", (), 1)) == levels(scene)


def test_rivals_are_other_groups_that_scenes_have():
    assert len(groups()) > 40
    for group in groups():
        rivals = rival_groups(group)
        assert rivals and group not in rivals and len(set(rivals)) == len(rivals)
        assert set(rivals) <= groups()
        assert {rival.split()[0] for rival in rivals} == {group.split()[0]}


def test_rivals_differ_in_color_or_in_shape():
    assert rival_groups("one warm round figure") == [
        "one warm lobed figure",
        "one warm cornered figure",
        "one warm spiky figure",
        "one cool round figure",
    ]
    assert {"two motley round figures", "two warm assorted figures"} <= set(rival_groups("two warm round figures"))
    assert "two cool spiky figures" not in rival_groups("two warm round figures")
