"""Scenes and their pixels: what can be drawn, which scenes are kept for evaluation, and what an image shows."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from hfcomp.sandbox.rendering import CELL, changed_cells, encode_images, encode_mask, render
from hfcomp.sandbox.scenes import (
    BACKGROUNDS,
    COLORS,
    HELD_OUT_ONE_IN,
    MOST_OBJECTS,
    NOVEL_COMBINATIONS,
    SHAPES,
    SIZES,
    TEXTURES,
    Scene,
    Thing,
    draw_scene,
    is_held_out,
    is_novel,
)

from .drawn import LAYOUTS, draw_scenes, same_looks
from .eyes import differing_cells, see


def are_in_line(first, other):
    return (first.cell[0] == other.cell[0]) != (first.cell[1] == other.cell[1])


def test_things_are_distinct_and_the_first_two_are_in_line():
    for i, scene in enumerate(draw_scenes(0)):
        layout, things = LAYOUTS[i % len(LAYOUTS)], scene.things
        assert len(things) == layout["num_things"] and scene.objects <= MOST_OBJECTS
        assert {t.count > 1 for t in things[:1]} == {layout.get("counted", False)}
        assert not any(t.twins for t in things[1:])
        cells = [cell for t in things for cell in t.cells] + list(scene.specks)
        for values in ([t.shape for t in things], [t.color for t in things], cells):
            assert len(set(values)) == len(values)
        assert len(things) == 1 or are_in_line(*things[:2])
        if layout.get("corner"):
            assert are_in_line(things[0], things[2])
            assert (things[0].cell[0] == things[1].cell[0]) != (things[0].cell[0] == things[2].cell[0])


def test_everything_occurs():
    scenes = draw_scenes(0, 900)
    things = [thing for scene in scenes for thing in scene.things]
    for field, values in (("shape", SHAPES), ("color", COLORS), ("size", SIZES), ("texture", TEXTURES)):
        assert {getattr(thing, field) for thing in things} == set(values)
    assert {t.count for t in things} == {1, 2, 3}
    assert len({t.cell for t in things}) == 9 and len({t.jitter for t in things}) == 9
    assert {scene.background for scene in scenes} == set(BACKGROUNDS)
    assert {len(scene.specks) for scene in scenes} == {0, 1, 2}


def test_same_generator_same_scenes():
    assert draw_scenes(3) == draw_scenes(3)
    assert draw_scenes(3) != draw_scenes(4)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"num_things": 0}, "1 to 3"),
        ({"num_things": 4}, "1 to 3"),
        ({"num_things": 3, "counted": True}, "counted=True"),
        ({"num_things": 2, "corner": True}, "corner=True"),
    ],
)
def test_layouts_that_do_not_exist_are_refused(layout, message):
    with pytest.raises(ValueError, match=message):
        draw_scene(np.random.default_rng(0), **layout)


def test_eight_combinations_are_novel():
    assert len(NOVEL_COMBINATIONS) == len(SHAPES) == len({shape for _, shape in NOVEL_COMBINATIONS})
    color, shape = min(NOVEL_COMBINATIONS)
    thing = Thing(shape, color, "small", "plain", (0, 0))
    usual = replace(thing, color=next(c for c in COLORS if (c, shape) not in NOVEL_COMBINATIONS))
    assert is_novel([usual, thing]) and not is_novel([usual])


def test_split_takes_its_share_and_everything_novel():
    scenes = draw_scenes(0, 900)
    assert all(is_held_out(scene) for scene in scenes if is_novel(scene.things))
    usual = [is_held_out(scene) for scene in scenes if not is_novel(scene.things)]
    assert abs(np.mean(usual) - 1 / HELD_OUT_ONE_IN) < 0.07


def test_split_reads_what_the_scene_shows_alone():
    for scene in draw_scenes(1, 120):
        things = []
        for thing in scene.things[::-1]:
            first, *twins = thing.cells[::-1]
            things.append(replace(thing, cell=first, twins=tuple(twins), jitter=(0, 2)))
        assert is_held_out(Scene(tuple(things), scene.background, (), 9)) == is_held_out(scene)


def test_images_show_their_scenes():
    scenes = draw_scenes(5, 240)
    for scene, seen in zip(scenes, see(render(scenes)), strict=True):
        assert same_looks(seen) == same_looks(scene)
        assert set(seen.specks) == set(scene.specks)


def test_image_has_the_color_of_its_thing_in_its_cell_only():
    scene = Scene((Thing("square", "yellow", "large", "plain", (2, 0)),), "black", noise=5)
    pixels = render([scene])[0].astype(int)
    assert pixels.shape == (36, 36, 3)
    assert np.abs(pixels[30, 6] - COLORS["yellow"]).max() <= 7
    outside = np.ones((36, 36), dtype=bool)
    outside[2 * CELL :, :CELL] = False
    assert pixels[outside].max() <= 14


def test_shapes_sizes_and_textures_look_different():
    looks = [(shape, size, texture) for shape in SHAPES for size in SIZES for texture in TEXTURES]
    things = [Thing(shape, "pink", size, texture, (1, 1)) for shape, size, texture in looks]
    images = render([Scene((thing,), "black") for thing in things]).astype(int)
    for i in range(len(images)):
        for j in range(i):
            assert (np.abs(images[i] - images[j]).max(axis=-1) > 60).sum() >= 6, (looks[i], looks[j])


def test_noise_and_specks_are_seen_and_change_nothing_else():
    (scene,) = draw_scenes(6, 1)
    bare = replace(scene, specks=())
    free = bare.free_cells()[0]
    assert differing_cells(*render([bare, replace(bare, specks=(free,))])) == {free}
    first, other = render([bare, replace(bare, noise=bare.noise + 1)]).astype(int)
    assert (first != other).any() and np.abs(first - other).max() <= 14


def test_images_do_not_depend_on_their_batch():
    scenes = draw_scenes(1, 20)
    together = render(scenes)
    assert all(np.array_equal(render([scene])[0], image) for scene, image in zip(scenes, together, strict=True))


def test_encoded_images_are_read_back_exactly():
    pixels = render(draw_scenes(2, 3))
    for image, file in zip(pixels, encode_images(pixels), strict=True):
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(file))), image)


def test_masks_are_white_in_the_changed_cells():
    thing, other = Thing("ring", "red", "small", "plain", (0, 1)), Thing("star", "blue", "large", "plain", (2, 2))
    before = Scene((thing, other), "navy")
    after = replace(before, things=(replace(thing, cell=(1, 1)), other))
    cells = changed_cells(before, after)
    assert cells == {(0, 1), (1, 1)}
    mask = np.asarray(Image.open(io.BytesIO(encode_mask(cells))))
    assert mask.shape == (36, 36) and set(np.unique(mask)) == {0, 255}
    assert differing_cells(mask, np.zeros_like(mask)) == cells and mask.mean() == 255 * 2 / 9
