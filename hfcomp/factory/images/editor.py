"""Edits images with a diffusers pipeline on one device."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from PIL import Image, ImageOps

from hfcomp.data.publishing import without_local_paths
from hfcomp.devices import default_device
from hfcomp.evaluation.encoding.identity import pipeline_identity
from hfcomp.factory.images.options import DType, denoising_steps
from hfcomp.modeling.weight_checks import silence_library
from hfcomp.reading import may_be_hub_id
from hfcomp.workers import worker_number

INSTALL = "negative images need diffusers: pip install 'hfcomp[generate]'."
# Parameters that a pipeline's call must accept.
PARAMETERS = ("prompt", "image", "strength", "num_inference_steps", "guidance_scale", "generator")


class Edit(NamedTuple):
    """An edited image.

    Attributes:
        is_blanked: Whether the pipeline's safety checker blanked it.
    """

    image: Image.Image
    is_blanked: bool


class ImageEditor:
    """Edits images by prompts.

    All batches have `batch_size` images; the last batch is filled with copies of its last image. On a CPU, only one
    thread is used. A kernel's order of summation depends on the shape of its input and the number of threads. With
    both constant, an image's result depends on the image, its prompt, its seed and the settings, but not on other
    images in its batch.

    Args:
        pipeline: Hub id or folder of an image-to-image pipeline, or of one that diffusers can convert to one.
        size: Side of the square to edit, in pixels.

    Attributes:
        prompt_tokens: Number of tokens, including special ones, that the pipeline reads; None if unknown.
    """

    def __init__(
        self,
        pipeline: str,
        *,
        steps: int,
        strength: float,
        guidance: float,
        size: int,
        batch_size: int,
        dtype: str,
        device: str | None = None,
    ) -> None:
        # Checked before the pipeline is loaded, which may take minutes.
        denoising_steps(steps, strength)
        self.device = worker_device(device)
        self.batch_size = batch_size
        self._name, self._size = pipeline, size
        self._pipeline = load_pipeline(pipeline, dtype, self.device, kind="AutoPipelineForImage2Image")
        self._settings = {"strength": strength, "num_inference_steps": steps, "guidance_scale": guidance}
        parameters = inspect.signature(self._pipeline.__call__).parameters
        self._check_parameters(parameters)
        # Some pipelines would otherwise scale images to their own size.
        self._settings |= {name: size for name in ("height", "width") if name in parameters}
        # Some pipelines, such as SDXL's refiner, have only the second tokenizer.
        self._tokenizer = getattr(self._pipeline, "tokenizer", None) or getattr(self._pipeline, "tokenizer_2", None)
        self.prompt_tokens = getattr(self._tokenizer, "model_max_length", None)

    def fit(self, image: Image.Image) -> Image.Image:
        """Crops an image to its central square and scales it to the size to edit."""
        return ImageOps.fit(image, (self._size, self._size), Image.Resampling.LANCZOS)

    def is_cut(self, prompt: str) -> bool:
        """Whether the pipeline reads only the beginning of a prompt."""
        if self.prompt_tokens is None:
            return False
        return len(self._tokenizer(prompt, verbose=False).input_ids) > self.prompt_tokens

    def edit(self, images: Sequence[Image.Image], prompts: Sequence[str], seeds: Sequence[int]) -> list[Edit]:
        """Returns one edit per image, made with the prompt and the noise seed at the same position.

        `images` are RGB images from `fit`.
        """
        edits: list[Edit] = []
        for start in range(0, len(images), self.batch_size):
            batch = list(zip(images, prompts, seeds, strict=True))[start : start + self.batch_size]
            # A shorter batch would run kernels that round differently, so copies fill it and are dropped afterwards.
            whole = batch + batch[-1:] * (self.batch_size - len(batch))
            edits += self._edit(*zip(*whole, strict=True))[: len(batch)]
        return edits

    def _edit(self, images: Sequence[Image.Image], prompts: Sequence[str], seeds: Sequence[int]) -> list[Edit]:
        from diffusers.utils import logging

        # Noise is drawn on the CPU, because devices draw different numbers from the same seed.
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        try:
            with single_thread(self.device), silence_library(logging), torch.inference_mode():
                output = self._pipeline(
                    prompt=list(prompts), image=list(images), generator=generators, output_type="pil", **self._settings
                )
        except torch.OutOfMemoryError as error:
            raise ValueError(
                f"image_batch_size={self.batch_size} images of {self._size} x {self._size} do not fit into the memory "
                f"of {self.device}. Choose a smaller image_batch_size and another output folder: the batch size "
                "affects the result."
            ) from error
        blanked = getattr(output, "nsfw_content_detected", None) or [False] * len(prompts)
        return [Edit(image, bool(flag)) for image, flag in zip(output.images, blanked, strict=True)]

    def _check_parameters(self, parameters: Any) -> None:
        missing = [name for name in PARAMETERS if name not in parameters]
        if missing:
            kind = type(self._pipeline).__name__
            raise ValueError(
                f"image_pipeline={self._name}: its {kind} does not accept {', '.join(missing)}. Choose an "
                "image-to-image pipeline that accepts a strength, such as stabilityai/sdxl-turbo."
            )
        step = getattr(self._pipeline, "vae_scale_factor", 8)  # diffusers would silently rescale other sizes
        if self._size % step:
            raise ValueError(
                f"image_size: found {self._size}, expected a multiple of {step} for {self._name}, such as "
                f"{max(step, self._size // step * step)}."
            )


def worker_device(device: str | None) -> str:
    """The device of this build worker.

    Args:
        device: Requested device. By default each worker takes the next GPU, or the CPU if there is none.
    """
    return device or default_device(worker_number())


def resolve_dtype(dtype: DType, device: str | None) -> str:
    """The precision of a pipeline's weights, the same for all workers.

    Args:
        dtype: `auto` is float16 on a GPU, like the published weights of the paper's model, otherwise float32.
    """
    if dtype != "auto":
        return dtype
    return "float16" if worker_device(device).startswith("cuda") else "float32"


def library_versions() -> dict[str, str]:
    """The versions of the libraries that determine an image's bytes."""
    if find_spec("diffusers") is None:
        raise ImportError(INSTALL)
    return {name: version(name) for name in ("diffusers", "torch", "transformers", "pillow")}


def describe_pipeline(place: str) -> str:
    """Returns a pipeline's name and the hash of its weights."""
    try:
        return f"{without_local_paths(place)} ({pipeline_identity(place)})"
    except OSError as error:
        raise ValueError(f"image_pipeline={place}: {_pipeline_problem(place, error)}") from error


def _pipeline_problem(place: str, error: Exception) -> str:
    if os.path.isdir(place):
        return f"the folder contains no diffusers pipeline in safetensors format: {error}"
    if may_be_hub_id(place):
        return f"not a local folder, and not loadable from the Hub: {error}"
    return "no such folder."


def load_pipeline(place: str, dtype: str, device: str, *, kind: str, setting: str = "image_pipeline") -> Any:
    """Loads a pipeline with all its parts, including any safety checker, to a device."""
    try:
        import diffusers
        from diffusers.utils import logging
    except ImportError as error:
        raise ImportError(INSTALL) from error
    try:
        with silence_library(logging):
            pipeline = getattr(diffusers, kind).from_pretrained(
                place, dtype=getattr(torch, dtype), use_safetensors=True, trust_remote_code=False
            )
    except (OSError, ValueError) as error:
        raise ValueError(f"{setting}={place}: {_pipeline_problem(place, error)}") from error
    pipeline = pipeline.to(device)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@contextmanager
def single_thread(device: str) -> Iterator[None]:
    """Uses one thread on a CPU; the number of threads may differ per worker and would change the order of sums."""
    threads = torch.get_num_threads()
    if torch.device(device).type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
