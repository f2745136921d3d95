"""The contract of a challenge set: beyond the mask and its border an edited image is the original, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from hfcomp.data.annotations.masks import change, changed_outside, compose, enlarge, is_changed


def noise(rng: np.random.Generator, height: int, width: int) -> Image.Image:
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


def random_case(seed: int) -> tuple[Image.Image, Image.Image, np.ndarray, int]:
    """Images of noise, a mask of boxes and single pixels (at the border too), and a feather."""
    rng = np.random.default_rng(seed)
    height, width = (int(side) for side in rng.integers(2, 40, size=2))
    mask = rng.random((height, width)) < rng.choice([0.0, 0.05])
    for _ in range(rng.integers(1, 3)):
        top, left = rng.integers(0, height), rng.integers(0, width)
        mask[top : top + rng.integers(1, 12), left : left + rng.integers(1, 12)] = True
    if mask.all():
        mask[0, 0] = False
    return noise(rng, height, width), noise(rng, height, width), mask, int(rng.integers(0, 9))


def distances(mask: np.ndarray) -> np.ndarray:
    """Rows or columns, whichever are more, to the nearest pixel of the mask."""
    inside = np.argwhere(mask)
    places = np.argwhere(np.ones_like(mask))
    return np.abs(places[:, None] - inside[None]).max(-1).min(-1).reshape(mask.shape)


@pytest.mark.parametrize("seed", range(60))
def test_only_the_mask_and_its_border_change(seed):
    original, edited, mask, feather = random_case(seed)
    pixels = np.asarray(compose(original, edited, mask, feather=feather)).astype(int)
    before, after, distance = np.asarray(original).astype(int), np.asarray(edited).astype(int), distances(mask)
    assert (pixels[mask] == after[mask]).all()
    assert (pixels[distance > feather] == before[distance > feather]).all()
    share = np.clip(1 - distance / (feather + 1), 0, 1)[..., None]
    assert np.abs(pixels - (share * after + (1 - share) * before)).max() <= 0.5 + 1e-4
    assert changed_outside(original, compose(original, edited, mask, feather=feather), mask, feather=feather) == 0


@pytest.mark.parametrize("seed", range(60, 70))
def test_the_border_fades_out_monotonically(seed):
    _, _, mask, feather = random_case(seed)
    black, white = (Image.new("RGB", mask.shape[::-1], color) for color in ("black", "white"))
    share = np.asarray(compose(black, white, mask, feather=feather))[..., 0].astype(int)
    distance = distances(mask)
    levels = [set(share[distance == d].tolist()) for d in range(feather + 2) if (distance == d).any()]
    assert all(len(level) == 1 for level in levels)
    values = [level.pop() for level in levels]
    assert values[0] == 255 and all(value > other for value, other in zip(values, values[1:], strict=False))
    assert not share[distance > feather].any()


def test_without_a_feather_the_border_is_sharp():
    original, edited, mask, _ = random_case(3)
    pixels = np.asarray(compose(original, edited, mask, feather=0))
    assert (pixels == np.where(mask[..., None], np.asarray(edited), np.asarray(original))).all()


def test_a_change_beyond_the_border_is_counted():
    original, edited, mask, feather = random_case(1)
    pixels = np.asarray(compose(original, edited, mask, feather=feather)).copy()
    row, column = np.argwhere(~enlarge(mask, feather, feather))[0]
    pixels[row, column, 1] ^= 1
    assert changed_outside(original, Image.fromarray(pixels), mask, feather=feather) == 1


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_images_of_other_modes_are_composed_in_rgb(mode):
    original, edited, mask, _ = random_case(2)
    composition = compose(original.convert(mode), edited.convert(mode), mask, feather=0)
    before, after = (np.asarray(image.convert(mode).convert("RGB")) for image in (original, edited))
    assert (np.asarray(composition) == np.where(mask[..., None], after, before)).all()


def test_what_does_not_fit_is_refused():
    image, mask = Image.new("RGB", (6, 4)), np.zeros((4, 6), dtype=bool)
    with pytest.raises(ValueError, match="empty"):
        compose(image, image, mask)
    mask[1, 1] = True
    with pytest.raises(ValueError, match="4 x 6 .*original.* 6 x 4"):
        compose(image, Image.new("RGB", (4, 6)), mask)
    with pytest.raises(ValueError, match="feather: found -1"):
        compose(image, image, mask, feather=-1)


def test_a_change_is_measured_in_the_mask_alone():
    original, mask = Image.new("RGB", (8, 8), (100, 100, 100)), np.zeros((8, 8), dtype=bool)
    mask[2:4, 2:6] = True
    edited = np.full((8, 8, 3), 255, dtype=np.uint8)
    edited[mask] = (104, 100, 97)
    edited = Image.fromarray(edited)
    assert change(original, edited, mask) == pytest.approx(np.sqrt((16 + 0 + 9) / 3))
    assert not is_changed(original, edited, mask, least=4.0) and is_changed(original, edited, mask, least=2.8)
    assert not is_changed(original, edited, np.zeros_like(mask), least=0.0)
