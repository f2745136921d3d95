"""Models behind queues: a page waits for a model only while it has asked for one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image

from hfcomp.data.annotations.masks import Heat, Mask
from hfcomp.factory.images.editor import Edit as Painted

if TYPE_CHECKING:
    from hfcomp.annotate.models import Inpainter, Segmenter

T = TypeVar("T")
# Attempts at a job of a model before its error is shown.
ATTEMPTS = 2
# Memory for segmentations, of which the oldest go first.
MAP_BYTES = 256 * 2**20


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
        self._maps: OrderedDict[tuple[str, str], Future[Heat]] = OrderedDict()
        self._lock = Lock()

    def close(self) -> None:
        """Drops what waits; the jobs under way end first."""
        for threads in self._threads.values():
            threads.shutdown(cancel_futures=True)

    def waiting(self) -> int:
        """Inpainting jobs that are under way or wait."""
        return self._waiting["inpainting"]

    def probability_map(self, name: str, prompt: str, read: Callable[[], Image.Image]) -> Future[Heat]:
        """The segmentation of an image by a prompt, which is begun unless it was before."""
        key = (name, prompt)
        with self._lock:
            found = self._maps.get(key)
            # a failed segmentation is not cached: the next request tries the model again
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
            # Only the thread of a model touches it, so this needs no lock.
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
