"""Masks against plain loops, at the borders of images and at the limits of their sizes."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from hfcomp.data.annotations.masks import check_mask, enlarge, mask_image, overlay, read_mask, threshold_mask


def random_mask(rng: np.random.Generator) -> np.ndarray:
    height, width = rng.integers(1, 14, size=2)
    return rng.random((height, width)) < rng.choice([0.02, 0.2, 0.7])


def enlarged_by_loops(mask: np.ndarray, x: int, y: int) -> np.ndarray:
    larger = np.zeros_like(mask)
    for row, column in zip(*np.nonzero(mask), strict=True):
        for other_row in range(max(0, row - y), min(mask.shape[0], row + y + 1)):
            for other_column in range(max(0, column - x), min(mask.shape[1], column + x + 1)):
                larger[other_row, other_column] = True
    return larger


@pytest.mark.parametrize("seed", range(20))
def test_enlarging_equals_plain_loops(seed):
    rng = np.random.default_rng(seed)
    mask = random_mask(rng)
    for x, y in [(0, 0), (1, 0), (0, 1), (2, 3), *rng.integers(0, 20, size=(4, 2))]:
        larger = enlarge(mask, int(x), int(y))
        assert larger.dtype == bool and (larger == enlarged_by_loops(mask, x, y)).all()


def test_x_is_for_columns_and_y_for_rows():
    mask = np.zeros((5, 7), dtype=bool)
    mask[2, 3] = True
    assert np.argwhere(enlarge(mask, 2, 0)).tolist() == [[2, column] for column in range(1, 6)]
    assert np.argwhere(enlarge(mask, 0, 1)).tolist() == [[row, 3] for row in (1, 2, 3)]


def test_enlarging_beyond_the_image_covers_it():
    mask = np.zeros((4, 6), dtype=bool)
    mask[0, 0] = True
    assert enlarge(mask, 10_000_000, 10_000_000).all()


@pytest.mark.parametrize("x, y", [(-1, 0), (0, -2)])
def test_a_negative_enlargement_is_refused(x, y):
    with pytest.raises(ValueError, match=f"found {x} and {y} pixels"):
        enlarge(np.ones((2, 2), dtype=bool), x, y)


def test_the_threshold_itself_belongs_to_the_mask():
    heat = np.array([[0.0, 0.3, 0.5, 1.0]], dtype=np.float32)
    assert threshold_mask(heat, 0.5).tolist() == [[False, False, True, True]]
    assert threshold_mask(heat, 0).all()
    assert threshold_mask(heat, 1).tolist() == [[False, False, False, True]]


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan")])
def test_a_threshold_that_is_no_probability_is_refused(threshold):
    with pytest.raises(ValueError, match=f"threshold: found {threshold}"):
        threshold_mask(np.zeros((1, 1), dtype=np.float32), threshold)


@pytest.mark.parametrize(
    "mask, message",
    [
        (np.zeros((4, 6), dtype=bool), "empty"),
        (np.ones((4, 6), dtype=bool), "whole image"),
        (np.eye(6, 4, dtype=bool), "4 x 6 pixels, .*6 x 4"),
    ],
)
def test_masks_that_cannot_be_painted_in_are_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        check_mask(mask, Image.new("RGB", (6, 4)))


@pytest.mark.parametrize("seed", range(5))
def test_a_mask_survives_its_image(seed, tmp_path):
    mask = random_mask(np.random.default_rng(seed))
    mask_image(mask).save(tmp_path / "mask.png")
    with Image.open(tmp_path / "mask.png") as image:
        assert image.mode == "L" and (read_mask(image) == mask).all()


def test_a_mask_drawn_in_grey_is_cut_at_one_half():
    assert read_mask(Image.fromarray(np.array([[0, 127, 128, 255]], dtype=np.uint8))).tolist() == [[0, 0, 1, 1]]


def test_the_overlay_marks_the_mask_and_its_outline_alone():
    pixels = np.full((30, 40, 3), 100, dtype=np.uint8)
    mask = np.zeros((30, 40), dtype=bool)
    mask[10:20, 10:20] = True
    shown = np.asarray(overlay(Image.fromarray(pixels), mask))
    changed = (shown != pixels).any(-1)
    assert (changed == enlarge(mask, 1, 1)).all()
    assert (shown[9, 9] == [230, 30, 30]).all() and shown[15, 15, 0] > 100 > shown[15, 15, 2]
