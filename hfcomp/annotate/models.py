"""Models for annotation: CLIPSeg creates a mask from a text, and a diffusers inpainting pipeline paints in it."""

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
    describe_pipeline,
    load_pipeline,
    resolve_dtype,
    single_thread,
    worker_device,
)
from hfcomp.factory.images.options import DType
from hfcomp.factory.sources import model_facts
from hfcomp.modeling.weight_checks import name_damaged_weights, raise_on_mismatch, silence_library

MODEL_TYPE = "clipseg"


class Segmenter:
    """CLIPSeg model that locates what a text names in an image."""

    def __init__(self, model: str = DEFAULT_SEGMENTER, *, device: str = "cpu") -> None:
        network, self._processor = _load(model)
        self.device = device
        self._model = network.to(device).eval()
        self.identity = model_facts(model)

    def probability_map(self, image: Image.Image, prompt: str) -> ProbabilityMap:
        """Returns the probability that each pixel belongs to what the prompt names.

        The processor scales the whole image to the model's square (352 x 352 pixels), whatever its aspect ratio. The
        probabilities of the square are scaled back bilinearly, so they align with the pixels of the image.
        """
        if not prompt.strip():
            raise ValueError("The mask prompt is empty. Name what to replace, such as: fire hydrant.")
        inputs = self._processor(
            text=[prompt.strip()], images=[image], padding=True, truncation=True, return_tensors="pt"
        )
        with torch.inference_mode():
            logits = self._model(**inputs.to(self.device)).logits  # [1, side, side]
        size = (image.height, image.width)
        # `interpolate` needs a batch axis and a channel axis, but the logits have only one of them.
        scaled = torch.nn.functional.interpolate(
            logits.float().sigmoid()[None], size, mode="bilinear", align_corners=False
        )
        return scaled[0, 0].cpu().numpy()


def load_segmenter(options: ModelOptions) -> Segmenter:
    return Segmenter(options.segmenter, device=worker_device(options.device))


def _load(model: str) -> tuple[CLIPSegForImageSegmentation, CLIPSegProcessor]:
    """Loads the network in fp32 and its processor."""
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
            f"{DEFAULT_SEGMENTER}. Weights are read only from safetensors files. If the model has only a "
            "pytorch_model.bin, load it once with transformers, save it with save_pretrained and pass that folder."
        ) from error
    # transformers would initialize missing weights randomly and only warn.
    raise_on_mismatch(where, missing=loading["missing_keys"])
    return network, processor


AUTOMATIC_KIND = "AutoPipelineForInpainting"
PARAMETERS = ("prompt", "image", "mask_image", "num_inference_steps", "guidance_scale", "generator", "height", "width")


class Inpainter:
    """Paints inside masks according to prompts.

    Args:
        pipeline: Hub id or folder of an inpainting pipeline, or of a pipeline that diffusers can convert to one.
        size: Longer side of the image passed to the pipeline, in pixels.
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
        # Check this here, because the error raised by the call itself would not suggest a remedy.
        missing = set(PARAMETERS) - {*inspect.signature(self._pipeline.__call__).parameters}
        if missing:
            raise ValueError(
                f"inpainter={pipeline}: its {type(self._pipeline).__name__} does not accept "
                f"{', '.join(sorted(missing))}. "
                f"Choose an inpainting pipeline such as {DEFAULT_INPAINTER}."
            )
        self._step = _step(self._pipeline)
        self._settings = {"num_inference_steps": steps, "guidance_scale": guidance}
        self.identity = f"{describe_pipeline(pipeline)}, {steps} steps, guidance {guidance}, {size} pixels"

    def paint(self, image: Image.Image, mask: Mask, prompt: str, seeds: Sequence[int]) -> list[Edit]:
        """Paints one candidate of the image's size per seed.

        The pipeline sees the whole image, scaled up or down so that its longer side has `size` pixels and each side is
        a multiple of what the autoencoder needs. The image is not cropped to the mask, as diffusers'
        `padding_mask_crop` would do, because the scene determines what fits. `compose` later discards whatever the
        pipeline changed outside the mask.

        A candidate depends only on its own seed, not on the number of candidates.

        Args:
            image: RGB image.
            mask: Mask `[H, W]` of the image's size.
            seeds: One seed per candidate for its noise, which is generated on the CPU.
        """
        if not prompt.strip():
            raise ValueError("The inpainting prompt is empty. Describe what to paint, for example: a yellow hydrant.")
        from diffusers.utils import logging

        width, height = self._fit(image)
        small = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        # A scaled pixel belongs to the mask if any of its original pixels does; otherwise thin masks would vanish.
        where = mask_image(mask).resize((width, height), Image.Resampling.BOX).point(lambda value: 255 * (value > 0))
        candidates: list[Edit] = []
        for seed in seeds:  # one at a time, so no candidate depends on the number of candidates
            try:
                with single_thread(self.device), silence_library(logging), torch.inference_mode():
                    output = self._pipeline(
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
                    f"{self.device} has too little memory to paint {width} x {height} pixels. Choose a size below "
                    f"{self._size}, a smaller pipeline or another device."
                ) from error
            is_blanked = (getattr(output, "nsfw_content_detected", None) or [False])[0]
            painted = output.images[0].resize(image.size, Image.Resampling.LANCZOS)
            candidates.append(Edit(painted, bool(is_blanked)))
        return candidates

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


def _kind(source: str) -> str:
    """Returns the diffusers class that loads a pipeline: its own class if that inpaints, as Flux Fill's does."""
    if find_spec("diffusers") is None:
        return AUTOMATIC_KIND  # the error of load_pipeline tells how to install it
    import diffusers

    try:
        class_name = diffusers.DiffusionPipeline.load_config(source)["_class_name"]
    except (OSError, ValueError, KeyError):  # load_pipeline raises an error that explains the problem
        return AUTOMATIC_KIND
    parameters = (
        inspect.signature(getattr(diffusers, class_name).__call__).parameters if hasattr(diffusers, class_name) else ()
    )
    return class_name if "mask_image" in parameters else AUTOMATIC_KIND


def _step(pipeline: Any) -> int:
    """Returns the number that both sides must be a multiple of; diffusers rejects or silently scales other sizes."""
    settings = getattr(getattr(pipeline, "image_processor", None), "config", {})
    return math.lcm(8, settings.get("vae_scale_factor") or getattr(pipeline, "vae_scale_factor", 8))
