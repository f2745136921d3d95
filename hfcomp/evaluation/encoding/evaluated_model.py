"""Shared parts of evaluated models: stored results, batches distributed over processes, images loaded ahead."""

from __future__ import annotations

import copy
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from tqdm.auto import tqdm

from hfcomp.data.tokenizing import vocabulary
from hfcomp.devices import default_device
from hfcomp.distributed import fail_together, gather_objects, rank, world_size
from hfcomp.evaluation.encoding.cache import VECTORS, EmbeddingCache
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.options import place_of
from hfcomp.store import Table, digest

NOT_FINITE = "the model's embeddings are NaN or infinite: its weights are broken, or overflow in half precision."


class EvaluatedModel(ABC):
    """A model that computes each distinct input once and stores the result by content."""

    def __init__(
        self,
        model: str | Path | nn.Module,
        *,
        device: str | torch.device | None,
        batch_size: int,
        cache: EmbeddingCache | None,
        split: bool,
    ) -> None:
        # Stored results are identified by the hash of the weights' files, which a module does not have.
        if isinstance(model, nn.Module) and cache is not None and cache.folder is not None:
            raise ValueError(
                "cache: a module's weights may change, so its embeddings cannot be cached on disk. Pass "
                "EmbeddingCache() or no cache, or save the model and pass its folder."
            )
        self._model = model
        self._backbone: nn.Module | None = None
        if isinstance(model, nn.Module):
            self._backbone, self.device = place_module(self.runnable_part(model), device)
        else:
            self.device = torch.device(device or default_device())
        self.batch_size = batch_size
        self.cache = cache
        self.split = split
        self._fingerprints: Mapping[str, Mapping[str, Any]] = {}

    def runnable_part(self, model: nn.Module) -> nn.Module:
        """Returns the part of a module that is run."""
        return model

    @abstractmethod
    def load(self) -> nn.Module:
        """Loads the model of a Hub id or folder."""

    @property
    def backbone(self) -> nn.Module:
        """The model, loaded on first use."""
        if self._backbone is None:
            backbone = self.load().to(self.device)
            # The fingerprints were made together with this object. Changed weights would be stored under the old hash.
            weights = {facts["weights"] for facts in self._fingerprints.values()}
            if weights and {identity(self._model)} != weights:
                raise ValueError(f"{self._model}: the files changed while the model was in use. Evaluate it again.")
            self._backbone = backbone
        return self._backbone

    @property
    def weights(self) -> str:
        return f"module {id(self)}" if isinstance(self._model, nn.Module) else identity(self._model)

    def release(self) -> None:
        """Frees the memory of weights and stored results. Both are loaded again when needed."""
        if not isinstance(self._model, nn.Module):
            self._backbone = None
        if self.cache is not None:
            for fingerprint in self._fingerprints.values():
                self.cache.release(fingerprint)

    def together(self) -> AbstractContextManager[None]:
        """Returns a context in which the failure of one process ends all, if they share the work."""
        return fail_together() if self.split else nullcontext()

    def compute(
        self,
        kind: str,
        keys: list[bytes],
        width: int,
        load: Callable[[int], tuple[Any, bool]],
        encode: Callable[[list[tuple[Any, bool]]], NDArray[np.float32]],
        *,
        progress: bool,
        desc: str = "",
        ahead: bool = True,
        order: Callable[[int], Any] | None = None,
        unit: bool = True,
    ) -> tuple[Vectors, int]:
        """Returns the vectors of distinct inputs, stored or computed now, and the number of computed ones.

        `load` returns the input with a given number and its flag; `encode` maps a batch of inputs to `[b, width]`.
        With `ahead`, threads load the next batch while one is encoded. Missing inputs are batched in `order`.
        """
        store, vectors, missing = self._look_up(kind, keys, width, unit)
        if order is not None:
            missing.sort(key=order)
        bar = tqdm(total=len(missing), desc=desc or kind, disable=not progress or not missing, leave=False)
        with bar, ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            own = self._own_batches(missing)
            batches = load_ahead(pool, load, own) if ahead else ((batch, list(map(load, batch))) for batch in own)
            self._fill(store, vectors, missing, batches, encode, bar)
        return vectors, len(missing)

    def _look_up(self, kind: str, keys: list[bytes], width: int, unit: bool) -> tuple[Table, Vectors, list[int]]:
        """Returns the store, its vectors for the keys, and the numbers to encode: those that any process lacks."""
        if self.cache is None:
            store = Table(VECTORS)
        else:
            name = place_of(self._model) if self.cache.folder else ""
            store = self.cache.store(self._fingerprints[kind], name, unit=unit)
        vectors, flags, present = store.look_up(keys, width)
        absent = {keys[number] for number in np.flatnonzero(~present)}
        # Processes may read different disks, but all of them must form the same batches.
        if self.split:
            absent = set().union(*gather_objects(absent))
        return store, Vectors(keys, vectors, flags), [number for number, key in enumerate(keys) if key in absent]

    def _own_batches(self, missing: list[int]) -> list[list[int]]:
        """Batches all missing inputs, independently of the number of processes, and selects those of this process."""
        # A batch of another size can round differently, so batches must not depend on the number of processes or on a
        # process's share.
        batches = [missing[at : at + self.batch_size] for at in range(0, len(missing), self.batch_size)]
        return batches[rank() :: world_size()] if self.split else batches

    def _fill(
        self,
        store: Table,
        result: Vectors,
        missing: list[int],
        batches: Iterable[tuple[list[int], list[Any]]],
        encode: Callable[[list[Any]], NDArray[np.float32]],
        bar: tqdm,
    ) -> None:
        """Encodes this process's batches into the store, then adds the vectors of the other processes."""
        # If nothing is missing, the weights are never loaded, which makes a second run fast.
        if not missing:
            return
        done = []
        try:
            with eval_mode(self.backbone), torch.inference_mode():
                for batch, loaded in batches:
                    vectors = encode(loaded)
                    # Checked before they are stored, because every later run would read them.
                    if not np.isfinite(vectors).all():
                        raise ValueError(NOT_FINITE)
                    done.append((batch, vectors, np.array([flag for _, flag in loaded])))
                    store.add([result.keys[number] for number in batch], *done[-1][1:], own=True)
                    bar.update(len(batch))
        finally:  # finished vectors are kept, whatever stopped the encoding
            store.flush()
        # All processes end up with all vectors. Only the process that computed a vector writes it to disk.
        for other, parts in enumerate(gather_objects(done) if self.split else [done]):
            for batch, vectors, flags in parts:
                result.vectors[batch], result.flags[batch] = vectors, flags
                if self.split and other != rank():
                    store.add([result.keys[number] for number in batch], vectors, flags, own=False)


class Vectors(NamedTuple):
    """Vectors `[m, D]` and flags `[m]` of distinct keys; zeros until a missing one is encoded."""

    keys: list[bytes]
    vectors: NDArray[np.float32]
    flags: NDArray[np.bool_]


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Sets a module to eval mode, and restores the mode of each part afterwards."""
    # Per part, because a frozen tower may be in eval mode while the rest is trained.
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def load_ahead(
    pool: ThreadPoolExecutor, load: Callable[[int], Any], batches: list[list[int]]
) -> Iterator[tuple[list[int], list[Any]]]:
    """Yields each batch with its loaded inputs, while threads already load the next batch."""
    waiting: list[Future[Any]] = []
    for at, batch in enumerate(batches):
        current = waiting or [pool.submit(load, number) for number in batch]
        # Only this batch and the next one are in memory, because decoded images are large.
        waiting = [pool.submit(load, number) for number in batches[at + 1]] if at + 1 < len(batches) else []
        yield batch, [future.result() for future in current]


def place_module(backbone: nn.Module, device: str | torch.device | None) -> tuple[nn.Module, torch.device]:
    """Returns a module on a device, copied if it is on another one, and the device; by default the module's own."""
    own = backbone.device
    target = own if device is None else torch.device(device)
    if target.type != own.type or target.index not in (None, own.index):
        # The caller's module stays on its device.
        backbone = copy.deepcopy(backbone).to(target)
    return backbone, target


def processor_facts(processor: Any) -> dict[str, Any]:
    """Returns the processor's settings for images and texts, except for lengths and padding, which hfcomp sets."""
    settings = json.loads(processor.image_processor.to_json_string())
    # A changed vocabulary gives different tokens under the same class and name.
    words = digest(vocabulary(processor.tokenizer).encode()).hex()
    return {
        "pixels": {"class": type(processor.image_processor).__name__, **settings},
        "tokenizer": {"class": type(processor.tokenizer).__name__, "vocabulary": words},
    }
