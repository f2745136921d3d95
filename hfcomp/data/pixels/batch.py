"""Pixels of a batch, which stay in main memory until the model asks for them."""

from __future__ import annotations

import torch


class PixelBatch:
    """Pixels that stay where they are until the model asks for a mini-batch of them.

    The Trainer, accelerate, DDP and FSDP move every tensor they find inside mappings, sequences and dataclasses, and
    accelerate everything that has `.to`. This is none of these and has none, so a large batch waits in main memory and
    only `slice_to` moves it.
    """

    __slots__ = ("pixels",)

    def __init__(self, pixels: torch.Tensor) -> None:
        """Wraps the pixels.

        Args:
            pixels: `[M, 3, H, W]`, uint8 as `PixelTransform` gives them, or float and already normalised.
        """
        if not isinstance(pixels, torch.Tensor) or pixels.ndim != 4 or pixels.shape[1] != 3:
            found = f"shape {list(pixels.shape)}" if isinstance(pixels, torch.Tensor) else f"a {type(pixels).__name__}"
            raise ValueError(f"PixelBatch got {found}. Expected a tensor [M, 3, H, W].")
        if pixels.dtype != torch.uint8 and not pixels.is_floating_point():
            raise TypeError(f"PixelBatch got {pixels.dtype}. Expected uint8, or float and already normalised.")
        self.pixels = pixels

    def __len__(self) -> int:
        """The number of images, M."""
        return self.pixels.shape[0]

    def __repr__(self) -> str:
        """Shape and type, not the pixels: batches end up in logs and tracebacks."""
        return f"PixelBatch({list(self.pixels.shape)}, {self.pixels.dtype}, {self.pixels.device})"

    def pin_memory(self) -> PixelBatch:
        """A copy in page-locked memory; the DataLoader's pin thread calls this with `dataloader_pin_memory`."""
        return PixelBatch(self.pixels.pin_memory())

    def slice_to(self, start: int, stop: int, device: torch.device | str) -> torch.Tensor:
        """The images `start:stop` on `device`, in the type they have here; the copy overlaps with work if pinned."""
        # From unpinned memory an asynchronous copy gains nothing, and from device to host it could be read too early.
        return self.pixels[start:stop].to(device, non_blocking=self.pixels.is_pinned())
