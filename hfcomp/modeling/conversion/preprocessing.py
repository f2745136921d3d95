"""How a checkpoint's images are prepared, between open_clip's settings and an image processor of transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from PIL.Image import Resampling
from transformers import CLIPImageProcessorPil, SiglipImageProcessorPil
from transformers.image_utils import IMAGENET_STANDARD_MEAN, IMAGENET_STANDARD_STD, OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

RESAMPLING = {"bicubic": Resampling.BICUBIC, "bilinear": Resampling.BILINEAR}
SHORTEST, SQUASH = "shortest", "squash"
# Tags of open_clip's `pretrained.py` at 89fb801 (June 2026) whose preprocessing is not OpenAI's.
_HALVES_TAG, _SQUASH_TAG = re.compile("laion2b_s32b_b82k"), re.compile("dfn5b")


class Preprocessing(NamedTuple):
    """open_clip's settings of preprocessing.

    Attributes:
        mean: of each channel, of pixels in 0 to 1.
        std: of each channel.
        interpolation: `bicubic` or `bilinear`.
        resize_mode: `shortest` scales the shorter side and cuts the centre out, `squash` scales both sides.
        source: what states it.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    resize_mode: str
    source: str


def preprocessing(config: Mapping[str, Any] | None, tag: str | None) -> Preprocessing:
    """The settings of `open_clip_config.json`, else of a tag, else OpenAI's, which open_clip takes then.

    Args:
        config: the whole file; `None` without one.
        tag: open_clip's tag of the weights that training started from.

    Raises:
        ValueError: for a setting that transformers' processor has no counterpart for.
    """
    openai = (tuple(OPENAI_CLIP_MEAN), tuple(OPENAI_CLIP_STD))
    if config is None:
        halves = tag is not None and _HALVES_TAG.fullmatch(tag)
        mean, std = (tuple(IMAGENET_STANDARD_MEAN), tuple(IMAGENET_STANDARD_STD)) if halves else openai
        mode = SQUASH if tag is not None and _SQUASH_TAG.fullmatch(tag) else SHORTEST
        return Preprocessing(mean, std, "bicubic", mode, f"--pretrained {tag}" if tag else "open_clip's default")
    given = config.get("preprocess_cfg") or {}
    mean, std = (_channels(given.get(name), default) for name, default in zip(("mean", "std"), openai, strict=True))
    interpolation, mode = given.get("interpolation") or "bicubic", given.get("resize_mode") or SHORTEST
    interpolation = "bicubic" if interpolation == "random" else interpolation  # as open_clip evaluates
    if interpolation not in RESAMPLING or mode not in (SHORTEST, SQUASH):
        raise ValueError(
            f"open_clip_config.json: preprocessing {interpolation!r}, {mode!r} has no counterpart in transformers; "
            f"expected {' or '.join(RESAMPLING)} and {SHORTEST} or {SQUASH}."
        )
    return Preprocessing(mean, std, interpolation, mode, "open_clip_config.json")


def image_processor(settings: Preprocessing, size: int, *, siglip: bool = False) -> Any:
    """The image processor of a tower for square images of a size in pixels."""
    kind = SiglipImageProcessorPil if siglip else CLIPImageProcessorPil
    square = {"height": size, "width": size}
    crop = settings.resize_mode == SHORTEST
    cropping = {"do_center_crop": crop, "crop_size": square} if crop or not siglip else {}
    return kind(
        image_mean=list(settings.mean),
        image_std=list(settings.std),
        resample=RESAMPLING[settings.interpolation],
        size={"shortest_edge": size} if crop else square,
        **cropping,
    )


def preprocess_config(processor: Any, size: int) -> dict[str, Any]:
    """`preprocess_cfg` of open_clip for an image processor.

    Args:
        processor: of transformers, with its image processor.
        size: of the model's images, in pixels.

    Raises:
        ValueError: for a processor that open_clip has no counterpart for.
    """
    images = processor.image_processor
    sides, square = dict(images.size), {"height": size, "width": size}
    names = {int(value): name for name, value in RESAMPLING.items()}
    crops = bool(getattr(images, "do_center_crop", False))
    if crops and sides == {"shortest_edge": size} and dict(images.crop_size) == square:
        mode = SHORTEST
    elif not crops and sides == square:
        mode = SQUASH
    else:
        mode = ""
    switches = ("do_resize", "do_rescale", "do_normalize")
    if not mode or int(images.resample) not in names or not all(getattr(images, name) for name in switches):
        raise ValueError(
            f"the image processor resizes to {sides} (centre crop: {crops}, resampling {int(images.resample)}), which "
            f"open_clip has no setting for with a model of {size} pixels."
        )
    return {
        "mean": list(images.image_mean),
        "std": list(images.image_std),
        "interpolation": names[int(images.resample)],
        "resize_mode": mode,
    }


def _channels(value: Any, default: tuple[float, ...]) -> tuple[float, ...]:
    if value is None:
        return default
    return tuple(value) if isinstance(value, list | tuple) else (float(value),) * 3
