"""The stages that add a negative image to rows with a negative caption."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from hfcomp.data.images import decode_image
from hfcomp.evaluation.cells import image_key
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.factory.builder import IMAGES
from hfcomp.factory.images.editor import Edit, ImageEditor, describe_pipeline, library_versions, resolve_dtype
from hfcomp.factory.images.options import ImageOptions
from hfcomp.factory.shards import COUNTS, ROW, SET_ASIDE, Batch, Stage
from hfcomp.factory.sources import make_image_check, model_facts

SAFETY_CHECKER = "negative image blanked by the safety checker"
BLANK = "negative image of one color"
UNCHANGED = "negative image unchanged"
WRONG_CAPTION = "negative image nearer to the original caption"


def is_blank(image: Image.Image, *, below: float) -> bool:
    """Whether an RGB image has a single color, such as black, which results from overflows in half precision.

    `below` is the standard deviation, of 255 levels, that at least one channel must reach.
    """
    return bool(np.asarray(image, dtype=np.float32).std(axis=(0, 1)).max() < below)


def is_unchanged(image: Image.Image, source: Image.Image, *, below: float) -> bool:
    """Whether an edited image equals its source; both are RGB images of the same size.

    `below` is the root mean square difference, of 255 levels, that they must reach.
    """
    difference = np.asarray(image, dtype=np.float32) - np.asarray(source, dtype=np.float32)
    return bool(np.sqrt(np.square(difference).mean()) < below)


class PairFilter:
    """Detects negative images that are not closer to the negative than to the original caption, by a dual encoder."""

    def __init__(self, model: str, *, device: str | None) -> None:
        self._embedder = Embedder(model, device=device)

    def __call__(self, images: Sequence[Any], captions: Sequence[str], negatives: Sequence[str]) -> list[bool]:
        """Returns whether to leave out each image. An image equally close to both captions is left out."""
        vectors = self._embedder.images(images, column="negative_image")
        texts = self._embedder.texts([*captions, *negatives]).vectors
        original, negative = texts[: len(captions)], texts[len(captions) :]
        return ((vectors * negative).sum(-1) <= (vectors * original).sum(-1)).tolist()


# Columns that the stages read.
READS = ("image", "caption", "negative_captions")
NO_NEGATIVE_CAPTION = "no negative caption"


def image_stages(options: ImageOptions) -> list[Stage]:
    """The stages that check the source's images and edit each by its first negative caption into `negative_image`."""
    names = ("pipeline", "steps", "strength", "guidance", "size", "batch_size", "dtype", "quality")
    settings = {name: getattr(options, f"image_{name}") for name in names}
    settings |= {name: getattr(options, name) for name in ("blank_below", "unchanged_below", "pair_model", "seed")}
    # The precision is chosen here because all workers of a build, on any machine, must use the same.
    settings["dtype"] = resolve_dtype(options.image_dtype, options.device)
    facts: dict[str, Any] = {"versions": library_versions(), "pipeline": describe_pipeline(options.image_pipeline)}
    if options.pair_model:
        facts["pair_model"] = model_facts(options.pair_model)
    return [
        Stage("images", make_image_check),
        Stage("negative images", NegativeImages, settings | {"device": options.device}, settings | facts),
    ]


class NegativeImages:
    """Adds `negative_image` to batches of rows, as a stage of `run_stages`.

    Args:
        blank_below: Threshold of `is_blank`.
        unchanged_below: Threshold of `is_unchanged`.
        pair_model: Hub id or folder of the dual encoder of `PairFilter`. By default this filter is off.
    """

    def __init__(
        self,
        *,
        quality: int,
        blank_below: float,
        unchanged_below: float,
        pair_model: str | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self._editor = ImageEditor(**settings)
        self._quality, self._seed = quality, seed
        self._blank_below, self._unchanged_below = blank_below, unchanged_below
        self._pair_filter = None if pair_model is None else PairFilter(pair_model, device=self._editor.device)

    def __call__(self, batch: Batch) -> Batch:
        """Returns the batch with its images as JPEGs, and the reason for each row without an image."""
        prompts = [next(iter(texts or []), None) or "" for texts in batch["negative_captions"]]
        images: list[Any] = [None] * len(prompts)
        reasons: list[str | None] = [None if prompt.strip() else NO_NEGATIVE_CAPTION for prompt in prompts]
        left = [place for place, reason in enumerate(reasons) if reason is None]
        # Rows without a negative caption are left out of batches.
        for start in range(0, len(left), self._editor.batch_size):
            places = left[start : start + self._editor.batch_size]
            for place, edited in zip(places, self._edit(batch, places, prompts), strict=True):
                if isinstance(edited, bytes):
                    # These are the bytes that `datasets` stores, so the JPEG is not encoded again.
                    images[place] = {"bytes": edited, "path": None}
                else:
                    reasons[place] = edited
        finished = [place for place in left if reasons[place] is None]
        # Only images that passed the cheap checks are embedded.
        if self._pair_filter is not None and finished:
            rows = ([column[place] for place in finished] for column in (images, batch["caption"], prompts))
            for place, is_wrong in zip(finished, self._pair_filter(*rows), strict=True):
                reasons[place] = WRONG_CAPTION if is_wrong else None
        return batch | {
            "negative_image": images,
            SET_ASIDE: reasons,
            COUNTS: [self._counts(prompt) for prompt in prompts],
        }

    def _edit(self, batch: Batch, places: Sequence[int], prompts: Sequence[str]) -> list[bytes | str]:
        """A JPEG for each place, or the reason for its absence."""
        rows = [(batch["image"][place], f"column 'image', row {batch[ROW][place]}") for place in places]
        sources = [self._editor.fit(decode_image(image, where=where)) for image, where in rows]
        seeds = [
            image_seed(image, prompts[place], self._seed, where)
            for place, (image, where) in zip(places, rows, strict=True)
        ]
        edits = self._editor.edit(sources, [prompts[place] for place in places], seeds)
        return [
            self._problem(edit, source) or encode_jpeg(edit.image, quality=self._quality)
            for edit, source in zip(edits, sources, strict=True)
        ]

    def _problem(self, edit: Edit, source: Image.Image) -> str | None:
        if edit.is_blanked:
            return SAFETY_CHECKER
        if is_blank(edit.image, below=self._blank_below):
            return BLANK
        return UNCHANGED if is_unchanged(edit.image, source, below=self._unchanged_below) else None

    def _counts(self, prompt: str) -> dict[str, int]:
        is_cut = self._editor.is_cut(prompt)
        return {IMAGES(f"prompt longer than {self._editor.prompt_tokens} tokens"): 1} if is_cut else {}


def image_seed(image: Any, prompt: str, seed: int, where: str) -> int:
    """The seed of an edit's noise, derived from seed, image and prompt."""
    # The row number does not count, so another order of rows or a limit gives the same image.
    content = b"%d %b " % (seed, image_key(image, where)) + prompt.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(content).digest()[:8]) >> 1  # torch takes 63 bits on every device


def encode_jpeg(image: Image.Image, *, quality: int) -> bytes:
    """Encodes an image as a JPEG; the bytes depend only on the pixels and the Pillow version."""
    stream = BytesIO()
    image.convert("RGB").save(stream, "JPEG", quality=quality)
    return stream.getvalue()
