"""The work on items, as the page asks for it: drafts, masks, candidates and decisions, and models behind queues."""

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
from hfcomp.annotate.page_draft import Candidate, PageDraft, Painting, Segmentation, draft_of, first_draft
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

# Images to choose from (section A.3).
CANDIDATES = 3
# Largest enlargement of a mask, in pixels.
MOST_ENLARGEMENT = 200
IMAGES_IN_MEMORY = 32
# Most requests for candidates that wait or are being painted: per person, who may have gone on to another item, and in
# total.
MOST_OF_A_PERSON, MOST_IN_ALL = 3, 64

# Attempts at a job of a model before its error is shown.
ATTEMPTS = 2
# Memory for segmentations. The oldest are dropped first.
MAP_BYTES = 256 * 2**20

Model, T = TypeVar("Model"), TypeVar("T")


class ModelError(RuntimeError):
    """A model that failed `ATTEMPTS` times, with its last error."""


class ModelQueue:
    """A segmentation model and an inpainting pipeline, each in a thread of its own.

    Each does one job at a time, in the order of the requests, so that a segmentation never waits for an inpainting.
    Models are loaded with their first job. A failed one is tried again, and loaded again where it failed to load.
    """

    def __init__(self, segmenter: Callable[[], Segmenter], inpainter: Callable[[], Inpainter]) -> None:
        self._make: dict[str, Callable[[], Any]] = {"segmentation": segmenter, "inpainting": inpainter}
        self._models: dict[str, Any] = {}
        # One thread per model: it runs one job at a time, and a segmentation never waits for an inpainting.
        self._threads = {name: ThreadPoolExecutor(1, thread_name_prefix=name) for name in self._make}
        self._waiting = dict.fromkeys(self._make, 0)
        self._maps: OrderedDict[tuple[str, str], Future[ProbabilityMap]] = OrderedDict()
        self._lock = Lock()

    def close(self) -> None:
        """Drops what waits; the jobs under way end first."""
        for threads in self._threads.values():
            threads.shutdown(cancel_futures=True)

    def waiting(self) -> int:
        """Inpainting jobs that are under way or wait."""
        return self._waiting["inpainting"]

    def probability_map(self, name: str, prompt: str, read: Callable[[], Image.Image]) -> Future[ProbabilityMap]:
        """The segmentation of an image by a prompt, which is begun unless it was before."""
        key = (name, prompt)
        with self._lock:
            found = self._maps.get(key)
            # A failed segmentation is not cached: the next request tries the model again.
            if found is None or found.cancelled() or (found.done() and found.exception() is not None):
                found = self._submit("segmentation", lambda model: model.probability_map(read(), prompt))
                self._maps[key] = found
            self._maps.move_to_end(key)
            self._forget()
        return found

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
            # Only a model's own thread touches it, so this needs no lock.
            if name not in self._models:
                self._models[name] = self._make[name]()
            return work(self._models[name])
        except Exception as error:  # a model may raise anything, and all of it is for the page
            if attempts > 1:
                return self._work(name, work, attempts - 1)
            said = " ".join(str(error).split()) or type(error).__name__
            raise ModelError(f"The {name} model failed {ATTEMPTS} times: {said}") from error

    def _forget(self) -> None:
        """Drops the oldest segmentations beyond `MAP_BYTES`, but not the last one."""
        # Only finished ones have a size.
        done = [key for key, one in self._maps.items() if one.done() and not one.cancelled() and not one.exception()]
        used = sum(self._maps[key].result().nbytes for key in done)
        for key in done:
            if used <= MAP_BYTES or key == next(reversed(self._maps)):
                break
            used -= self._maps.pop(key).result().nbytes


class AnnotationService:
    """The work on items, for any number of annotators at once.

    Attributes:
        concept: Concept that items are limited to; None for all.
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
        """The item that a person works on; it and the one after it are read and segmented meanwhile."""
        item = self.project.decisions.next_item(person, concept=self.concept)
        # The next item is segmented while the person works on this one, so its mask is ready when the item is shown.
        coming = self.project.decisions.peek_item(person, concept=self.concept) if item else None
        for one in (item, coming):
            if one is not None and (prompt := first_draft(one).segmentation.prompt):
                self.queue.probability_map(one.image, prompt, self._reader(one.image))
        return item

    def draft(self, person: str, item: Item) -> PageDraft:
        """What a person has made of an item so far.

        Without a draft it is what the person had submitted before, if that was undone or sent back, with the reason;
        else the first proposal. A draft that an older version wrote is not used.
        """
        content = self.project.decisions.draft(person, item.id)
        if content is not None:
            try:
                return PageDraft.from_json(content, f"draft of {item.id}")
            except ValueError:
                return first_draft(item)
        rows = list(self.project.decisions.log(item=item.id))
        submitted = [one for one in rows if one.action == "submit" and is_same_person(one.person, person)]
        if not submitted:
            return first_draft(item)
        returned = [one for one in rows if one.action == "send back" and one.number > submitted[-1].number]
        note = f"A reviewer sent this back: {returned[-1].content['reason']}" if returned else ""
        where = f"log, row {submitted[-1].number}"
        edit = decode(Edit, encode(submitted[-1].content, where), where)
        # A mask corrected by hand does not follow from prompt and threshold. Its pixels come back as strokes that add,
        # and all other pixels as strokes that erase.
        inverse = mask_image(~read_mask(self.image(edit.mask))) if edit.is_corrected else None
        return draft_of(edit, None if inverse is None else self.project.save(inverse), note)

    def update(self, person: str, item: Item, change: Callable[[PageDraft], PageDraft]) -> PageDraft:
        """Changes a draft and keeps it, one change at a time: events of a page overtake each other."""
        # Without the lock, a late event would write back what an earlier one has replaced.
        with self._updates:
            before = self.draft(person, item)
            draft = change(before)
            if draft != before:
                self.project.decisions.save_draft(person, item.id, asdict(draft))
        return draft

    def mask(self, item: Item, made: Segmentation) -> Mask:
        """A mask: what the prompt names, enlarged, with the strokes of the brush.

        Raises:
            ValueError: without a prompt and strokes, or for a mask of nothing or of everything.
            ModelError: where the segmentation fails.
        """
        image = self.image(item.image)
        if made.prompt.strip():
            if not all(0 <= pixels <= MOST_ENLARGEMENT for pixels in made.enlarge):
                raise ValueError(f"enlargement: found {made.enlarge} pixels, expected 0 to {MOST_ENLARGEMENT}.")
            probabilities = self.queue.probability_map(
                item.image, made.prompt.strip(), self._reader(item.image)
            ).result()
            found = enlarge(threshold_mask(probabilities, made.threshold), *made.enlarge)
        elif made.added is None:
            raise ValueError(
                "The mask prompt is empty. Name what is to be replaced, such as: fire hydrant. Or draw the mask with "
                "the brush."
            )
        else:
            found = np.zeros((image.height, image.width), dtype=bool)
        # Erased strokes come last, because a person erases what the model or an earlier stroke got wrong.
        found = found | self._strokes(made.added, found.shape)
        found = found & ~self._strokes(made.erased, found.shape)
        check_mask(found, image)
        return found

    def overlay(self, item: Item, made: Segmentation) -> Image.Image:
        """The image with its mask tinted; errors as `mask`."""
        return overlay(self.image(item.image), self.mask(item, made))

    def is_ready(self, item: Item, made: Segmentation) -> bool:
        """Whether `mask` would not wait for the model."""
        prompt = made.prompt.strip()
        return not prompt or self.queue.probability_map(item.image, prompt, self._reader(item.image)).done()

    def brush(self, item: Item, made: Segmentation, strokes: Mask, *, erases: bool) -> Segmentation:
        """A segmentation with further strokes of the brush. The last stroke wins where both were drawn.

        Raises:
            ValueError: for strokes of another size, or none.
        """
        image = self.image(item.image)
        if strokes.shape != (image.height, image.width):
            raise ValueError(
                f"The strokes have {strokes.shape[1]} x {strokes.shape[0]} pixels, the image {image.width} x "
                f"{image.height}. Draw them again."
            )
        if not strokes.any():
            raise ValueError("There is no stroke. Draw on the image with the brush first.")
        added, erased = (self._strokes(file, strokes.shape) for file in (made.added, made.erased))
        added, erased = (added & ~strokes, erased | strokes) if erases else (added | strokes, erased & ~strokes)
        files = [self.project.save(mask_image(one)) if one.any() else None for one in (added, erased)]
        return replace(made, added=files[0], erased=files[1])

    def paint(self, item: Item, draft: PageDraft) -> Painting:
        """Candidates, with seeds from the draft's next one.

        The prompt is painted in the mask; beyond its border each pixel is exactly the original's.

        Raises:
            ValueError: for an empty prompt, a mask that cannot be used, or where no candidate can be: all of them were
                blanked by the pipeline's safety checker, or changed nothing.
            ModelError: where a model fails.
        """
        prompt = " ".join(draft.prompt.split())
        if not prompt:
            raise ValueError("The inpainting prompt is empty. Describe what to paint, such as: a yellow hydrant.")
        original, mask = self.image(item.image), self.mask(item, draft.segmentation)
        # Seeds go on from the last ones, so new candidates are other images.
        seeds = range(draft.next_seed, draft.next_seed + CANDIDATES)
        painted = self.queue.paint(original, mask, prompt, [*seeds]).result()
        found = []
        for seed, one in zip(seeds, painted, strict=True):
            image = compose(original, one.image, mask)
            if not one.is_blanked and is_changed(original, image, mask):
                found.append(Candidate(self.project.save(image), seed))
        if not found:
            blanked = sum(one.is_blanked for one in painted)
            raise ValueError(
                f"None of the {CANDIDATES} images can be used: the pipeline's safety checker blanked {blanked}, and "
                f"{CANDIDATES - blanked} show no change. Try other seeds or another prompt."
            )
        return Painting(draft.segmentation, self.project.save(mask_image(mask)), prompt, tuple(found))

    @contextmanager
    def turn(self, person: str) -> Iterator[None]:
        """A place in the queue of the inpainting, of which nobody has many.

        Raises:
            ValueError: for a person who waits for enough already, or a queue that is too long.
        """
        name = person_key(person)
        with self._updates:
            # Inpainting takes seconds per image, and one person could fill the queue for everyone.
            if self._waiting[name] >= MOST_OF_A_PERSON or self._waiting.total() >= MOST_IN_ALL:
                raise ValueError(
                    f"{self._waiting[name]} of your requests and {self._waiting.total()} of all people wait for the "
                    "inpainting. Wait until one is done."
                )
            self._waiting[name] += 1
        try:
            yield
        finally:
            with self._updates:
                self._waiting[name] -= 1

    def submit(self, person: str, item: Item, draft: PageDraft) -> None:
        """Decides an item.

        Raises:
            ValueError: for a draft without candidates, choice, quality or a caption that can be used, or an item that
                somebody else has decided meanwhile.
            OSError: where the decision cannot be written; the draft is kept.
        """
        painting = draft.painting
        if painting is None:
            raise ValueError("There is no edited image yet. Paint candidates first.")
        if draft.chosen is None or draft.chosen not in range(len(painting.candidates)):
            raise ValueError("No image is chosen. Choose the best candidate, or make new ones, or skip.")
        if draft.quality not in QUALITIES:
            raise ValueError(f"The quality is missing. Rate the chosen image: {' or '.join(QUALITIES)}.")
        if draft.original not in item.captions:
            raise ValueError("Choose one of the original captions as the base of the new one.")
        check_caption(draft.caption, draft.original, item.concept)
        made, candidate = painting.segmentation, painting.candidates[draft.chosen]
        edit = Edit(
            image=candidate.file,
            mask=painting.mask,
            caption=" ".join(draft.caption.split()),
            original=draft.original,
            mask_prompt=made.prompt.strip(),
            threshold=made.threshold,
            enlarge=made.enlarge,
            is_corrected=made.is_corrected,
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
    """Whether the mask or the prompt was changed after the candidates were made."""
    painting = draft.painting
    if painting is None:
        return False
    # Spaces around a prompt change nothing that a model sees.
    now = asdict(replace(draft.segmentation, prompt=draft.segmentation.prompt.strip()))
    before = asdict(replace(painting.segmentation, prompt=painting.segmentation.prompt.strip()))
    return now != before or " ".join(draft.prompt.split()) != painting.prompt


def _record_model(project: Project, role: str, make: Callable[[], Model]) -> Callable[[], Model]:
    """Makes a model, which the project then names as one that edits are made with."""

    def made() -> Model:
        model = make()
        if name := getattr(model, "identity", None):
            project.add_model(role, name)
        return model

    return made
