"""Model inputs that only the processor itself can prepare, such as the patches of a model with variable resolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from hfcomp.data.images import MAX_IMAGE_PIXELS
from hfcomp.data.pixels.transform import PixelTransform, UnequalPixels, check_resized


class ProcessorInputs:
    """Prepares images with the processor itself, one at a time, in float32.

    It takes the place of [`PixelTransform`] for processors that do more than resize, crop, rescale and normalize.

    Args:
        image_processor: The model's image processor.
        names: Names of the image tower's inputs.
        max_pixels: Largest width times height of an intermediate image.
    """

    # The processor has already rescaled and normalized.
    mean, std, rescale_factor = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), 1.0

    def __init__(self, image_processor: Any, names: Sequence[str], *, max_pixels: int = MAX_IMAGE_PIXELS) -> None:
        self.image_processor = image_processor
        self.names = tuple(names)
        self.max_pixels = max_pixels

    def __call__(
        self, images: Sequence[Image.Image], *, where: Sequence[str] | None = None
    ) -> dict[str, torch.Tensor]:
        """Returns the inputs of RGB images by name, each `[B, ...]`."""
        for index, image in enumerate(images):
            place = f"image {index} of the batch" if where is None else where[index]
            check_resized(self.image_processor, image, place, self.max_pixels)
        outputs = self.image_processor(images=list(images), return_tensors="np")
        return {name: torch.from_numpy(np.ascontiguousarray(outputs[name])) for name in self.names}

    def batch(
        self, parts: Sequence[Mapping[str, torch.Tensor]], device: torch.device | str
    ) -> dict[str, torch.Tensor]:
        """Returns several outputs of this transform as one batch on a device."""
        return {name: torch.cat([part[name] for part in parts]).to(device) for name in self.names}


def choose_transform(
    image_processor: Any, names: Sequence[str], *, max_pixels: int = MAX_IMAGE_PIXELS
) -> PixelTransform | ProcessorInputs:
    """Returns the fast transform of a processor if it proves to be equal, otherwise the processor itself.

    Args:
        image_processor: The model's image processor.
        names: Names of the image tower's inputs.
        max_pixels: Largest width times height of an intermediate image.
    """
    if tuple(names) == ("pixel_values",):
        try:
            return PixelTransform.from_processor(image_processor, max_pixels=max_pixels)
        except UnequalPixels:
            pass
    return ProcessorInputs(image_processor, names, max_pixels=max_pixels)
