"""Images with the texture of photographs, and copies of images as datasets hold them."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def texture(seed: int, size: tuple[int, int] = (160, 128)) -> Image.Image:
    """Noise whose amplitude falls with frequency, as that of photographs does."""
    rng = np.random.default_rng(seed)
    width, height = size
    frequency = np.hypot(np.fft.fftfreq(height)[:, None] * height, np.fft.fftfreq(width)[None] * width)
    spectrum = rng.normal(size=(3, height, width)) + 1j * rng.normal(size=(3, height, width))
    values = np.fft.ifft2(spectrum / (1 + frequency)).real
    values = (values - values.mean()) / values.std()
    return Image.fromarray((128 + 48 * values).clip(0, 255).astype(np.uint8).transpose(1, 2, 0))


def encode(image: Image.Image, quality: int = 90) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def recompress(image: Image.Image, quality: int) -> Image.Image:
    return Image.open(io.BytesIO(encode(image, quality))).convert("RGB")


def resize(image: Image.Image, short_side: int) -> Image.Image:
    scale = short_side / min(image.size)
    return image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)


def crop_edges(image: Image.Image, share: float) -> Image.Image:
    left, upper = (round(size * share / 2) for size in image.size)
    return image.crop((left, upper, image.width - left, image.height - upper))
