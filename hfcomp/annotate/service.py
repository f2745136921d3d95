"""Annotation service behind the page: drafts, masks, candidates and decisions, with a job queue for each model."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from PIL import Image

from hfcomp.annotate.captions import check_caption
from hfcomp.annotate.page_draft import Candidate, PageDraft, Painting, Segmentation, draft_from_edit, first_draft
from hfcomp.data.annotations.entries import QUALITIES, Edit, Item, decode, encode, is_same_person, person_key
from hfcomp.data.annotations.masks import (
    Mask,
    ProbabilityMap,
    check_mask,
    compose,
    enlarge,
    is_changed,
    mask_image,
    overlay,
    read_mask,
    threshold_mask,
)
from hfcomp.data.annotations.project import Project
from hfcomp.factory.images.editor import Edit as Painted

if TYPE_CHECKING:
    from hfcomp.annotate.models import Inpainter, Segmenter

# Number of images to choose from (section A.3).
CANDIDATES = 3
# Largest enlargement of a mask, in pixels.
MOST_ENLARGEMENT = 200
IMAGES_IN_MEMORY = 32
# Maximum number of candidate requests that are waiting or being painted, per person (who may have moved on to another
# item) and in total.
MOST_OF_A_PERSON, MOST_IN_ALL = 3, 64

# Attempts per model job before its error is shown.
ATTEMPTS = 2
# Memory limit for cached segmentations, in bytes. The oldest are dropped first.
MAP_BYTES = 256 * 2**20

Model, T = TypeVar("Model"), TypeVar("T")


class ModelError(RuntimeError):
    """A model failed `ATTEMPTS` times; the message has its last error."""


class ModelQueue:
    """A segmentation model and an inpainting pipeline, each in its own thread.

    Each model runs one job at a time in the order of the requests, and a segmentation never waits for an inpainting. A
    model is loaded with its first job. A failed job is retried, and a model that failed to load is loaded again.
    """

    def __init__(self, segmenter: Callable[[], Segmenter], inpainter: Callable[[], Inpainter]) -> None:
        self._make: dict[str, Callable[[], Any]] = {"segmentation": segmenter, "inpainting": inpainter}
        self._models: dict[str, Any] = {}
        # One thread per model, so each runs one job at a time and a segmentation never waits for an inpainting.
        self._threads = {name: ThreadPoolExecutor(1, thread_name_prefix=name) for name in self._make}
        self._waiting = dict.fromkeys(self._make, 0)
        self._maps: OrderedDict[tuple[str, str], Future[ProbabilityMap]] = OrderedDict()
        self._lock = Lock()

    def close(self) -> None:
        """Cancels the waiting jobs and waits for the running ones."""
        for threads in self._threads.values():
            threads.shutdown(cancel_futures=True)

    def waiting(self) -> int:
        """Returns the number of inpainting jobs that are running or waiting."""
        return self._waiting["inpainting"]

    def probability_map(self, name: str, prompt: str, read: Callable[[], Image.Image]) -> Future[ProbabilityMap]:
        """Returns the segmentation of an image for a prompt; starts it unless it is cached or running."""
        key = (name, prompt)
        with self._lock:
            future = self._maps.get(key)
            # A failed segmentation is not cached, so the next request tries the model again.
            if future is None or future.cancelled() or (future.done() and future.exception() is not None):
                future = self._submit("segmentation", lambda model: model.probability_map(read(), prompt))
                self._maps[key] = future
            self._maps.move_to_end(key)
            self._forget()
        return future

    def paint(self, image: Image.Image, mask: Mask, prompt: str, seeds: Sequence[int]) -> Future[list[Painted]]:
        with self._lock:
            return self._submit("inpainting", lambda model: model.paint(image, mask, prompt, seeds))

    def _submit(self, name: str, work: Callable[[Any], T]) -> Future[T]:
        self._waiting[name] += 1
        return self._threads[name].submit(self._attempt, name, work)

    def _attempt(self, name: str, work: Callable[[Any], T]) -> T:
        try:
            return self._work(name, work, ATTEMPTS)
        finally:
            with self._lock:
                self._waiting[name] -= 1

    def _work(self, name: str, work: Callable[[Any], T], attempts: int) -> T:
        try:
            # Only a model's own thread uses it, so no lock is needed.
            if name not in self._models:
                self._models[name] = self._make[name]()
            return work(self._models[name])
        except Exception as error:  # a model may raise any error, and the page shows all of them
            if attempts > 1:
                return self._work(name, work, attempts - 1)
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ModelError(f"The {name} model failed {ATTEMPTS} times: {reason}") from error

    def _forget(self) -> None:
        """Drops the oldest segmentations beyond `MAP_BYTES`, but keeps the latest one."""
        # Only finished segmentations have a size.
        done = [key for key, map in self._maps.items() if map.done() and not map.cancelled() and not map.exception()]
        used = sum(self._maps[key].result().nbytes for key in done)
        for key in done:
            if used <= MAP_BYTES or key == next(reversed(self._maps)):
                break
            used -= self._maps.pop(key).result().nbytes


class AnnotationService:
    """Serves items to any number of concurrent annotators.

    Attributes:
        concept: Concept to limit the items to, or None for all.
    """

    def __init__(
        self,
        project: Project,
        segmenter: Callable[[], Segmenter],
        inpainter: Callable[[], Inpainter],
        *,
        concept: str | None = None,
    ) -> None:
        self.project, self.concept = project, concept
        self.queue = ModelQueue(
            _record_model(project, "segmenter", segmenter), _record_model(project, "inpainter", inpainter)
        )
        self._updates = Lock()
        self._waiting: Counter[str] = Counter()
        self.image = lru_cache(maxsize=IMAGES_IN_MEMORY)(project.read)

    def close(self) -> None:
        self.queue.close()
        self.project.decisions.close()

    def next_item(self, person: str) -> Item | None:
        """Returns the item that a person works on, and starts to segment it and the item after it."""
        item = self.project.decisions.next_item(person, concept=self.concept)
        # Segment the next item while the person works on this one, so its mask is ready when the item is shown.
        coming = self.project.decisions.peek_item(person, concept=self.concept) if item else None
        for upcoming in (item, coming):
            if upcoming is not None and (prompt := first_draft(upcoming).segmentation.prompt):
                self.queue.probability_map(upcoming.image, prompt, self._reader(upcoming.image))
        return item

    def draft(self, person: str, item: Item) -> PageDraft:
        """Returns a person's draft of an item.

        Without a saved draft, it is the person's earlier submission if that was undone or sent back (with the reason),
        otherwise the initial draft. A draft written by an incompatible older version is ignored.
        """
        content = self.project.decisions.draft(person, item.id)
        if content is not None:
            try:
                return PageDraft.from_json(content, f"draft of {item.id}")
            except ValueError:
                return first_draft(item)
        entries = list(self.project.decisions.log(item=item.id))
        submitted = [entry for entry in entries if entry.action == "submit" and is_same_person(entry.person, person)]
        if not submitted:
            return first_draft(item)
        returned = [entry for entry in entries if entry.action == "send back" and entry.number > submitted[-1].number]
        note = f"A reviewer sent this back: {returned[-1].content['reason']}" if returned else ""
        where = f"log, row {submitted[-1].number}"
        edit = decode(Edit, encode(submitted[-1].content, where), where)
        # A mask corrected by hand cannot be derived from prompt and threshold. Its pixels are restored as added
        # strokes, and all other pixels as erasing strokes.
        inverse = mask_image(~read_mask(self.image(edit.mask))) if edit.is_corrected else None
        return draft_from_edit(edit, None if inverse is None else self.project.save(inverse), note)

    def update(self, person: str, item: Item, change: Callable[[PageDraft], PageDraft]) -> PageDraft:
        """Changes a draft and saves it. Changes run one at a time, because page events can overtake each other."""
        # Without the lock, a late event could write back a value that another event has just replaced.
        with self._updates:
            before = self.draft(person, item)
            draft = change(before)
            if draft != before:
                self.project.decisions.save_draft(person, item.id, asdict(draft))
        return draft

    def mask(self, item: Item, segmentation: Segmentation) -> Mask:
        """Returns the mask: the enlarged region that the prompt names, with the brush strokes applied.

        Raises:
            ValueError: If there is neither a prompt nor a stroke, or the mask covers nothing or everything.
            ModelError: If the segmentation fails.
        """
        image, prompt = self.image(item.image), segmentation.prompt.strip()
        if prompt:
            if not all(0 <= pixels <= MOST_ENLARGEMENT for pixels in segmentation.enlarge):
                raise ValueError(
                    f"enlargement: found {segmentation.enlarge} pixels, expected 0 to {MOST_ENLARGEMENT}."
                )
            probabilities = self.queue.probability_map(item.image, prompt, self._reader(item.image)).result()
            mask = enlarge(threshold_mask(probabilities, segmentation.threshold), *segmentation.enlarge)
        elif segmentation.added is None:
            raise ValueError(
                "The mask prompt is empty. Name what to replace, such as: fire hydrant. Or draw the mask with the "
                "brush."
            )
        else:
            mask = np.zeros((image.height, image.width), dtype=bool)
        # Apply erasing strokes last, because a person erases what the model or an earlier stroke got wrong.
        mask = mask | self._strokes(segmentation.added, mask.shape)
        mask = mask & ~self._strokes(segmentation.erased, mask.shape)
        check_mask(mask, image)
        return mask

    def overlay(self, item: Item, segmentation: Segmentation) -> Image.Image:
        """Returns the image with its mask tinted. Raises the same errors as `mask`."""
        return overlay(self.image(item.image), self.mask(item, segmentation))

    def is_ready(self, item: Item, segmentation: Segmentation) -> bool:
        """Whether `mask` can return without waiting for the model."""
        prompt = segmentation.prompt.strip()
        return not prompt or self.queue.probability_map(item.image, prompt, self._reader(item.image)).done()

    def brush(self, item: Item, segmentation: Segmentation, strokes: Mask, *, erases: bool) -> Segmentation:
        """Adds brush strokes to a segmentation. Where strokes overlap, the latest one takes precedence.

        Raises:
            ValueError: If the strokes have another size than the image, or there are none.
        """
        image = self.image(item.image)
        if strokes.shape != (image.height, image.width):
            raise ValueError(
                f"The strokes have {strokes.shape[1]} x {strokes.shape[0]} pixels, but the image has {image.width} x "
                f"{image.height}. Draw them again."
            )
        if not strokes.any():
            raise ValueError("There are no strokes. Draw on the image with the brush first.")
        added, erased = (self._strokes(file, strokes.shape) for file in (segmentation.added, segmentation.erased))
        added, erased = (added & ~strokes, erased | strokes) if erases else (added | strokes, erased & ~strokes)
        files = [self.project.save(mask_image(mask)) if mask.any() else None for mask in (added, erased)]
        return replace(segmentation, added=files[0], erased=files[1])

    def paint(self, item: Item, draft: PageDraft) -> Painting:
        """Paints candidates, starting at the draft's next seed.

        The prompt is painted inside the mask. Outside its border, every pixel is exactly that of the original.

        Raises:
            ValueError: If the prompt is empty, the mask cannot be used, or no candidate can be: each was blanked by
                the pipeline's safety checker or changed nothing.
            ModelError: If a model fails.
        """
        prompt = " ".join(draft.prompt.split())
        if not prompt:
            raise ValueError("The inpainting prompt is empty. Describe what to paint, for example: a yellow hydrant.")
        original, mask = self.image(item.image), self.mask(item, draft.segmentation)
        # Seeds continue after the previous ones, so new candidates are different images.
        seeds = range(draft.next_seed, draft.next_seed + CANDIDATES)
        painted = self.queue.paint(original, mask, prompt, [*seeds]).result()
        candidates = []
        for seed, edit in zip(seeds, painted, strict=True):
            image = compose(original, edit.image, mask)
            if not edit.is_blanked and is_changed(original, image, mask):
                candidates.append(Candidate(self.project.save(image), seed))
        if not candidates:
            blanked = sum(edit.is_blanked for edit in painted)
            raise ValueError(
                f"None of the {CANDIDATES} images can be used: the pipeline's safety checker blanked {blanked}, and "
                f"{CANDIDATES - blanked} show no change. Try other seeds or another prompt."
            )
        return Painting(draft.segmentation, self.project.save(mask_image(mask)), prompt, tuple(candidates))

    @contextmanager
    def turn(self, person: str) -> Iterator[None]:
        """Holds a place in the inpainting queue, in which places per person are limited.

        Raises:
            ValueError: If the person already has too many waiting requests, or the queue is full.
        """
        name = person_key(person)
        with self._updates:
            # Inpainting takes seconds per image, and one person could fill the queue for everyone.
            if self._waiting[name] >= MOST_OF_A_PERSON or self._waiting.total() >= MOST_IN_ALL:
                raise ValueError(
                    f"{self._waiting.total()} inpainting requests are waiting, {self._waiting[name]} of them yours. "
                    "Wait until one is done."
                )
            self._waiting[name] += 1
        try:
            yield
        finally:
            with self._updates:
                self._waiting[name] -= 1

    def submit(self, person: str, item: Item, draft: PageDraft) -> None:
        """Submits a draft as the person's edit of an item.

        Raises:
            ValueError: If the draft lacks candidates, a choice, a quality or a usable caption, or somebody else has
                decided the item in the meantime.
            OSError: If the decision cannot be written. The draft is kept.
        """
        painting = draft.painting
        if painting is None:
            raise ValueError("There is no edited image yet. Paint candidates first.")
        if draft.chosen is None or draft.chosen not in range(len(painting.candidates)):
            raise ValueError("No image is chosen. Choose the best candidate, paint new ones, or skip the item.")
        if draft.quality not in QUALITIES:
            raise ValueError(f"The quality is missing. Rate the chosen image: {' or '.join(QUALITIES)}.")
        if draft.original not in item.captions:
            raise ValueError("Choose one of the original captions as the base of the new one.")
        check_caption(draft.caption, draft.original, item.concept)
        segmentation, candidate = painting.segmentation, painting.candidates[draft.chosen]
        edit = Edit(
            image=candidate.file,
            mask=painting.mask,
            caption=" ".join(draft.caption.split()),
            original=draft.original,
            mask_prompt=segmentation.prompt.strip(),
            threshold=segmentation.threshold,
            enlarge=segmentation.enlarge,
            is_corrected=segmentation.is_corrected,
            inpaint_prompt=painting.prompt,
            seed=candidate.seed,
            quality=draft.quality,
        )
        self.project.decisions.submit(person, item.id, edit)

    def _strokes(self, file: str | None, shape: tuple[int, ...]) -> Mask:
        return np.zeros(shape, dtype=bool) if file is None else read_mask(self.image(file))

    def _reader(self, name: str) -> Callable[[], Image.Image]:
        return lambda: self.image(name)


def is_outdated(draft: PageDraft) -> bool:
    """Whether the mask or the prompt was changed after the candidates were painted."""
    painting = draft.painting
    if painting is None:
        return False
    # Spaces around a prompt do not change the input of a model.
    now = asdict(replace(draft.segmentation, prompt=draft.segmentation.prompt.strip()))
    before = asdict(replace(painting.segmentation, prompt=painting.segmentation.prompt.strip()))
    return now != before or " ".join(draft.prompt.split()) != painting.prompt


def _record_model(project: Project, role: str, make: Callable[[], Model]) -> Callable[[], Model]:
    """Wraps a model loader so that the project records the loaded model as one that edits are made with."""

    def load() -> Model:
        model = make()
        if name := getattr(model, "identity", None):
            project.add_model(role, name)
        return model

    return load
