"""Tiny random models on disk, in the layout of the Hub: a CLIPSeg and an inpainting pipeline."""

from __future__ import annotations

from pathlib import Path

from hfcomp.testing import write_tiny_clipseg, write_tiny_inpainting
from tests import tiny


def clipseg(folder: Path) -> Path:
    """A CLIPSeg that sees images of 32 x 32 pixels."""
    return write_tiny_clipseg(folder, _tokenizer(folder))


def inpainting(folder: Path) -> Path:
    """A Stable Diffusion whose denoiser takes the mask and the masked image, without a safety checker."""
    return write_tiny_inpainting(folder, _tokenizer(folder))


def _tokenizer(folder: Path) -> Path:
    return tiny.clip(folder.with_name(f"{folder.name}-clip"))
