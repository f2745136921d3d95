"""A pipeline of diffusers on one device, and its edits of images."""

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
from hfcomp.evaluation.encoding.identity import pipeline_identity
from hfcomp.factory.images.options import DType, denoising_steps
from hfcomp.modeling.weight_checks import silence_library
from hfcomp.reading import may_be_hub_id
from hfcomp.workers import worker_number

INSTALL = "negative images need diffusers: pip install 'hfcomp[generate]'."
# Parameters that a pipeline's call must have.
PARAMETERS = ("prompt", "image", "strength", "num_inference_steps", "guidance_scale", "generator")


class Edit(NamedTuple):
    """What a pipeline made of an image.

    Attributes:
        is_blanked: whether the pipeline's safety checker blanked it.
    """

    image: Image.Image
    is_blanked: bool


class ImageEditor:
    """Edits images by prompts.

    Batches are always of `batch_size`, the last one filled up with copies of its last image, and a CPU works with one
    thread. A kernel sums in an order that depends on the shape of its input and the number of threads; with both
    constant, an image's result depends on the image, its prompt, its seed and the settings, and not on the images
    beside it.

    Args:
        pipeline: Hub id or folder of an image-to-image pipeline, or of one that diffusers makes one of.
        size: side of the square that is edited, in pixels.

    Attributes:
        prompt_tokens: longest prompt that the pipeline reads whole, special tokens included; None if unknown.
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
        taken = inspect.signature(self._pipeline.__call__).parameters
        self._check(taken)
        # Some pipelines would otherwise scale to a size of their own.
        self._settings |= {name: size for name in ("height", "width") if name in taken}
        # Some pipelines, such as SDXL's refiner, have only the second tokenizer.
        self._tokenizer = getattr(self._pipeline, "tokenizer", None) or getattr(self._pipeline, "tokenizer_2", None)
        self.prompt_tokens = getattr(self._tokenizer, "model_max_length", None)

    def fit(self, image: Image.Image) -> Image.Image:
        """The center of an image as the square that is edited."""
        return ImageOps.fit(image, (self._size, self._size), Image.Resampling.LANCZOS)

    def is_cut(self, prompt: str) -> bool:
        """Whether the pipeline reads only the beginning of a prompt."""
        if self.prompt_tokens is None:
            return False
        return len(self._tokenizer(prompt, verbose=False).input_ids) > self.prompt_tokens

    def edit(self, images: Sequence[Image.Image], prompts: Sequence[str], seeds: Sequence[int]) -> list[Edit]:
        """Edits images.

        Args:
            images: RGB, as `fit` returns them.
            seeds: Seed of the noise of each image.
        """
        found: list[Edit] = []
        for start in range(0, len(images), self.batch_size):
            batch = list(zip(images, prompts, seeds, strict=True))[start : start + self.batch_size]
            # A shorter batch would run kernels that round differently, so it is filled up and the copies are dropped.
            whole = batch + batch[-1:] * (self.batch_size - len(batch))
            found += self._edit(*zip(*whole, strict=True))[: len(batch)]
        return found

    def _edit(self, images: Sequence[Image.Image], prompts: Sequence[str], seeds: Sequence[int]) -> list[Edit]:
        from diffusers.utils import logging

        # On the CPU, because devices draw different numbers from the same seed.
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        try:
            with one_thread(self.device), silence_library(logging), torch.inference_mode():
                made = self._pipeline(
                    prompt=list(prompts), image=list(images), generator=generators, output_type="pil", **self._settings
                )
        except torch.OutOfMemoryError as error:
            raise ValueError(
                f"image_batch_size={self.batch_size} images of {self._size} x {self._size} do not fit into the memory "
                f"of {self.device}. Choose a smaller image_batch_size and another output folder: it is part of the "
                "result."
            ) from error
        blanked = getattr(made, "nsfw_content_detected", None) or [False] * len(prompts)
        return [Edit(image, bool(flag)) for image, flag in zip(made.images, blanked, strict=True)]

    def _check(self, taken: Any) -> None:
        missing = [name for name in PARAMETERS if name not in taken]
        if missing:
            kind = type(self._pipeline).__name__
            raise ValueError(
                f"image_pipeline={self._name}: its {kind} does not take {', '.join(missing)}. Choose an "
                "image-to-image pipeline with a strength, such as stabilityai/sdxl-turbo."
            )
        step = getattr(self._pipeline, "vae_scale_factor", 8)  # diffusers would scale another size silently
        if self._size % step:
            raise ValueError(
                f"image_size: found {self._size}, expected a multiple of {step} for {self._name}, such as "
                f"{max(step, self._size // step * step)}."
            )


def worker_device(device: str | None) -> str:
    """The device of this worker of a build.

    Args:
        device: the one that was asked for; else each worker takes the next GPU, or the CPU where there is none.
    """
    if device is not None or not torch.cuda.is_available():
        return device or "cpu"
    return f"cuda:{worker_number() % torch.cuda.device_count()}"


def resolve_dtype(dtype: DType, device: str | None) -> str:
    """The precision of a pipeline's weights, the same for all workers.

    Args:
        dtype: `auto` is float16 on a GPU, as the paper's model is published, else float32.
    """
    if dtype != "auto":
        return dtype
    return "float16" if worker_device(device).startswith("cuda") else "float32"


def versions() -> dict[str, str]:
    """The versions of libraries that decide an image's bytes."""
    if find_spec("diffusers") is None:
        raise ImportError(INSTALL)
    return {name: version(name) for name in ("diffusers", "torch", "transformers", "pillow")}


def pipeline_facts(place: str) -> str:
    """A pipeline's name and the hash of its weights."""
    try:
        return f"{without_local_paths(place)} ({pipeline_identity(place)})"
    except OSError as error:
        raise ValueError(f"image_pipeline={place}: {_no_pipeline(place, error)}") from error


def _no_pipeline(place: str, error: Exception) -> str:
    if os.path.isdir(place):
        return f"the folder holds no pipeline of diffusers with safetensors: {error}"
    if may_be_hub_id(place):
        return f"not a local folder, and could not be loaded from the Hub: {error}"
    return "no such folder."


def load_pipeline(place: str, dtype: str, device: str, *, kind: str, setting: str = "image_pipeline") -> Any:
    """A pipeline on a device with all its parts, the safety checker included where it has one."""
    try:
        import diffusers
        from diffusers.utils import logging
    except ImportError as error:
        raise ImportError(INSTALL) from error
    try:
        with silence_library(logging):
            found = getattr(diffusers, kind).from_pretrained(
                place, dtype=getattr(torch, dtype), use_safetensors=True, trust_remote_code=False
            )
    except (OSError, ValueError) as error:
        raise ValueError(f"{setting}={place}: {_no_pipeline(place, error)}") from error
    found = found.to(device)
    found.set_progress_bar_config(disable=True)
    return found


@contextmanager
def one_thread(device: str) -> Iterator[None]:
    """Two threads sum in another order than one, and workers that share a CPU have fewer threads each."""
    threads = torch.get_num_threads()
    if torch.device(device).type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
