"""What the page asks for: models in a queue of their own, drafts of edits, and decisions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

import numpy as np
from PIL import Image

from hfcomp.annotation.captions import check_caption, keywords_of, mask_prompt
from hfcomp.data.annotations.composition import compose, is_changed
from hfcomp.data.annotations.masks import THRESHOLD, Heat, Mask, above, check_mask, enlarge, mask_image
from hfcomp.data.annotations.project import Project
from hfcomp.data.annotations.records import Edit, Item, Quality
from hfcomp.generation.images.editor import Edit as Painted

CANDIDATES = 3
"""Images to choose from (section A.3)."""
ATTEMPTS = 2
"""At a model's work, before its error is shown."""
_HEATS = 64
"""Segmentations that are kept, the last ones."""


class Segments(Protocol):
    """As `hfcomp.annotation.segmenter.Segmenter`."""

    def heat(self, image: Image.Image, prompt: str) -> Heat:
        """`[H, W]`, the probability of each pixel."""
        ...


class Paints(Protocol):
    """As `hfcomp.annotation.inpainter.Inpainter`."""

    def paint(self, image: Image.Image, mask: Mask, prompt: str, seeds: list[int]) -> list[Painted]:
        """A candidate for each seed."""
        ...


class ModelError(RuntimeError):
    """A model that failed `ATTEMPTS` times, with what it said."""


@dataclass(frozen=True)
class MaskDraft:
    """A mask and how it was made; see `Edit`."""

    mask: Mask
    prompt: str
    threshold: float
    enlarge: tuple[int, int]
    is_corrected: bool = False


@dataclass(frozen=True)
class Candidate:
    """An image to choose.

    Attributes:
        file: of the project.
        seed: of its noise.
    """

    file: str
    seed: int


class Studio:
    """The work on items, for any number of annotators at once.

    Models run one job at a time, in a thread of their own and in the order of the requests: a page waits for a model
    only while it has asked for one. They are loaded with the first request.

    Args:
        project: of the items.
        segmenter: makes the segmentation model.
        inpainter: makes the inpainting pipeline.
    """

    def __init__(self, project: Project, segmenter: Callable[[], Segments], inpainter: Callable[[], Paints]) -> None:
        self.project = project
        self._make: dict[str, Callable[[], Any]] = {"segmenter": segmenter, "inpainter": inpainter}
        self._models: dict[str, Any] = {}
        self._queue = ThreadPoolExecutor(1, thread_name_prefix="models")
        self._heats: OrderedDict[tuple[str, str], Future[Heat]] = OrderedDict()
        self._lock = Lock()

    def close(self) -> None:
        """Ends the queue of the models; what is under way is finished."""
        self._queue.shutdown(cancel_futures=True)

    def next_item(self, person: str, concept: str | None = None) -> Item | None:
        """The item that a person works on; the one after it is segmented meanwhile."""
        item = self.project.decisions.next_item(person, concept=concept)
        coming = self.project.decisions.peek_item(person, concept=concept)
        for one in (item, coming):
            if one is not None:
                self._heat(one, first_prompt(one))
        return item

    def mask(self, item: Item, prompt: str, threshold: float = THRESHOLD, x: int = 0, y: int = 0) -> MaskDraft:
        """A mask of what a prompt names.

        Raises:
            ValueError: for an empty prompt, or a mask of nothing or of everything.
            ModelError: where the segmentation fails.
        """
        if not prompt.strip():
            raise ValueError("The mask prompt is empty. Name what is to be replaced, such as: fire hydrant.")
        heat = self._heat(item, prompt).result()
        found = enlarge(above(heat, threshold), x, y)
        check_mask(found, self.project.read(item.image))
        return MaskDraft(found, prompt.strip(), threshold, (x, y))

    def corrected(self, item: Item, draft: MaskDraft | None, add: Mask, erase: Mask) -> MaskDraft:
        """A mask after strokes of the brush.

        Args:
            item: of the image.
            draft: that is corrected; None for a mask that is drawn alone.
            add: `[H, W]`, strokes that add.
            erase: `[H, W]`, strokes that erase; they win.

        Raises:
            ValueError: for a mask of nothing or of everything.
        """
        before = np.zeros_like(add) if draft is None else draft.mask
        found = (before | add) & ~erase
        check_mask(found, self.project.read(item.image))
        if draft is None:
            return MaskDraft(found, "", THRESHOLD, (0, 0), is_corrected=True)
        return MaskDraft(found, draft.prompt, draft.threshold, draft.enlarge, is_corrected=True)

    def candidates(self, item: Item, draft: MaskDraft, prompt: str, first_seed: int) -> list[Candidate]:
        """Images with the prompt painted in the mask, the original to the bit beyond the mask's border.

        Raises:
            ValueError: for an empty prompt, a mask that cannot be used, or where the pipeline's safety checker blanked
                all of them or nothing was changed.
            ModelError: where the pipeline fails.
        """
        if not prompt.strip():
            raise ValueError("The inpainting prompt is empty. Describe what to paint, such as: a yellow hydrant.")
        original = self.project.read(item.image)
        check_mask(draft.mask, original)
        seeds = [first_seed + number for number in range(CANDIDATES)]
        painted = self._queue.submit(
            self._attempt, "inpainter", lambda model: model.paint(original, draft.mask, prompt, seeds)
        ).result()
        found = []
        for seed, one in zip(seeds, painted, strict=True):
            image = compose(original, one.image, draft.mask)
            if not one.is_blanked and is_changed(original, image, draft.mask):
                found.append(Candidate(self.project.save(image), seed))
        if not found:
            raise ValueError(
                "No candidate can be used: each was blanked by the pipeline's safety checker, or changed nothing. Try "
                "another prompt or seed."
            )
        return found

    def submit(
        self,
        person: str,
        item: Item,
        draft: MaskDraft,
        candidate: Candidate,
        prompt: str,
        caption: str,
        original: str,
        quality: Quality,
    ) -> None:
        """Decides an item.

        Raises:
            ValueError: for a caption that cannot be used, or an item that somebody else has decided meanwhile.
            OSError: where the decision cannot be written; nothing is lost.
        """
        check_caption(caption, original, item.concept)
        edit = Edit(
            image=candidate.file,
            mask=self.project.save(mask_image(draft.mask)),
            caption=" ".join(caption.split()),
            original=original,
            mask_prompt=draft.prompt,
            threshold=draft.threshold,
            enlarge=draft.enlarge,
            is_corrected=draft.is_corrected,
            inpaint_prompt=prompt.strip(),
            seed=candidate.seed,
            quality=quality,
        )
        self.project.decisions.submit(person, item.id, edit)

    def _heat(self, item: Item, prompt: str) -> Future[Heat]:
        """The segmentation, which is begun unless it is there."""
        key = (item.image, prompt.strip())
        with self._lock:
            found = self._heats.get(key)
            if found is None or (found.done() and found.exception() is not None):
                found = self._queue.submit(
                    self._attempt, "segmenter", lambda model: model.heat(self.project.read(item.image), prompt)
                )
                self._heats[key] = found
            self._heats.move_to_end(key)
            while len(self._heats) > _HEATS:
                self._heats.popitem(last=False)
        return found

    def _attempt(self, name: str, work: Callable[[Any], Any]) -> Any:
        """A model's work, in the thread of the queue."""
        for attempt in range(ATTEMPTS):
            try:
                if name not in self._models:
                    self._models[name] = self._make[name]()
                return work(self._models[name])
            except Exception as error:  # whatever a model raises is for the page
                if attempt == ATTEMPTS - 1:
                    raise ModelError(f"The {name} failed {ATTEMPTS} times: {error}. Try again, or skip.") from error
        raise AssertionError


def first_prompt(item: Item) -> str:
    """What is segmented before anybody asks: the phrase with the keyword of the first caption."""
    caption = item.captions[0]
    match = next((one for one in keywords_of(caption, item.concept) if one.keyword == item.keywords[0]), None)
    return item.keywords[0] if match is None else mask_prompt(caption, match)
