"""Pixels of a batch, which stay in main memory until the model asks for them."""

from __future__ import annotations

import torch

from hfcomp.data.pixels.crop import crop_and_scale


class PixelBatch:
    """Pixels that stay where they are until the model asks for a mini-batch of them, which is then cropped if asked.

    The Trainer, accelerate, DDP and FSDP move every tensor they find inside mappings, sequences and dataclasses, and
    accelerate everything that has `.to`. This is none of these and has none, so a large batch waits in main memory and
    only `slice_to` moves it.
    """

    __slots__ = ("boxes", "pixels")

    def __init__(self, pixels: torch.Tensor, boxes: torch.Tensor | None = None) -> None:
        """Wraps the pixels.

        Args:
            pixels: `[M, 3, H, W]`, uint8 as `PixelTransform` gives them, or float and already normalised.
            boxes: `[M, 4]` float32, what `slice_to` crops the images to: `(left, top, right, bottom)` as shares of
                width and height, 0 to 1. `None` for the whole images.
        """
        if not isinstance(pixels, torch.Tensor) or pixels.ndim != 4 or pixels.shape[1] != 3:
            found = f"shape {list(pixels.shape)}" if isinstance(pixels, torch.Tensor) else f"a {type(pixels).__name__}"
            raise ValueError(f"PixelBatch got {found}. Expected a tensor [M, 3, H, W].")
        if pixels.dtype != torch.uint8 and not pixels.is_floating_point():
            raise TypeError(f"PixelBatch got {pixels.dtype}. Expected uint8, or float and already normalised.")
        if boxes is not None and boxes.shape != (len(pixels), 4):
            raise ValueError(
                f"PixelBatch got boxes of shape {list(boxes.shape)} for {len(pixels)} images. Expected [M, 4]."
            )
        self.pixels = pixels
        self.boxes = boxes

    def __len__(self) -> int:
        """The number of images, M."""
        return self.pixels.shape[0]

    def __repr__(self) -> str:
        """Shape and type, not the pixels: batches end up in logs and tracebacks."""
        crops = "" if self.boxes is None else ", crops"
        return f"PixelBatch({list(self.pixels.shape)}, {self.pixels.dtype}, {self.pixels.device}{crops})"

    def pin_memory(self) -> PixelBatch:
        """A copy in page-locked memory; the DataLoader's pin thread calls this with `dataloader_pin_memory`."""
        return PixelBatch(self.pixels.pin_memory(), None if self.boxes is None else self.boxes.pin_memory())

    def slice_to(self, start: int, stop: int, device: torch.device | str) -> torch.Tensor:
        """The images `start:stop` on `device`, in the type they have here; the copy overlaps with work if pinned."""
        pixels = _copy(self.pixels[start:stop], device)
        return pixels if self.boxes is None else crop_and_scale(pixels, _copy(self.boxes[start:stop], device))


def _copy(part: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    # From unpinned memory an asynchronous copy gains nothing, and from device to host it could be read too early.
    return part.to(device, non_blocking=part.is_pinned())
