"""Images cut to size as the model's own processor does it, in batches of 8-bit pixels that stay in main memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
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
    """Crops each image and scales the part up to the size of the whole, bilinearly.

    A box may begin and end between pixels. The box of a whole image leaves uint8 pixels exactly as they are.

    Args:
        pixels: `[M, 3, H, W]`, uint8 or float.
        boxes: `[M, 4]` float32 on the same device, `(left, top, right, bottom)` as shares of width and height.

    Returns:
        `[M, 3, H, W]` of the type of `pixels`; uint8 is rounded.
    """
    # Nothing is scaled down, so no low-pass filter is needed.
    height, width = pixels.shape[2:]
    left, top, right, bottom = boxes.float().unbind(1)
    # Not with affine_grid: its matrix product is rounded to bfloat16 under autocast, and to TF32 if that is allowed,
    # which moves points by parts of a pixel.
    across, down = _positions(left, right, width), _positions(top, bottom, height)
    grid = torch.stack(torch.broadcast_tensors(across[:, None, :], down[:, :, None]), dim=-1)
    part = functional.grid_sample(pixels.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return part.to(pixels.dtype) if pixels.is_floating_point() else part.round_().to(pixels.dtype)


def _positions(start: torch.Tensor, stop: torch.Tensor, number: int) -> torch.Tensor:
    # Centers of equal pixels between both, `[M, number]`; -1 to 1 is the whole image.
    centers = (torch.arange(number, device=start.device, dtype=torch.float32) + 0.5) / number
    return 2 * torch.lerp(start[:, None], stop[:, None], centers) - 1


class PixelBatch:
    """Pixels that stay where they are until the model asks for a mini-batch of them, which is then cropped."""

    # The Trainer, accelerate, DDP and FSDP move every tensor they find inside mappings, sequences and dataclasses, and
    # accelerate everything that has `.to`. This is none of these and has none, so a large batch waits in main memory
    # and only `slice_to` moves it.
    __slots__ = ("boxes", "pixels")

    def __init__(self, pixels: torch.Tensor, boxes: torch.Tensor | None = None) -> None:
        """Wraps pixels `[M, 3, H, W]`, uint8 as `PixelTransform` gives them, or float and already normalized.

        `boxes`, `[M, 4]` float32, are what `slice_to` crops the images to: `(left, top, right, bottom)` as shares of
        width and height, 0 to 1.
        """
        if not isinstance(pixels, torch.Tensor) or pixels.ndim != 4 or pixels.shape[1] != 3:
            found = f"shape {list(pixels.shape)}" if isinstance(pixels, torch.Tensor) else f"a {type(pixels).__name__}"
            raise ValueError(f"PixelBatch got {found}. Expected a tensor [M, 3, H, W].")
        if pixels.dtype != torch.uint8 and not pixels.is_floating_point():
            raise TypeError(f"PixelBatch got {pixels.dtype}. Expected uint8, or float and already normalized.")
        if boxes is not None and boxes.shape != (len(pixels), 4):
            raise ValueError(
                f"PixelBatch got boxes of shape {list(boxes.shape)} for {len(pixels)} images. Expected [M, 4]."
            )
        self.pixels = pixels
        self.boxes = boxes

    def __len__(self) -> int:
        return self.pixels.shape[0]

    def __repr__(self) -> str:
        # Shape and type, not the pixels: batches end up in logs and tracebacks.
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


# Settings that leave a processor's 8-bit pixels as they are. The last two record its classes.
_AFTER_PIXELS = (
    *("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"),
    *("image_processor_type", "processor_class"),
)


class PixelTransform:
    """A Hugging Face image processor's resize and crop, without its rescale and normalize: RGB images to uint8 pixels.

    `(pixels * rescale_factor - mean) / std` equals the processor's own output. Leaving that part to the accelerator
    makes a batch four times smaller on its way there. Instances pickle, so they can live in a DataLoader's workers.

    Attributes:
        mean: Three floats; zeros if the processor does not normalize.
        std: Three floats; ones if the processor does not normalize.
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

        It is what `AutoImageProcessor.from_pretrained` returns (with or without torchvision), or a processor that has
        one as `image_processor`, such as `CLIPProcessor`.

        Raises:
            ValueError: Its outputs differ in size between images, or it does more to the pixels than resize, crop,
                rescale and normalize.
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
        """Resizes and crops RGB images to `[B, 3, H, W]` uint8, contiguous; `where` is their place, for errors.

        Raises:
            ValueError: An image is not RGB, or so long and thin that the processor's resize would pass `max_pixels`.
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

        What the accelerator does, rescale and normalization, is no part of it. A digest of the probes' pixels stands
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
        # Resizing the short edge first and cropping afterwards turns 1 x 100,000 into 224 x 22,400,000 in between.
        size = getattr(self.image_processor, "size", None)
        short = size.get("shortest_edge") if hasattr(size, "get") else None
        if not short or size.get("longest_edge") or not self.image_processor.do_resize:
            return
        width, height = image.size
        # A limit below the size that every image is resized to would reject all images. The limit is about what grows
        # beyond that size.
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
                raise ValueError(self._cannot(f"gives {pixels.dtype} where it neither rescales nor normalizes"))
            own = _stack(self.image_processor(images=[image], return_tensors=None)["pixel_values"]).float()
            ours = self.normalize(pixels)
            allowed = 1e-5 * max(1.0, own.abs().max().item())
            if own.shape != ours.shape or (own - ours).abs().max().item() > allowed:
                raise ValueError(self._cannot("does more to the pixels than resize, crop, rescale and normalize"))
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
    # Wide, high and square noise: the smallest set whose outputs differ in size unless the processor fixes the size.
    return [_noise(size) for size in ((40, 64), (64, 40), (48, 48))]


def _uneven_probes() -> list[Image.Image]:
    # Noise that is enlarged or reduced, with margins of odd width, in which the rounding of a size or a crop would
    # show.
    return [_noise(size) for size in ((251, 163), (97, 301), (31, 17))]


def _noise(size: tuple[int, int]) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8))


def _raw_pixels(image_processor: Any, images: Sequence[Image.Image]) -> Sequence[Any]:
    # If no tensors are requested, a processor returns a list, so we can report differing sizes in our own words.
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


@dataclass(frozen=True)
class DirectResize:
    """A processor's resize and center crop, read from its settings; the caller proves that it gives the same pixels.

    Attributes:
        short_edge: What the shorter side is resized to; `None` for a fixed size.
        resized: `(H, W)` that every image is resized to; without `short_edge`.
        crop: `(H, W)` of the center that is kept.
        resample: Pillow's filter.
    """

    short_edge: int | None
    resized: tuple[int, int]
    crop: tuple[int, int]
    resample: int

    @classmethod
    def from_processor(cls, image_processor: Any) -> DirectResize | None:
        """The resize of a processor, or `None` for one that does something else, such as padding small images."""
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
        # The crop is not folded into the resize (`box` of `Image.resize`): Pillow computes other rounded weights for a
        # box, and single pixels of photographs then differ by 2 of 255.
        resized = np.asarray(image.resize(self._resized_size(*image.size), self.resample))
        (height, width), (rows, columns) = resized.shape[:2], self.crop
        top, left = (height - rows) // 2, (width - columns) // 2
        pixels[:] = resized[top : top + rows, left : left + columns].transpose(2, 0, 1)

    def _resized_size(self, width: int, height: int) -> tuple[int, int]:
        # Rounded as in transformers.
        if self.short_edge is None:
            return self.resized[1], self.resized[0]
        long = int(self.short_edge * max(width, height) / min(width, height))
        return (self.short_edge, long) if width <= height else (long, self.short_edge)
