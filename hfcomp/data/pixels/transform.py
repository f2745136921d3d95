"""Images cut to size as the model's own processor does it, batched as 8-bit pixels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import PIL
import torch
from PIL import Image, features

from hfcomp.data.images import DROP_ROW, MAX_IMAGE_PIXELS
from hfcomp.data.pixels.direct import DirectResize

# Settings of a processor that leave 8-bit pixels as they are; the last two say where it was saved.
_AFTER_PIXELS = (
    *("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"),
    *("image_processor_type", "processor_class"),
)


class PixelTransform:
    """A Hugging Face image processor's resize and crop, without its rescale and normalise: RGB images to uint8 pixels.

    `(pixels * rescale_factor - mean) / std` equals the processor's own output. Leaving that part to the accelerator
    makes a batch four times smaller on its way there. Instances pickle, so they can live in a DataLoader's workers.

    Attributes:
        mean: Three floats; zeros if the processor does not normalise.
        std: Three floats; ones if the processor does not normalise.
        rescale_factor: 1.0 if the processor does not rescale.
        size: `(H, W)` of every output.
        max_pixels: Largest width times height that a resize may make on its way to `size`; images up to 16 times as
            long as wide always pass.
        direct: Resize and crop by Pillow alone, where it is proven to give the processor's pixels; it takes less time
            than the processor, which converts each image to an array and back.
        keeps_ready_images: Whether the processor leaves an image of exactly that size as it is, which is proven; such
            images (a cache of resized ones, the sandbox) then skip it.
    """

    def __init__(
        self,
        image_processor: Any,
        *,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        rescale_factor: float,
        size: tuple[int, int],
        max_pixels: int = MAX_IMAGE_PIXELS,
    ) -> None:
        """Keeps the parts; `from_processor` finds and proves them."""
        self.image_processor = image_processor
        self.mean = mean
        self.std = std
        self.rescale_factor = rescale_factor
        self.size = size
        self.max_pixels = max_pixels
        self.direct: DirectResize | None = None
        self.keeps_ready_images = False

    @classmethod
    def from_processor(cls, image_processor: Any, *, max_pixels: int = MAX_IMAGE_PIXELS) -> PixelTransform:
        """Builds the transform and proves on probe images that it equals the processor's own output.

        Args:
            image_processor: What `AutoImageProcessor.from_pretrained` returns (with or without torchvision), or a
                processor that has one as `image_processor`, such as `CLIPProcessor`.
            max_pixels: Largest width times height that a resize may make on its way to the output's size.

        Raises:
            TypeError: It is not an image processor.
            ValueError: Its outputs differ in size between images, or it does more to the pixels than resize, crop,
                rescale and normalise.
        """
        image_processor = getattr(image_processor, "image_processor", image_processor)
        if not callable(image_processor) or not hasattr(image_processor, "do_normalize"):
            raise TypeError(
                "Expected an image processor such as AutoImageProcessor.from_pretrained returns, found a "
                f"{type(image_processor).__name__}."
            )
        normalizes = bool(image_processor.do_normalize)
        rescales = bool(getattr(image_processor, "do_rescale", False))
        transform = cls(
            image_processor,
            mean=_three(image_processor.image_mean) if normalizes else (0.0, 0.0, 0.0),
            std=_three(image_processor.image_std) if normalizes else (1.0, 1.0, 1.0),
            rescale_factor=float(image_processor.rescale_factor) if rescales else 1.0,
            size=_output_size(image_processor),
        )
        transform._prove()
        transform.max_pixels = max_pixels  # the probes are ours and exempt from the limit
        return transform

    def __call__(self, images: Sequence[Image.Image], *, where: Sequence[str] | None = None) -> torch.Tensor:
        """Resizes and crops a batch.

        Args:
            images: RGB images, as `decode_image` returns them; none give an empty batch.
            where: The place of each image, for errors; "image 0 of the batch" and so on by default.

        Returns:
            `[B, 3, H, W]` uint8, contiguous.

        Raises:
            ValueError: An image is not RGB, or so long and thin that the processor's resize would pass
                `max_pixels`.
        """
        for index, image in enumerate(images):
            place = f"image {index} of the batch" if where is None else where[index]
            if image.mode != "RGB":
                raise ValueError(f"{place} has mode {image.mode}. Expected RGB; pass it through decode_image.")
            self._check_resized(image, place)
        pixels = torch.empty((len(images), 3, *self.size), dtype=torch.uint8)
        places, others = pixels.numpy(), []
        for index, image in enumerate(images):
            if self.keeps_ready_images and image.size == self.size[::-1]:
                places[index] = np.asarray(image).transpose(2, 0, 1)
            elif self.direct is not None:
                self.direct.write(image, places[index])
            else:
                others.append(index)
        if others:
            processed = _stack(_raw_pixels(self.image_processor, [images[index] for index in others]))
            if len(others) == len(images):
                return processed
            pixels[others] = processed
        return pixels

    def normalize(self, pixels: torch.Tensor) -> torch.Tensor:
        """The rest of the processor's work: `(pixels * rescale_factor - mean) / std` in float32, `[B, 3, H, W]`."""
        mean, std = (torch.tensor(values, device=pixels.device)[:, None, None] for values in (self.mean, self.std))
        return (pixels.float() * self.rescale_factor - mean) / std

    def facts(self) -> dict[str, Any]:
        """Everything that determines an image's pixels, as JSON: to identify pixels that were made before.

        What the accelerator does, rescale and normalisation, is no part of it. A digest of the probes' pixels stands
        for whatever the processor's code does.
        """
        settings = json.loads(self.image_processor.to_json_string())
        kept = {name: value for name, value in settings.items() if name not in _AFTER_PIXELS}
        probes = self([*_probes(), *_uneven_probes(), _noise(self.size)]).numpy()
        return {
            "processor": type(self.image_processor).__name__,
            "settings": kept,
            "size": list(self.size),
            "probes": hashlib.sha256(probes.tobytes()).hexdigest()[:16],
            "pillow": PIL.__version__,
            "jpeg": _jpeg_version(),
        }

    def _check_resized(self, image: Image.Image, place: str) -> None:
        # Resizing the short edge and cropping afterwards turns 1 x 100,000 into 224 x 22,400,000 on the way.
        size = getattr(self.image_processor, "size", None)
        short = size.get("shortest_edge") if hasattr(size, "get") else None
        if not short or size.get("longest_edge") or not self.image_processor.do_resize:
            return
        width, height = image.size
        # A limit below what every image is resized to would refuse them all; it is about what grows beyond that.
        limit = max(self.max_pixels, 16 * short * short)
        if short * short * max(image.size) / min(image.size) > limit:
            raise ValueError(
                f"{place} is {width:,} x {height:,} pixels: with its short edge resized to {short}, it would pass "
                f"{limit:,} pixels. {DROP_ROW}, crop it or, if you trust its source, raise max_image_pixels."
            )

    def _prove(self) -> None:
        direct = DirectResize.from_processor(self.image_processor)
        for image in (*_probes(), *_uneven_probes(), _noise(self.size)):
            pixels = self([image])
            if pixels.dtype != torch.uint8:
                raise ValueError(self._cannot(f"gives {pixels.dtype} where it neither rescales nor normalises"))
            own = _stack(self.image_processor(images=[image], return_tensors=None)["pixel_values"]).float()
            ours = self.normalize(pixels)
            allowed = 1e-5 * max(1.0, own.abs().max().item())
            if own.shape != ours.shape or (own - ours).abs().max().item() > allowed:
                raise ValueError(self._cannot("does more to the pixels than resize, crop, rescale and normalise"))
            if direct is not None and not np.array_equal(direct(image), pixels[0]):
                direct = None
        self.keeps_ready_images = np.array_equal(pixels[0].permute(1, 2, 0).numpy(), np.asarray(image))
        self.direct = direct

    def _cannot(self, problem: str) -> str:
        return (
            f"{type(self.image_processor).__name__} {problem}. Expected pixels of 8 bits until the rescale; use the "
            "processor of a fixed-resolution CLIP or SigLIP, or pass float pixels from a collator of your own."
        )


def _jpeg_version() -> str | None:
    return features.version_feature("libjpeg_turbo") or features.version_codec("jpg")


def _three(values: float | Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in np.broadcast_to(np.asarray(values, dtype=np.float64), 3))


def _probes() -> list[Image.Image]:
    # Wide, high and square noise: the smallest set whose outputs differ in size unless the processor fixes it.
    return [_noise(size) for size in ((40, 64), (64, 40), (48, 48))]


def _uneven_probes() -> list[Image.Image]:
    # Enlarged and reduced, with margins of odd width, where the rounding of a size or of a crop would show.
    return [_noise(size) for size in ((251, 163), (97, 301), (31, 17))]


def _noise(size: tuple[int, int]) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8))


def _raw_pixels(image_processor: Any, images: Sequence[Image.Image]) -> Sequence[Any]:
    # Without tensors asked for, a processor returns a list, so that sizes that differ can be reported in our words.
    outputs = image_processor(images=list(images), do_rescale=False, do_normalize=False, return_tensors=None)
    return outputs["pixel_values"]


def _stack(pixels: Sequence[Any]) -> torch.Tensor:
    arrays = [np.asarray(image) for image in pixels]
    # The processor's arrays are transposed views of [H, W, 3]; stacking alone would keep that order in memory.
    stacked = np.empty((len(arrays), *arrays[0].shape), dtype=arrays[0].dtype)
    return torch.from_numpy(np.stack(arrays, out=stacked))


def _output_size(image_processor: Any) -> tuple[int, int]:
    name = type(image_processor).__name__
    shapes = [np.shape(_raw_pixels(image_processor, [image])[0]) for image in _probes()]
    if any(len(shape) != 3 or shape[0] != 3 for shape in shapes):
        raise ValueError(
            f"{name} gives pixels of shape {list(shapes[0])} for one image. Expected [3, H, W]; use the processor of "
            "a fixed-resolution model (SigLIP 2 in its NaFlex form is not supported)."
        )
    if len(set(shapes)) > 1:
        found = ", ".join(f"{height} x {width}" for _, height, width in shapes)
        raise ValueError(
            f"{name} gives images of different sizes ({found} for a wide, a high and a square one), which cannot be "
            "batched. Expected one size; set do_center_crop=True with a crop_size, or size={'height': H, 'width': W}."
        )
    return shapes[0][1], shapes[0][2]
