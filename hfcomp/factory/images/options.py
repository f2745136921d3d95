"""Options of negative images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from hfcomp.factory.options import BuildOptions
from hfcomp.options import Amount, Count, Device, check

DType = Literal["auto", "float16", "bfloat16", "float32"]
HIGHEST_QUALITY = 95
"""Highest JPEG quality. According to Pillow's documentation, higher values only make files larger."""


@dataclass(kw_only=True)
class ImageOptions(BuildOptions):
    """Negative images, made by a diffusers image-to-image pipeline.

    The paper (Slipform, section 2.2) names SDXL-Turbo, "high strength" and "low inference steps", but no numbers. All
    defaults except the pipeline are our choice:

    * At 4 steps, SDXL-Turbo's noise levels are 999, 749, 499 and 249. Strength 0.75 runs the last three, so it starts
      at 749 of 1000: high enough to replace an object, low enough to keep the scene's layout. diffusers rounds
      steps x strength down, so every strength from 0.75 to below 1 does the same at 4 steps.
    * SDXL-Turbo was distilled for guidance 0 and 512 pixels, according to its model card.
    * JPEG, because the photographs are JPEGs: a lossless negative could be recognized by its missing artifacts.
    * An image is blank if its pixels deviate from the mean by less than `blank_below` in every channel (root mean
      square, of 255 levels). The flattest of 449 COCO photographs has 32.
    * An image is unchanged if it differs from the pipeline's input by less than `unchanged_below` (root mean square).
      Without any edit, SDXL's VAE differs by 15 on COCO at 256 pixels (PSNR 24.7, its model card) and by less on a
      flat image, so 8 detects images that no pipeline has touched.

    """

    image_pipeline: Annotated[str, "Hub id or folder of the pipeline."] = "stabilityai/sdxl-turbo"
    image_steps: Annotated[Count, "Denoising steps of the schedule."] = 4
    image_strength: Annotated[
        float, Field(gt=0, le=1), "Share of the steps to run, above 0 and at most 1; at 1 the image is almost ignored."
    ] = 0.75
    image_guidance: Annotated[Amount, "Classifier-free guidance; 0 for pipelines that were distilled without it."] = (
        0.0
    )
    image_size: Annotated[Count, "Side of the square image in pixels; the center is cropped, as for CLIP."] = 512
    image_batch_size: Annotated[Count, "Images per batch; affects the result, see docs/concretebatch.md."] = 8
    image_quality: Annotated[int, Field(ge=1, le=HIGHEST_QUALITY), f"JPEG quality, 1 to {HIGHEST_QUALITY}."] = (
        HIGHEST_QUALITY
    )
    image_dtype: Annotated[
        DType, "Data type of the pipeline's weights; auto is float16 on a GPU and float32 on a CPU."
    ] = "auto"
    blank_below: Annotated[
        Amount, "Deviation of the pixels below which an image counts as a single color; 0 turns this check off."
    ] = 4.0
    unchanged_below: Annotated[
        Amount, "Difference of the pixels below which an image counts as unchanged; 0 turns this check off."
    ] = 8.0
    pair_model: Annotated[
        str | None,
        "Leave out negative images that this dual encoder finds closer to the original caption than to the negative "
        "one.",
    ] = None
    seed: Annotated[int, "Random seed."] = 0
    device: Annotated[Device, "Device such as cpu or cuda:1. Defaults to a GPU per worker if available."] = None

    @check
    def check_steps(image_steps: int, image_strength: float) -> None:
        denoising_steps(image_steps, image_strength)


def denoising_steps(steps: int, strength: float) -> int:
    """Number of steps that a diffusers image-to-image pipeline runs: steps x strength, rounded down.

    Raises:
        ValueError: If the number is below 1, or the strength is outside (0, 1].
    """
    if steps < 1:
        raise ValueError(f"image_steps: found {steps}, expected 1 or more.")
    if not 0 < strength <= 1:
        raise ValueError(f"image_strength: found {strength:g}, expected above 0 to 1.")
    number = min(int(steps * strength), steps)  # as diffusers computes it: floats just below 1 count as 0
    if number < 1:
        raise ValueError(
            f"image_steps={steps} x image_strength={strength:g} is {steps * strength:g}, which diffusers rounds down "
            f"to 0 steps. Expected 1 or more: raise image_strength to {math.ceil(1000 / steps) / 1000:g} or "
            f"image_steps to {math.ceil(1 / strength)}."
        )
    return number
