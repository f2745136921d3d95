"""Embeddings of a data set's distinct images and texts by one model."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from tqdm.auto import tqdm

from hfcomp.data.images import decode_image, is_tiny
from hfcomp.data.pixels import PixelTransform
from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.distributed import fail_together, gather_objects, rank, world_size
from hfcomp.evaluation.cache import EmbeddingCache, VectorStore
from hfcomp.evaluation.content import check_text, decoded, distinct, image_key, processor_facts, tokens_key
from hfcomp.evaluation.identity import identity
from hfcomp.modeling import encode_images, encode_texts, load_backbone, load_config, load_processor

ENCODING_VERSION = 3
"""Raised when the same model, image or text would get another vector; older cached vectors are then not read."""

NOT_FINITE = "the model's embeddings are NaN or infinite: its weights are broken, or overflow in half precision."


@dataclass(frozen=True)
class TextEmbeddings:
    """Embeddings of texts, in the order that was asked for.

    Attributes:
        vectors: `[n, D]` fp32, L2-normalised.
        truncated: number of distinct texts that were longer than the text tower.
        merged: how many of these were cut to the tokens of another one.
    """

    vectors: NDArray[np.float32]
    truncated: int
    merged: int = 0


@dataclass(frozen=True)
class Indexed:
    """Embeddings of the distinct ones of n images or texts.

    Attributes:
        vectors: `[m, D]` fp32, L2-normalised.
        index: `[n]`, which of them each one has; -1 for a missing image.
        flagged: number of distinct texts that were cut, or of images one pixel wide or high.
        computed: number of distinct ones that were encoded now; the others were cached.
        merged: how many of the texts that were cut have the tokens of another one then.
    """

    vectors: NDArray[np.float32]
    index: NDArray[np.int64]
    flagged: int
    computed: int
    merged: int = 0

    def take(self, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """`[k, D]`; every one of them has to be there."""
        return self.vectors[self.index[rows]]


class Embedder:
    """Encodes images and texts with a model as its authors prepared them, each distinct one once.

    Args:
        model: Hub id, folder or module. A module is left unchanged: it runs on its device, in eval mode while it
            encodes and in its own modes again afterwards. With another `device`, a copy made now runs there. Weights
            of an id or folder are not loaded before something has to be encoded.
        processor: the model's processor; loaded from `model`, or from where a module came from, when it is left out.
        batch_size: images or texts at a time.
        device: where to run; by default a module's own place, else a GPU when there is one.
        cache: stored embeddings. By default each call encodes again. For a module the cache has to be one without a
            folder, made after the last change of its weights.
        split: whether the processes of `torchrun` or `accelerate launch` share the work; all of them have to make the
            same calls then, and all get every embedding. Batches do not depend on the number of processes.

    Attributes:
        encoded_images: images that were encoded by this process so far.
        encoded_texts: texts likewise.

    Raises:
        ValueError: for a model that is not a supported dual encoder, a module whose processor is not found, or a
            module with a cache on disk.
    """

    def __init__(
        self,
        model: str | Path | nn.Module,
        processor: Any = None,
        *,
        batch_size: int = 128,
        device: str | torch.device | None = None,
        cache: EmbeddingCache | None = None,
        split: bool = False,
    ) -> None:
        self._model = model
        self._backbone: nn.Module | None = None
        if isinstance(model, nn.Module):
            if cache is not None and cache.folder is not None:
                raise ValueError(
                    "cache: a module's weights may change, so its embeddings cannot be cached on disk. Pass "
                    "EmbeddingCache() or no cache, or save the model and pass its folder."
                )
            self._backbone, self.device = _place(load_backbone(model), device)
            self.config = self._backbone.config
        else:
            self.device = torch.device(device or free_device())
            self.config = load_config(model)
        processor = processor or load_processor(model, argument="processor")
        self.transform = PixelTransform.from_processor(processor.image_processor)
        self.tokenizer = TextTokenizer.from_processor(processor, self.config)
        self.batch_size = batch_size
        self.cache = cache
        self.split = split
        self.encoded_images = 0
        self.encoded_texts = 0
        self._fingerprints = self._make_fingerprints(processor) if cache is not None else {}

    @property
    def backbone(self) -> nn.Module:
        """The model, loaded on first use, in fp32 whatever the precision of its file.

        Raises:
            ValueError: when its files have changed since this object was made.
        """
        if self._backbone is None:
            backbone = load_backbone(self._model, dtype=torch.float32).to(self.device)
            if self._fingerprints and identity(self._model) != self._fingerprints["images"]["weights"]:
                raise ValueError(f"{self._model}: its files changed while it was in use. Evaluate it again.")
            self._backbone = backbone
        return self._backbone

    def release(self) -> None:
        """Gives the memory of weights and embeddings back; both are loaded again when they are needed."""
        if not isinstance(self._model, nn.Module):
            self._backbone = None
        if self.cache is not None:
            for fingerprint in self._fingerprints.values():
                self.cache.release(fingerprint)

    def images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> NDArray[np.float32]:
        """Embeddings of images; those of the same bytes, file or pixels are encoded once.

        Args:
            images: what `hfcomp.data.images.decode_image` takes.
            column: what errors call the place of an image, with its row.
            progress: whether to show a bar.

        Returns:
            `[n, D]` fp32, L2-normalised, in the order of `images`.

        Raises:
            TypeError: for one image instead of a list of them.
            ValueError: for a missing image.
        """
        if isinstance(images, str | bytes | os.PathLike | Image.Image):
            raise TypeError(f"images: found one {type(images).__name__}, expected a list. Put it into one: [image].")
        found = self.index_images(images, column=column, progress=progress)
        if (found.index < 0).any():
            decode_image(None, where=f"column '{column}', row {int(np.argmax(found.index < 0))}")
        return found.take(slice(None))

    def texts(self, texts: Sequence[str], *, progress: bool = False) -> TextEmbeddings:
        """Embeddings of texts; those of equal tokens are encoded once, and have the same vector to the last bit.

        Raises:
            TypeError: for a single text instead of a list, or an entry that is not a text.
        """
        found = self.index_texts(texts, progress=progress)
        return TextEmbeddings(found.take(slice(None)), found.flagged, found.merged)

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """As `images`, with one vector for each distinct image; an image that is `None` gets none.

        No more than two batches of images are in memory at a time.
        """
        with self._together():
            return self._index_images(images, column, progress)

    def index_texts(self, texts: Sequence[str], *, progress: bool = False) -> Indexed:
        """As `texts`, with one vector for all texts that the tokenizer makes the same tokens of.

        `flagged` counts distinct texts all the same.
        """
        if isinstance(texts, str):
            raise TypeError(
                f"texts: found the text {texts!r}, expected a list of texts. Put it into one: [{texts!r}]."
            )
        with self._together():
            return self._index_texts(texts, progress)

    def _together(self) -> AbstractContextManager[None]:
        return fail_together() if self.split else nullcontext()

    def _index_images(self, images: Sequence[Any], column: str, progress: bool) -> Indexed:
        keys, index, first = distinct(
            image_key(value, f"column '{column}', row {row}") for row, value in enumerate(images)
        )

        def load(number: int) -> tuple[torch.Tensor, bool]:
            where = f"column '{column}', row {first[number]}"
            image = decoded(images[first[number]], where)
            return self.transform([image], where=[where]), is_tiny(image)

        def encode(loaded: list[tuple[torch.Tensor, bool]]) -> NDArray[np.float32]:
            self.encoded_images += len(loaded)
            pixels = self.transform.normalize(torch.cat([pixels for pixels, _ in loaded]).to(self.device))
            return self._encode(encode_images, pixels)

        store, found, missing = self._look_up("images", keys)
        bar = tqdm(total=len(missing), desc="images", disable=not progress or not missing, leave=False, unit="img")
        with bar, ThreadPoolExecutor(max_workers=_workers()) as pool:
            self._fill(store, found, missing, _loaded_ahead(pool, load, self._own_batches(missing)), encode, bar)
        return Indexed(found.vectors, index, int(found.flags.sum()), len(missing))

    def _index_texts(self, texts: Sequence[str], progress: bool) -> Indexed:
        number = {text: place for place, text in enumerate(dict.fromkeys(map(check_text, texts, count())))}
        ids, cut = self.tokenizer(list(number))
        is_cut = np.array(cut, dtype=bool)
        keys, index, first = distinct(map(tokens_key, ids))
        store, found, missing = self._look_up("texts", keys)
        # texts of one length together: little padding
        missing.sort(key=lambda place: (len(ids[first[place]]), keys[place]))

        def encode(rows: list[tuple[list[int], bool]]) -> NDArray[np.float32]:
            self.encoded_texts += len(rows)
            part = [row for row, _ in rows]
            padded = self.tokenizer.pad(part, self.tokenizer.length(part)).to(self.device)
            return self._encode(encode_texts, padded)

        batches = ((batch, [(ids[first[at]], cut[first[at]]) for at in batch]) for batch in self._own_batches(missing))
        with tqdm(total=len(missing), desc="texts", disable=not progress or not missing, leave=False) as bar:
            self._fill(store, found, missing, batches, encode, bar)
        merged = sum(cut) - len(np.setdiff1d(index[is_cut], index[~is_cut]))
        return Indexed(found.vectors, index[[number[text] for text in texts]], sum(cut), len(missing), merged)

    def _encode(self, encode: Callable[[nn.Module, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> NDArray:
        """Vectors `[b, width]` of a batch."""
        return encode(self.backbone, inputs).float().cpu().numpy()

    def _look_up(self, kind: str, keys: list[bytes]) -> tuple[VectorStore, _Found, list[int]]:
        """The store, what it holds of the keys, and which have to be encoded: what any process lacks, so all agree."""
        if self.cache is None:
            store = VectorStore()
        else:
            store = self.cache.store(self._fingerprints[kind], str(self._model) if self.cache.folder else "")
        vectors, flags, there = store.look_up(keys, self._width())
        absent = {keys[number] for number in np.flatnonzero(~there)}
        if self.split:
            absent = set().union(*gather_objects(absent))
        return store, _Found(keys, vectors, flags), [number for number, key in enumerate(keys) if key in absent]

    def _own_batches(self, missing: list[int]) -> list[list[int]]:
        """Batches are cut from all that is missing, then dealt out: they are the same for any number of processes."""
        batches = [missing[at : at + self.batch_size] for at in range(0, len(missing), self.batch_size)]
        return batches[rank() :: world_size()] if self.split else batches

    def _fill(
        self,
        store: VectorStore,
        found: _Found,
        missing: list[int],
        batches: Iterable[tuple[list[int], list[Any]]],
        encode: Callable[[list[Any]], NDArray[np.float32]],
        bar: tqdm,
    ) -> None:
        """Encodes this process's batches into the store, then takes over what the other processes encoded."""
        if not missing:
            return
        done = []
        try:
            with _eval_mode(self.backbone), torch.inference_mode():
                for batch, loaded in batches:
                    vectors = encode(loaded)
                    if not np.isfinite(vectors).all():
                        raise ValueError(NOT_FINITE)
                    done.append((batch, vectors, np.array([flag for _, flag in loaded])))
                    store.add([found.keys[number] for number in batch], *done[-1][1:], own=True)
                    bar.update(len(batch))
        finally:  # what was encoded is kept, whatever stopped it
            store.flush()
        for other, parts in enumerate(gather_objects(done) if self.split else [done]):
            for batch, vectors, flags in parts:
                found.vectors[batch], found.flags[batch] = vectors, flags
                if self.split and other != rank():
                    store.add([found.keys[number] for number in batch], vectors, flags, own=False)

    def _width(self) -> int:
        return getattr(self.config, "projection_dim", None) or self.config.vision_config.hidden_size

    def _make_fingerprints(self, processor: Any) -> dict[str, dict[str, Any]]:
        weights = f"module {id(self)}" if isinstance(self._model, nn.Module) else identity(self._model)
        precision = str(self._backbone.dtype) if self._backbone is not None else str(torch.float32)
        shared = {"weights": weights, "device": self.device.type, "dtype": precision, "encoding": ENCODING_VERSION}
        shared |= {"torch": torch.__version__, "transformers": transformers.__version__}
        facts = processor_facts(processor)
        tokenizer = {
            **facts["tokenizer"],
            "max_length": self.tokenizer.max_length,
            "full_length": self.tokenizer.pad_to_full,
            "pad_token_id": processor.tokenizer.pad_token_id,
        }
        pixels = {"pixels": facts["pixels"], "pillow": PIL.__version__}
        return {"images": {**shared, **pixels}, "texts": {**shared, "tokenizer": tokenizer}}


class _Found(NamedTuple):
    """Vectors `[m, D]` and flags `[m]` of distinct keys; of those that have to be encoded, zeros until they are."""

    keys: list[bytes]
    vectors: NDArray[np.float32]
    flags: NDArray[np.bool_]


def _place(backbone: nn.Module, device: str | torch.device | None) -> tuple[nn.Module, torch.device]:
    own = backbone.device
    wanted = own if device is None else torch.device(device)
    if wanted.type != own.type or wanted.index not in (None, own.index):
        backbone = copy.deepcopy(backbone).to(wanted)
    return backbone, wanted


def free_device() -> str:
    """Where a model runs by default: on this process's GPU where there is one."""
    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}"


def _workers() -> int:
    return min(8, os.cpu_count() or 1)


@contextmanager
def _eval_mode(module: nn.Module) -> Iterator[None]:
    """Eval mode, then the mode that each part had before."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _loaded_ahead(
    pool: ThreadPoolExecutor, load: Callable[[int], Any], batches: list[list[int]]
) -> Iterator[tuple[list[int], list[Any]]]:
    """Each batch with what `load` gives for its numbers; the next one is loaded while the caller works on this one."""
    waiting: list[Future[Any]] = []
    for at, batch in enumerate(batches):
        current = waiting or [pool.submit(load, number) for number in batch]
        waiting = [pool.submit(load, number) for number in batches[at + 1]] if at + 1 < len(batches) else []
        yield batch, [future.result() for future in current]
