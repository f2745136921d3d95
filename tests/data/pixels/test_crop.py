"""Crops on the device against a plain loop and Pillow; pixel batches that carry boxes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data._utils.pin_memory import pin_memory

from hfcomp.data.pixels import PixelBatch
from hfcomp.data.pixels.transform import crop_and_scale

SIZE = (20, 28)
# of 20 x 28 pixels: two whole ones, between pixels, at each border, and a whole image
BOXES = torch.tensor(
    [
        [4 / 28, 5 / 20, 25 / 28, 17 / 20],
        [0.013, 0.021, 0.947, 0.983],
        [0.1, 0, 1, 0.93],
        [0, 0.05, 0.97, 1],
        [0, 0, 1, 1],
    ]
)


def noise(count: int, size: tuple[int, int] = SIZE) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(count).integers(0, 256, (count, 3, *size), dtype=np.uint8))


def weights_at(center: float, number: int) -> np.ndarray:
    """Keys' cubic with a = -0.75 of the four nearest pixels; those outside the image count for its border."""
    weights = np.zeros(number)
    for place in range(int(np.floor(center)) - 1, int(np.floor(center)) + 3):
        d = abs(place - center)
        near, far = (1.25 * d - 2.25) * d**2 + 1, ((3.75 - 0.75 * d) * d - 6) * d + 3
        weights[min(max(place, 0), number - 1)] += near if d < 1 else far
    return weights


def reference(image: np.ndarray, box: list[float]) -> np.ndarray:
    """`[3, H, W]` in float64, pixel by pixel."""
    _, height, width = image.shape
    left, top, right, bottom = box
    crop = np.empty(image.shape)
    for row, column in np.ndindex(height, width):
        down = weights_at((top + (row + 0.5) / height * (bottom - top)) * height - 0.5, height)
        across = weights_at((left + (column + 0.5) / width * (right - left)) * width - 0.5, width)
        crop[:, row, column] = image @ across @ down
    return crop


def test_a_crop_is_that_of_a_plain_loop():
    pixels = noise(len(BOXES))
    crops = crop_and_scale(pixels, BOXES)
    assert crops.dtype == torch.uint8 and crops.shape == pixels.shape
    for index, box in enumerate(BOXES.tolist()):
        expected = reference(pixels[index].numpy().astype(float), box).clip(0, 255)
        difference = crops[index].numpy() - expected
        assert np.abs(difference).max() <= 0.5 + 0.01  # rounding, and the coordinates' own in float32


def test_a_crop_is_near_pillows_whose_kernel_is_softer():
    pixels = noise(len(BOXES), (224, 224))
    crops = crop_and_scale(pixels, BOXES)
    for index, box in enumerate((BOXES.double() * 224).clamp(0, 224).tolist()):
        image, crop = Image.fromarray(pixels[index].permute(1, 2, 0).numpy()), crops[index].permute(1, 2, 0).numpy()
        bicubic, bilinear = (
            np.abs(crop - np.asarray(image.resize((224, 224), kind, box=tuple(box))).astype(float)).mean()
            for kind in (Image.Resampling.BICUBIC, Image.Resampling.BILINEAR)
        )
        assert bicubic <= bilinear / 3


@pytest.mark.parametrize("size", [(1, 1), (32, 32), (224, 224), (384, 384), (37, 512)])
def test_the_box_of_a_whole_image_changes_nothing(size):
    pixels = noise(3, size)
    assert torch.equal(crop_and_scale(pixels, torch.tensor([[0.0, 0, 1, 1]]).expand(3, 4)), pixels)


def test_half_precision_of_the_model_is_not_that_of_the_crop():
    pixels = noise(len(BOXES), (224, 224))
    with torch.autocast("cpu", torch.bfloat16):
        crops = crop_and_scale(pixels, BOXES)
    assert torch.equal(crops, crop_and_scale(pixels, BOXES))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_normalized_pixels_keep_their_type(dtype):
    pixels = (noise(len(BOXES)) / 128 - 1).to(dtype)
    crops = crop_and_scale(pixels, BOXES)
    assert crops.dtype == dtype
    for index, box in enumerate(BOXES.tolist()):
        expected = reference(pixels[index].double().numpy(), box)
        assert np.abs(crops[index].double().numpy() - expected).max() <= 1e-4 + torch.finfo(dtype).eps


# PixelBatch


def test_a_part_of_a_batch_is_cropped_to_its_own_boxes():
    pixels = noise(len(BOXES))
    batch, whole = PixelBatch(pixels, BOXES), crop_and_scale(pixels, BOXES)
    parts = [batch.slice_to(start, start + 2, "cpu") for start in (0, 2, 4)]
    assert torch.equal(torch.cat(parts), whole) and not torch.equal(whole, pixels)
    assert torch.equal(batch.pixels, pixels) and "crops" in repr(batch)
    assert batch.slice_to(1, 3, "meta").shape == (2, 3, *SIZE)


def test_boxes_are_pinned_and_sent_with_the_pixels(monkeypatch):
    batch = PixelBatch(noise(len(BOXES)), BOXES)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())
    for copy in (pin_memory({"pixels": batch})["pixels"], pickle.loads(pickle.dumps(batch))):
        assert copy is not batch and torch.equal(copy.boxes, BOXES) and torch.equal(copy.pixels, batch.pixels)


def test_boxes_of_another_number_are_refused():
    with pytest.raises(ValueError, match=r"boxes .*\[5, 4\].* 4 images.*\[M, 4\]"):
        PixelBatch(noise(4), BOXES)
