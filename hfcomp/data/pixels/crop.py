"""Crops of images, scaled back to their size, on the device that the pixels are on."""

from __future__ import annotations

import torch
from torch.nn import functional


def crop_and_scale(pixels: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Crops each image and scales the part up to the size of the whole, bilinearly.

    A box may begin and end between pixels. Nothing is scaled down, so that no low-pass filter is needed. The box of a
    whole image leaves uint8 pixels as they are, to the bit.

    Args:
        pixels: `[M, 3, H, W]`, uint8 or float.
        boxes: `[M, 4]` float32 on the same device, `(left, top, right, bottom)` as shares of width and height.

    Returns:
        `[M, 3, H, W]` of the type of `pixels`; uint8 is rounded.
    """
    height, width = pixels.shape[2:]
    left, top, right, bottom = boxes.float().unbind(1)
    # not by affine_grid: its matrix product is rounded to bfloat16 under autocast, and to TF32 where that is allowed,
    # which moves points by parts of a pixel
    across, down = _positions(left, right, width), _positions(top, bottom, height)
    grid = torch.stack(torch.broadcast_tensors(across[:, None, :], down[:, :, None]), dim=-1)
    part = functional.grid_sample(pixels.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return part.to(pixels.dtype) if pixels.is_floating_point() else part.round_().to(pixels.dtype)


def _positions(start: torch.Tensor, stop: torch.Tensor, number: int) -> torch.Tensor:
    """The centres of `number` equal pixels between `start` and `stop`, `[M, number]`; -1 to 1 is the whole image."""
    centres = (torch.arange(number, device=start.device, dtype=torch.float32) + 0.5) / number
    return 2 * torch.lerp(start[:, None], stop[:, None], centres) - 1
