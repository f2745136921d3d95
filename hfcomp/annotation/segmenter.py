"""CLIPSeg: a mask from a text."""

from __future__ import annotations

import torch
from PIL import Image
from transformers import AutoConfig, CLIPSegForImageSegmentation, CLIPSegProcessor

from hfcomp.annotation.options import DEFAULT_SEGMENTER, ModelOptions
from hfcomp.data.annotations.masks import Heat
from hfcomp.generation.images.editor import worker_device
from hfcomp.generation.sources import model_facts
from hfcomp.modeling.weight_checks import damage_named, no_report, refuse

MODEL_TYPE = "clipseg"


class Segmenter:
    """CLIPSeg: where in an image is what a text names.

    Args:
        model: Hub id or folder of a `CLIPSegForImageSegmentation`.
        device: where it runs.

    Raises:
        ValueError: for what is not such a model, or has no safetensors or not all of its weights.
    """

    def __init__(self, model: str = DEFAULT_SEGMENTER, *, device: str = "cpu") -> None:
        network, self._processor = _load(model)
        self.device = device
        self._model = network.to(device).eval()
        self.identity = model_facts(model)

    def heat(self, image: Image.Image, prompt: str) -> Heat:
        """The probability of each pixel to be of what the prompt names.

        The processor scales the whole image to the model's square (352 x 352 pixels), whatever its aspect ratio. The
        probabilities of that square are scaled back, bilinearly, so that each one lies where its pixels came from.

        Args:
            image: RGB.
            prompt: such as "fire hydrant"; beyond the text tower's length it is cut.

        Raises:
            ValueError: for an empty prompt.
        """
        if not prompt.strip():
            raise ValueError("The mask prompt is empty. Name what is to be replaced, such as: fire hydrant.")
        inputs = self._processor(
            text=[prompt.strip()], images=[image], padding=True, truncation=True, return_tensors="pt"
        )
        with torch.inference_mode():
            logits = self._model(**inputs.to(self.device)).logits  # [1, side, side]
        size = (image.height, image.width)
        heat = torch.nn.functional.interpolate(
            logits.float().sigmoid()[None], size, mode="bilinear", align_corners=False
        )
        return heat[0, 0].cpu().numpy()


def load_segmenter(options: ModelOptions) -> Segmenter:
    """Loads the segmentation model of `options`, see `Segmenter`."""
    return Segmenter(options.segmenter, device=worker_device(options.device))


def _load(model: str) -> tuple[CLIPSegForImageSegmentation, CLIPSegProcessor]:
    """The network in fp32, and its processor."""
    where = f"segmenter={model}"
    try:
        with no_report(), damage_named(model):
            kind = AutoConfig.from_pretrained(model, trust_remote_code=False).model_type
            if kind != MODEL_TYPE:
                raise ValueError(f"its model type is {kind!r}, expected {MODEL_TYPE!r}")
            network, loading = CLIPSegForImageSegmentation.from_pretrained(
                model,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
            processor = CLIPSegProcessor.from_pretrained(model, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{where}: not a CLIPSeg model in a folder or on the Hub: {error}\nChoose one such as "
            f"{DEFAULT_SEGMENTER}. Weights are read from safetensors only: of a model with a pytorch_model.bin alone, "
            "load it once with transformers, save it with save_pretrained and pass that folder."
        ) from error
    refuse(where, missing=loading["missing_keys"])
    return network, processor
