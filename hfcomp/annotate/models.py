"""CLIPSeg, which makes a mask from a text, and a diffusers inpainting pipeline, which paints in a mask."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from PIL import Image
from transformers import AutoConfig, CLIPSegForImageSegmentation, CLIPSegProcessor

from hfcomp.annotate.options import DEFAULT_INPAINTER, DEFAULT_SEGMENTER, GUIDANCE, SIZE, STEPS, ModelOptions
from hfcomp.data.annotations.masks import Mask, ProbabilityMap, mask_image
from hfcomp.factory.images.editor import (
    Edit,
    load_pipeline,
    pipeline_facts,
    resolve_dtype,
    single_thread,
    worker_device,
)
from hfcomp.factory.images.options import DType
from hfcomp.factory.sources import model_facts
from hfcomp.modeling.weight_checks import name_damaged_weights, raise_on_mismatch, silence_library

MODEL_TYPE = "clipseg"


class Segmenter:
    """CLIPSeg: where in an image is what a text names."""

    def __init__(self, model: str = DEFAULT_SEGMENTER, *, device: str = "cpu") -> None:
        network, self._processor = _load(model)
        self.device = device
        self._model = network.to(device).eval()
        self.identity = model_facts(model)

    def probability_map(self, image: Image.Image, prompt: str) -> ProbabilityMap:
        """The probability of each pixel to be of what the prompt names.

        The processor scales the whole image to the model's square (352 x 352 pixels), whatever its aspect ratio. The
        probabilities of that square are scaled back, bilinearly, so that each one lies where its pixels came from.
        """
        if not prompt.strip():
            raise ValueError("The mask prompt is empty. Name what is to be replaced, such as: fire hydrant.")
        inputs = self._processor(
            text=[prompt.strip()], images=[image], padding=True, truncation=True, return_tensors="pt"
        )
        with torch.inference_mode():
            logits = self._model(**inputs.to(self.device)).logits  # [1, side, side]
        size = (image.height, image.width)
        # `interpolate` needs a batch axis and a channel axis, of which the logits have one.
        scaled = torch.nn.functional.interpolate(
            logits.float().sigmoid()[None], size, mode="bilinear", align_corners=False
        )
        return scaled[0, 0].cpu().numpy()


def load_segmenter(options: ModelOptions) -> Segmenter:
    return Segmenter(options.segmenter, device=worker_device(options.device))


def _load(model: str) -> tuple[CLIPSegForImageSegmentation, CLIPSegProcessor]:
    """The network in fp32, and its processor."""
    where = f"segmenter={model}"
    try:
        with silence_library(), name_damaged_weights(model):
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
    # transformers would fill missing weights at random and only warn.
    raise_on_mismatch(where, missing=loading["missing_keys"])
    return network, processor


AUTOMATIC_KIND = "AutoPipelineForInpainting"
PARAMETERS = ("prompt", "image", "mask_image", "num_inference_steps", "guidance_scale", "generator", "height", "width")


class Inpainter:
    """Paints in masks by prompts.

    Args:
        pipeline: Hub id or folder of an inpainting pipeline, or of one that diffusers makes one of.
        size: longer side of the image that the pipeline sees, in pixels.
    """

    def __init__(
        self,
        pipeline: str = DEFAULT_INPAINTER,
        *,
        steps: int = STEPS,
        guidance: float = GUIDANCE,
        size: int = SIZE,
        dtype: DType = "auto",
        device: str = "cpu",
    ) -> None:
        self.device, self._size = device, size
        self._pipeline = load_pipeline(
            pipeline, resolve_dtype(dtype, device), device, kind=_kind(pipeline), setting="inpainter"
        )
        # Checked here, because the error of the call itself would suggest no remedy.
        missing = set(PARAMETERS) - {*inspect.signature(self._pipeline.__call__).parameters}
        if missing:
            raise ValueError(
                f"inpainter={pipeline}: its {type(self._pipeline).__name__} does not take "
                f"{', '.join(sorted(missing))}. "
                f"Choose an inpainting pipeline such as {DEFAULT_INPAINTER}."
            )
        self._step = _step(self._pipeline)
        self._settings = {"num_inference_steps": steps, "guidance_scale": guidance}
        self.identity = f"{pipeline_facts(pipeline)}, {steps} steps, guidance {guidance}, {size} pixels"

    def paint(self, image: Image.Image, mask: Mask, prompt: str, seeds: Sequence[int]) -> list[Edit]:
        """Candidates, each of the image's size.

        The pipeline sees the whole image, scaled so that its longer side has `size` pixels, smaller images enlarged,
        and each side a multiple of what its autoencoder needs. It is not cropped to the mask, as `padding_mask_crop`
        of diffusers would: the scene determines what fits. What the pipeline makes of the pixels outside the mask is
        for `compose` to discard.

        A candidate depends on its own seed, and not on the number of candidates.

        Args:
            image: RGB.
            mask: `[H, W]`, of the image's size.
            seeds: one for each candidate; of its noise, which is made on the CPU.
        """
        if not prompt.strip():
            raise ValueError(
                "The inpainting prompt is empty. Describe what is to be painted, such as: a yellow hydrant."
            )
        from diffusers.utils import logging

        width, height = self._fit(image)
        small = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        # A small pixel belongs to the mask if any of its pixels does: thin masks would vanish otherwise.
        where = mask_image(mask).resize((width, height), Image.Resampling.BOX).point(lambda value: 255 * (value > 0))
        found: list[Edit] = []
        for seed in seeds:  # one at a time: no candidate depends on how many there are
            try:
                with single_thread(self.device), silence_library(logging), torch.inference_mode():
                    made = self._pipeline(
                        prompt=prompt.strip(),
                        image=small,
                        mask_image=where,
                        generator=torch.Generator().manual_seed(seed),
                        height=height,
                        width=width,
                        **self._settings,
                    )
            except torch.OutOfMemoryError as error:
                raise ValueError(
                    f"The memory of {self.device} is too small to paint {width} x {height} pixels. Choose a smaller "
                    f"size than {self._size}, a smaller pipeline or another device."
                ) from error
            blanked = (getattr(made, "nsfw_content_detected", None) or [False])[0]
            found.append(Edit(made.images[0].resize(image.size, Image.Resampling.LANCZOS), bool(blanked)))
        return found

    def _fit(self, image: Image.Image) -> tuple[int, int]:
        scale = self._size / max(image.size)
        width, height = (max(self._step, round(side * scale / self._step) * self._step) for side in image.size)
        return width, height


def load_inpainter(options: ModelOptions) -> Inpainter:
    return Inpainter(
        options.inpainter,
        steps=options.inpaint_steps,
        guidance=options.inpaint_guidance,
        size=options.inpaint_size,
        dtype=options.inpaint_dtype,
        device=worker_device(options.device),
    )


def _kind(place: str) -> str:
    """The class of diffusers that loads a pipeline: its own where that one paints in masks, as Flux Fill's does."""
    if find_spec("diffusers") is None:
        return AUTOMATIC_KIND  # load_pipeline says how to install it
    import diffusers

    try:
        own = diffusers.DiffusionPipeline.load_config(place)["_class_name"]
    except (OSError, ValueError, KeyError):  # load_pipeline says what is wrong
        return AUTOMATIC_KIND
    taken = inspect.signature(getattr(diffusers, own).__call__).parameters if hasattr(diffusers, own) else ()
    return own if "mask_image" in taken else AUTOMATIC_KIND


def _step(pipeline: Any) -> int:
    """What both sides have to be a multiple of: diffusers refuses other sizes, or scales them silently."""
    settings = getattr(getattr(pipeline, "image_processor", None), "config", {})
    return math.lcm(8, settings.get("vae_scale_factor") or getattr(pipeline, "vae_scale_factor", 8))
