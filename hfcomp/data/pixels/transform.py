"""Resizes and crops images like the model's own processor, into batches of 8-bit pixels that stay in main memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image, features
from torch.nn import functional

from hfcomp.data.images import DROP_ROW, MAX_IMAGE_PIXELS


def crop_and_scale(pixels: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Crops each image and scales the crop bicubically (PyTorch's kernel, a = -0.75) to the size of the whole image.

    A box may begin and end between pixels. A box that covers the whole image leaves uint8 pixels unchanged.

    Args:
        pixels: Images `[M, 3, H, W]`, uint8 or float.
        boxes: Crop boxes `[M, 4]`, float32 on the same device, `(left, top, right, bottom)` as shares of width and
            height.

    Returns:
        Images `[M, 3, H, W]` with the dtype of `pixels`; uint8 values are rounded.
    """
    # Images are never scaled down, so no low-pass filter is needed.
    height, width = pixels.shape[2:]
    left, top, right, bottom = boxes.float().unbind(1)
    # Do not use affine_grid: its matrix product is rounded to bfloat16 under autocast, and to TF32 if allowed, which
    # moves points by fractions of a pixel.
    across, down = _positions(left, right, width), _positions(top, bottom, height)
    grid = torch.stack(torch.broadcast_tensors(across[:, None, :], down[:, :, None]), dim=-1)
    part = functional.grid_sample(pixels.float(), grid, mode="bicubic", padding_mode="border", align_corners=False)
    # Near edges, a cubic kernel leaves the range of its values.
    return part.to(pixels.dtype) if pixels.is_floating_point() else part.round_().clamp_(0, 255).to(pixels.dtype)


def _positions(start: torch.Tensor, stop: torch.Tensor, number: int) -> torch.Tensor:
    # Centers `[M, number]` of equal pixels between start and stop; -1 to 1 is the whole image.
    centers = (torch.arange(number, device=start.device, dtype=torch.float32) + 0.5) / number
    return 2 * torch.lerp(start[:, None], stop[:, None], centers) - 1


class PixelBatch:
    """Pixels that stay in place until the model requests a mini-batch of them, which is then cropped."""

    # The Trainer, accelerate, DDP and FSDP move every tensor inside mappings, sequences and dataclasses, and
    # accelerate also moves any object with `.to`. This class is none of these and has no `.to`, so a large batch waits
    # in main memory and only `slice_to` moves it.
    __slots__ = ("boxes", "pixels")

    def __init__(self, pixels: torch.Tensor | Mapping[str, torch.Tensor], boxes: torch.Tensor | None = None) -> None:
        """Wraps pixels `[M, 3, H, W]`: uint8 from `PixelTransform`, or already normalized floats.

        `slice_to` crops the images to `boxes`, `[M, 4]` float32: `(left, top, right, bottom)` as shares of width and
        height, 0 to 1. The outputs of `ProcessorInputs` are wrapped by name; their images are already cropped.
        """
        if isinstance(pixels, Mapping):
            self.pixels, self.boxes = dict(pixels), boxes
            return
        if not isinstance(pixels, torch.Tensor) or pixels.ndim != 4 or pixels.shape[1] != 3:
            kind = f"shape {list(pixels.shape)}" if isinstance(pixels, torch.Tensor) else f"a {type(pixels).__name__}"
            raise ValueError(f"PixelBatch got {kind}. Expected a tensor [M, 3, H, W].")
        if pixels.dtype != torch.uint8 and not pixels.is_floating_point():
            raise TypeError(f"PixelBatch got {pixels.dtype}. Expected uint8, or already normalized floats.")
        if boxes is not None and boxes.shape != (len(pixels), 4):
            raise ValueError(
                f"PixelBatch got boxes of shape {list(boxes.shape)} for {len(pixels)} images. Expected [M, 4]."
            )
        self.pixels = pixels
        self.boxes = boxes

    def __len__(self) -> int:
        return len(self.pixels["pixel_values"] if isinstance(self.pixels, dict) else self.pixels)

    def __repr__(self) -> str:
        if isinstance(self.pixels, dict):
            return f"PixelBatch({ {name: list(values.shape) for name, values in self.pixels.items()} })"
        # Show shape and dtype instead of pixels, because batches appear in logs and tracebacks.
        crops = "" if self.boxes is None else ", crops"
        return f"PixelBatch({list(self.pixels.shape)}, {self.pixels.dtype}, {self.pixels.device}{crops})"

    def pin_memory(self) -> PixelBatch:
        """Returns a copy in page-locked memory; called by the DataLoader's pin thread with `dataloader_pin_memory`."""
        if isinstance(self.pixels, dict):
            return PixelBatch({name: values.pin_memory() for name, values in self.pixels.items()}, self.boxes)
        return PixelBatch(self.pixels.pin_memory(), None if self.boxes is None else self.boxes.pin_memory())

    def slice_to(self, start: int, stop: int, device: torch.device | str) -> Any:
        """Copies images `start:stop` to `device` without changing the dtype; if pinned, the copy is asynchronous."""
        if isinstance(self.pixels, dict):
            return {name: _copy(values[start:stop], device) for name, values in self.pixels.items()}
        pixels = _copy(self.pixels[start:stop], device)
        return pixels if self.boxes is None else crop_and_scale(pixels, _copy(self.boxes[start:stop], device))


def _copy(part: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    # An asynchronous copy from unpinned memory gains nothing, and one from device to host could be read too early.
    return part.to(device, non_blocking=part.is_pinned())


# Settings that do not affect a processor's 8-bit pixels. The last two record its classes.
_AFTER_PIXELS = (
    *("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"),
    *("image_processor_type", "processor_class"),
)


class UnequalPixels(ValueError):
    """A processor prepares images in a way that `PixelTransform` cannot reproduce."""


class PixelTransform:
    """Resizes and crops RGB images to uint8 pixels like a Hugging Face image processor, without rescaling them.

    `(pixels * rescale_factor - mean) / std` equals the processor's own output. Because the accelerator does this part,
    a batch is four times smaller on its way there. Instances can be pickled for DataLoader workers.

    Attributes:
        mean: Three floats; zeros if the processor does not normalize.
        std: Three floats; ones if the processor does not normalize.
        rescale_factor: Factor for pixel values; 1.0 if the processor does not rescale.
        size: Size `(H, W)` of every output.
        max_pixels: Largest width times height of an intermediate image when resizing to `size`; images up to 16 times
            as long as wide always pass.
        direct: Resize and crop with Pillow only, if probes prove that the pixels equal the processor's. This is faster
            than the processor, which converts each image to an array and back.
        keeps_ready_images: Whether the processor leaves images of exactly this size unchanged, as proven by a probe.
            Such images (cached resized images, the sandbox) then skip the processor.
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
        """Builds the transform and verifies on probe images that it equals the processor's own output.

        `image_processor` is the result of `AutoImageProcessor.from_pretrained` (with or without torchvision), or a
        processor with an attribute `image_processor`, such as `CLIPProcessor`.

        Raises:
            ValueError: If the processor's outputs differ in size between images, or it does more than resize, crop,
                rescale and normalize.
        """
        image_processor = getattr(image_processor, "image_processor", image_processor)
        if not callable(image_processor) or not hasattr(image_processor, "do_normalize"):
            raise TypeError(
                f"found a {type(image_processor).__name__}, expected an image processor, such as the result of "
                "AutoImageProcessor.from_pretrained."
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
        """Resizes and crops RGB images to contiguous uint8 `[B, 3, H, W]`; `where` names their places in errors.

        Raises:
            ValueError: If an image is not RGB, or so elongated that the processor's resize would exceed `max_pixels`.
        """
        for index, image in enumerate(images):
            place = f"image {index} of the batch" if where is None else where[index]
            if image.mode != "RGB":
                raise ValueError(f"{place} has mode {image.mode}. Expected RGB; pass it through decode_image.")
            check_resized(self.image_processor, image, place, self.max_pixels)
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
        """Completes the processor's work: `(pixels * rescale_factor - mean) / std` in float32, `[B, 3, H, W]`."""
        mean, std = (torch.tensor(values, device=pixels.device)[:, None, None] for values in (self.mean, self.std))
        return (pixels.float() * self.rescale_factor - mean) / std

    def batch(self, parts: Sequence[torch.Tensor], device: torch.device | str) -> torch.Tensor:
        """Returns several outputs of this transform as one batch of normalized pixels on a device."""
        return self.normalize(torch.cat(list(parts)).to(device))

    def facts(self) -> dict[str, Any]:
        """Returns everything that determines an image's pixels, as JSON, to identify stored pixels.

        The accelerator's part, rescaling and normalization, is not included. A digest of the probes' pixels represents
        the behavior of the processor's code.
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
            "jpeg": features.version_feature("libjpeg_turbo") or features.version_codec("jpg"),
        }

    def _prove(self) -> None:
        direct = DirectResize.from_processor(self.image_processor)
        for image in (*_probes(), *_uneven_probes(), _noise(self.size)):
            pixels = self([image])
            if pixels.dtype != torch.uint8:
                raise UnequalPixels(self._cannot(f"returns {pixels.dtype} without rescaling and normalization"))
            own = _stack(self.image_processor(images=[image], return_tensors=None)["pixel_values"]).float()
            ours = self.normalize(pixels)
            allowed = 1e-5 * max(1.0, own.abs().max().item())
            if own.shape != ours.shape or (own - ours).abs().max().item() > allowed:
                raise UnequalPixels(self._cannot("does more to the pixels than resize, crop, rescale and normalize"))
            if direct is not None and not np.array_equal(direct(image), pixels[0]):
                direct = None
        self.keeps_ready_images = np.array_equal(pixels[0].permute(1, 2, 0).numpy(), np.asarray(image))
        self.direct = direct

    def _cannot(self, problem: str) -> str:
        return (
            f"{type(self.image_processor).__name__} {problem}. Expected 8-bit pixels before rescaling. Use the "
            "processor of a fixed-resolution CLIP or SigLIP model, or pass float pixels from your own collator."
        )


def check_resized(image_processor: Any, image: Image.Image, place: str, max_pixels: int) -> None:
    # Resizing the short edge before cropping turns 1 x 100,000 into an intermediate image of 224 x 22,400,000.
    size = getattr(image_processor, "size", None)
    short = size.get("shortest_edge") if hasattr(size, "get") else None
    if not short or size.get("longest_edge") or not image_processor.do_resize:
        return
    width, height = image.size
    # A limit below the common output size would reject all images. The limit is meant for images that grow beyond
    # that size.
    limit = max(max_pixels, 16 * short * short)
    if short * short * max(image.size) / min(image.size) > limit:
        raise ValueError(
            f"{place} is {width:,} x {height:,} pixels. With its short edge resized to {short}, it would exceed "
            f"{limit:,} pixels. {DROP_ROW}, crop it or, if you trust its source, raise max_image_pixels."
        )


def _three(values: float | Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in np.broadcast_to(np.asarray(values, dtype=np.float64), 3))


def _probes() -> list[Image.Image]:
    # Wide, tall and square noise: the smallest set whose outputs differ in size unless the processor fixes the size.
    return [_noise(size) for size in ((40, 64), (64, 40), (48, 48))]


def _uneven_probes() -> list[Image.Image]:
    # Noise that is enlarged or reduced, with margins of odd width, reveals how sizes and crops are rounded.
    return [_noise(size) for size in ((251, 163), (97, 301), (31, 17))]


def _noise(size: tuple[int, int]) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8))


def _raw_pixels(image_processor: Any, images: Sequence[Image.Image]) -> Sequence[Any]:
    # Without return_tensors, a processor returns a list, so we can report differing sizes with our own message.
    outputs = image_processor(images=list(images), do_rescale=False, do_normalize=False, return_tensors=None)
    return outputs["pixel_values"]


def _stack(pixels: Sequence[Any]) -> torch.Tensor:
    arrays = [np.asarray(image) for image in pixels]
    # The processor's arrays are transposed views of [H, W, 3]. Plain stacking would keep that order in memory.
    stacked = np.empty((len(arrays), *arrays[0].shape), dtype=arrays[0].dtype)
    return torch.from_numpy(np.stack(arrays, out=stacked))


def _output_size(image_processor: Any) -> tuple[int, int]:
    name = type(image_processor).__name__
    shapes = [np.shape(_raw_pixels(image_processor, [image])[0]) for image in _probes()]
    if any(len(shape) != 3 or shape[0] != 3 for shape in shapes):
        raise ValueError(
            f"{name} returns pixels of shape {list(shapes[0])} for one image. Expected [3, H, W]; use the processor "
            "of a fixed-resolution model, or `ProcessorInputs` for one like the NaFlex variant of SigLIP 2."
        )
    if len(set(shapes)) > 1:
        sizes = ", ".join(f"{height} x {width}" for _, height, width in shapes)
        raise ValueError(
            f"{name} returns images of different sizes ({sizes} for a wide, a tall and a square one), which cannot be "
            "batched. Expected one size; set do_center_crop=True with a crop_size, or size={'height': H, 'width': W}."
        )
    return shapes[0][1], shapes[0][2]


@dataclass(frozen=True)
class DirectResize:
    """A processor's resize and center crop, read from its settings; the caller verifies that the pixels are equal.

    Attributes:
        short_edge: Size of the shorter side after resizing; `None` for a fixed size.
        resized: Size `(H, W)` after resizing, if `short_edge` is `None`.
        crop: Size `(H, W)` of the center crop.
        resample: Pillow's resampling filter.
    """

    short_edge: int | None
    resized: tuple[int, int]
    crop: tuple[int, int]
    resample: int

    @classmethod
    def from_processor(cls, image_processor: Any) -> DirectResize | None:
        """Reads a processor's resize; `None` if it does something else, such as padding small images."""
        size, resample = getattr(image_processor, "size", None), getattr(image_processor, "resample", None)
        if not image_processor.do_resize or not hasattr(size, "get") or not isinstance(resample, int):
            return None
        short, fixed = size.get("shortest_edge"), (size.get("height"), size.get("width"))
        if size.get("longest_edge") or not (short or all(fixed)):
            return None
        resized = (short, short) if short else fixed
        crop = resized
        if getattr(image_processor, "do_center_crop", False):
            crop = (image_processor.crop_size["height"], image_processor.crop_size["width"])
        elif short:
            return None
        if crop[0] > resized[0] or crop[1] > resized[1]:
            return None
        return cls(short or None, resized, crop, int(resample))

    def __call__(self, image: Image.Image) -> NDArray[np.uint8]:
        pixels = np.empty((3, *self.crop), dtype=np.uint8)
        self.write(image, pixels)
        return pixels

    def write(self, image: Image.Image, pixels: NDArray[np.uint8]) -> None:
        # Do not merge the crop into the resize (`box` of `Image.resize`): Pillow rounds the weights for a box
        # differently, and single pixels of photographs then differ by 2 of 255.
        resized = np.asarray(image.resize(self._resized_size(*image.size), self.resample))
        (height, width), (rows, columns) = resized.shape[:2], self.crop
        top, left = (height - rows) // 2, (width - columns) // 2
        pixels[:] = resized[top : top + rows, left : left + columns].transpose(2, 0, 1)

    def _resized_size(self, width: int, height: int) -> tuple[int, int]:
        # Round like transformers.
        if self.short_edge is None:
            return self.resized[1], self.resized[0]
        long = int(self.short_edge * max(width, height) / min(width, height))
        return (self.short_edge, long) if width <= height else (long, self.short_edge)
