"""The models of an annotation, which the page and the automatic mode share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hfcomp.generation.images.options import DType

DEFAULT_SEGMENTER = "CIDAS/clipseg-rd64-refined"
"""The paper's (section 4)."""
DEFAULT_INPAINTER = "sd2-community/stable-diffusion-2-inpainting"
"""The paper's (section 4) was stabilityai/stable-diffusion-2-inpainting, which its makers removed from the Hub in
November 2025; this is the community's copy."""
SIZE, STEPS, GUIDANCE = 512, 50, 7.5
"""Of the longer side in pixels, of the schedule, and of classifier-free guidance: those of the default pipeline in
diffusers. The paper names none."""


@dataclass(kw_only=True)
class ModelOptions:
    """Models.

    Attributes:
        segmenter: a CLIPSeg by Hub id or folder.
        inpainter: an inpainting pipeline of diffusers by Hub id or folder.
        inpaint_steps: of the noise schedule.
        inpaint_guidance: classifier-free guidance.
        inpaint_size: longer side of the image that the pipeline sees, in pixels.
        inpaint_dtype: of the pipeline's weights; auto is float16 on a GPU and float32 on a CPU.
        device: such as cpu or cuda:1; by default a GPU where there is one.
    """

    segmenter: str = DEFAULT_SEGMENTER
    inpainter: str = DEFAULT_INPAINTER
    inpaint_steps: int = STEPS
    inpaint_guidance: float = GUIDANCE
    inpaint_size: int = SIZE
    inpaint_dtype: DType = "auto"
    device: str | None = None

    def __post_init__(self) -> None:
        for name in ("inpaint_steps", "inpaint_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected 1 or more.")
        if not 0 <= self.inpaint_guidance < math.inf:
            raise ValueError(f"inpaint_guidance: found {self.inpaint_guidance}, expected 0 or more.")
