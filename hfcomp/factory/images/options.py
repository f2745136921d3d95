"""Settings of negative images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from hfcomp.factory.options import BuildOptions
from hfcomp.options import Amount, Count, Device, check

DType = Literal["auto", "float16", "bfloat16", "float32"]
HIGHEST_QUALITY = 95
"""Of a JPEG: above it files grow and nothing is gained, as Pillow's documentation says."""


@dataclass(kw_only=True)
class ImageOptions(BuildOptions):
    """Negative images, by an image-to-image pipeline of diffusers.

    The paper (Slipform, section 2.2) names SDXL-Turbo, "high strength" and "low inference steps" and no number. All
    defaults but the pipeline are our choice:

    * At 4 steps SDXL-Turbo's noise levels are 999, 749, 499 and 249. Strength 0.75 runs the last three, so it begins
      at 749 of 1000: high enough to exchange an object, low enough to keep the scene's layout. diffusers rounds
      steps x strength down, so every strength from 0.75 to below 1 does the same at 4 steps.
    * SDXL-Turbo was distilled for guidance 0 and 512 pixels, says its model card.
    * JPEG, since the photographs are JPEGs: a lossless negative could be recognized by its missing artifacts.
    * A blank image is one whose pixels deviate from the mean by less than `blank_below` in every channel, as the root
      of the mean square of 255 levels. The flattest of 449 COCO photographs has 32.
    * An unchanged image differs by less than `unchanged_below` from what the pipeline was given, as the root of the
      mean square. Without any edit the VAE of SDXL differs by 15 on COCO at 256 pixels (PSNR 24.7, its model card) and
      by less on a flat image, so that 8 finds what no pipeline has touched.

    """

    image_pipeline: Annotated[str, "Hub id or folder of the pipeline."] = "stabilityai/sdxl-turbo"
    image_steps: Annotated[Count, "Denoising steps of the schedule."] = 4
    image_strength: Annotated[
        float, Field(gt=0, le=1), "Share of the steps that are run, above 0 to 1; 1 ignores the image nearly."
    ] = 0.75
    image_guidance: Annotated[Amount, "Classifier-free guidance; 0 for pipelines distilled without it."] = 0.0
    image_size: Annotated[Count, "Side of the square in pixels; the center is cropped, as CLIP sees an image."] = 512
    image_batch_size: Annotated[Count, "Images at a time; part of the result, see docs/concretebatch.md."] = 8
    image_quality: Annotated[int, Field(ge=1, le=HIGHEST_QUALITY), f"Quality of the JPEG, 1 to {HIGHEST_QUALITY}."] = (
        HIGHEST_QUALITY
    )
    image_dtype: Annotated[DType, "Type of the pipeline's weights; auto is float16 on a GPU and float32 on a CPU."] = (
        "auto"
    )
    blank_below: Annotated[Amount, "Deviation below which an image counts as of one color, 0 for never."] = 4.0
    unchanged_below: Annotated[Amount, "Difference below which an image counts as unchanged, 0 for never."] = 8.0
    pair_model: Annotated[
        str | None, "Leave out negative images that this dual encoder finds nearer to the original caption."
    ] = None
    seed: Annotated[int, "Random seed of all noise."] = 0
    device: Annotated[Device, "Such as cpu or cuda:1; by default a GPU for each worker if there is one."] = None

    @check
    def check_steps(image_steps: int, image_strength: float) -> None:
        denoising_steps(image_steps, image_strength)


def denoising_steps(steps: int, strength: float) -> int:
    """How many steps an image-to-image pipeline of diffusers runs: steps x strength, rounded down.

    Raises:
        ValueError: if that is less than 1, or a strength outside (0, 1].
    """
    if steps < 1:
        raise ValueError(f"image_steps: found {steps}, expected 1 or more.")
    if not 0 < strength <= 1:
        raise ValueError(f"image_strength: found {strength:g}, expected above 0 to 1.")
    found = min(int(steps * strength), steps)  # as diffusers computes it: floats that miss 1 by a digit count as 0
    if found < 1:
        raise ValueError(
            f"image_steps={steps} x image_strength={strength:g} is {steps * strength:g}, which diffusers rounds down "
            f"to 0 steps. Expected 1 or more: raise image_strength to {math.ceil(1000 / steps) / 1000:g} or "
            f"image_steps to {math.ceil(1 / strength)}."
        )
    return found
