import numpy as np
import pytest

from hfcomp.sandbox.rendering import CELL, encode_images, render
from hfcomp.sandbox.scenes import COLOURS, SHAPES, SIZES, Scene, Thing, draw_scene, is_held_out


def draw_scenes(seed, count=300):
    generator = np.random.default_rng(seed)
    return [draw_scene(generator, 1 + i % 3) for i in range(count)]


def test_things_are_distinct_and_the_first_two_are_in_line():
    for i, scene in enumerate(draw_scenes(0)):
        things = scene.things
        assert len(things) == 1 + i % 3
        for values in ({t.shape for t in things}, {t.colour for t in things}, {(t.row, t.column) for t in things}):
            assert len(values) == len(things)
        if len(things) > 1:
            assert (things[0].row == things[1].row) != (things[0].column == things[1].column)


def test_every_shape_colour_size_and_cell_occurs():
    things = [thing for scene in draw_scenes(0) for thing in scene.things]
    assert {t.shape for t in things} == set(SHAPES)
    assert {t.colour for t in things} == set(COLOURS)
    assert {t.size for t in things} == set(SIZES)
    assert len({(t.row, t.column) for t in things}) == 9
    assert len({t.jitter for t in things}) == 9


def test_same_generator_same_scenes():
    assert draw_scenes(3) == draw_scenes(3)
    assert draw_scenes(3) != draw_scenes(4)


@pytest.mark.parametrize("num_things", [0, 4])
def test_number_of_things_is_checked(num_things):
    with pytest.raises(ValueError, match="1 to 3"):
        draw_scene(np.random.default_rng(0), num_things)


def test_split_ignores_noise_jitter_and_order():
    thing, other = Thing("ring", "red", "small", 0, 1), Thing("star", "blue", "large", 2, 1)
    held_out = is_held_out(Scene((thing, other), "navy"))
    moved = Thing("ring", "red", "small", 0, 1, jitter=(0, 2))
    assert is_held_out(Scene((other, moved), "navy", texture=9)) == held_out
    assert 0.1 < np.mean([is_held_out(scene) for scene in draw_scenes(0)]) < 0.3


def test_image_has_the_colour_of_its_thing_in_its_cell_only():
    scene = Scene((Thing("square", "yellow", "large", 2, 0),), "black", texture=5)
    pixels = render([scene])[0].astype(int)
    assert pixels.shape == (36, 36, 3)
    assert np.abs(pixels[30, 6] - COLOURS["yellow"]).max() <= 7
    outside = np.ones((36, 36), dtype=bool)
    outside[2 * CELL :, :CELL] = False
    assert pixels[outside].max() <= 14


def test_shapes_and_sizes_look_different():
    scenes = [Scene((Thing(shape, "white", size, 1, 1),), "black") for shape in SHAPES for size in SIZES]
    images = render(scenes).astype(int)
    for i in range(len(images)):
        for j in range(i):
            assert (np.abs(images[i] - images[j]).max(axis=-1) > 60).sum() >= 6, (scenes[i], scenes[j])


def test_images_do_not_depend_on_their_batch():
    scenes = draw_scenes(1, 20)
    together = render(scenes)
    assert all(np.array_equal(render([scene])[0], image) for scene, image in zip(scenes, together, strict=True))


def test_encoded_images_are_read_back_exactly(tmp_path):
    from PIL import Image

    pixels = render(draw_scenes(2, 3))
    for image, file in zip(pixels, encode_images(pixels), strict=True):
        (tmp_path / "image.bmp").write_bytes(file)
        assert np.array_equal(np.asarray(Image.open(tmp_path / "image.bmp")), image)
