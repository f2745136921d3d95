"""CLIPSeg: a mask from a text."""

from __future__ import annotations

import torch
from PIL import Image
from transformers import CLIPSegForImageSegmentation, CLIPSegProcessor

from hfcomp.data.annotations.masks import Heat
from hfcomp.evaluation.identity import identity
from hfcomp.modeling.weight_checks import no_report

DEFAULT_SEGMENTER = "CIDAS/clipseg-rd64-refined"
"""The paper's (section 4)."""


class Segmenter:
    """CLIPSeg: where in an image is what a text names.

    Args:
        model: Hub id or folder of a `CLIPSegForImageSegmentation`.
        device: where it runs.

    Raises:
        ValueError: for what is no such model.
    """

    def __init__(self, model: str = DEFAULT_SEGMENTER, *, device: str = "cpu") -> None:
        self.device = device
        try:
            with no_report():
                self._model = CLIPSegForImageSegmentation.from_pretrained(
                    model, use_safetensors=True, trust_remote_code=False
                )
                self._processor = CLIPSegProcessor.from_pretrained(model, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"segmenter={model}: not a CLIPSeg model in a folder or on the Hub: {error}") from error
        self._model = self._model.to(device).eval()
        self.identity = identity(model)

    def heat(self, image: Image.Image, prompt: str) -> Heat:
        """The probability of each pixel to be of what the prompt names.

        Args:
            image: RGB.
            prompt: such as "fire hydrant".

        Raises:
            ValueError: for an empty prompt.
        """
        if not prompt.strip():
            raise ValueError("The mask prompt is empty. Name what is to be replaced, such as: fire hydrant.")
        inputs = self._processor(
            text=[prompt.strip()], images=[image], padding=True, truncation=True, return_tensors="pt"
        )
        with torch.inference_mode():
            logits = self._model(**inputs.to(self.device)).logits.float().sigmoid()
        small = logits.reshape(1, 1, *logits.shape[-2:])
        size = (image.height, image.width)
        whole = torch.nn.functional.interpolate(small, size, mode="bilinear", align_corners=False)
        return whole[0, 0].cpu().numpy()
