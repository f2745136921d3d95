"""Encodes with an object of another library or of the user's own, which turns images and texts into vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

from hfcomp.evaluation.cells import check_text, distinct
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Indexed, index_images
from hfcomp.evaluation.encoding.evaluated_model import EvaluatedModel, eval_mode

Encode = Callable[[list[Any]], Any]
"""Maps a batch of RGB images or of texts to vectors `[B, D]`, in any type that NumPy or PyTorch reads."""

ENCODES = ("encode_images", "encode_texts")
# Of open_clip's models; its tokenizer and its image transform are objects of their own.
OPEN_CLIP = ("encode_image", "encode_text")


def can_encode(model: Any) -> bool:
    """Returns whether an object is one that `ObjectEncoder` accepts."""
    return _functions(model) is not None


class ObjectEncoder(EvaluatedModel):
    """Encodes each distinct image and text once, with the object's own preparation of both.

    Args:
        model: A `SentenceTransformer`; a model of MTEB (`mteb.get_model`); an open_clip model as a tuple
            `(model, preprocess, tokenizer)`; or any object with `encode_images` and `encode_texts`, each of which maps
            a list to vectors `[B, D]`. The object stays on its device. Vectors are L2-normalized here.
        batch_size: Images or texts per call.
        split: As in [`hfcomp.Embedder`].

    Raises:
        ValueError: If the object does not give one vector per image and text, all of the same width.
    """

    def __init__(self, model: Any, *, batch_size: int = 128, split: bool = False) -> None:
        self._images, self._texts = _functions(model)
        owner = model[0] if isinstance(model, tuple) else model
        super().__init__(_Owner(owner), device=None, batch_size=batch_size, cache=EmbeddingCache(), split=split)
        self.facts: dict[str, Any] = {}
        self._fingerprints = {kind: {"weights": self.weights} for kind in ("images", "texts")}
        # In training mode, batch norms would learn from the gray image.
        with eval_mode(self.backbone), torch.inference_mode():
            image = _vectors(self._images([Image.new("RGB", (64, 64), "gray")])).shape
            text = _vectors(self._texts(["a"])).shape
        self._width = text[-1]
        if image != (1, self._width) or text != (1, self._width):
            raise ValueError(
                f"{type(owner).__name__}: one image gives vectors {list(image)} and one text {list(text)}, expected "
                "[1, D] for both. Use a model that embeds both in one space, or a pair scorer with MaxSim (see "
                "docs/models.md) if it has a vector per token."
            )

    def load(self) -> nn.Module:
        return self.backbone  # the object exists already

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """Embeds distinct images, each an `Image` cell; `None` gets the index -1."""
        with self.together():
            encode = partial(_encode, self._images)
            return index_images(self, _AsTheyAre(), images, encode, self._width, column=column, progress=progress)

    def index_texts(self, texts: Sequence[str], *, progress: bool = False) -> Indexed:
        """Embeds distinct texts. How many the object truncates is unknown, so none is counted."""
        with self.together():
            keys, index, first = distinct(text.encode() for text in map(check_text, texts, count()))
            vectors, computed = self.compute(
                "texts",
                keys,
                self._width,
                lambda number: (texts[first[number]], False),
                lambda loaded: _encode(self._texts, [text for text, _ in loaded]),
                progress=progress,
                ahead=False,
            )
            return Indexed(vectors.vectors, index, 0, computed)


class _Owner(nn.Module):
    """Holds the object; one that is a module then runs in eval mode."""

    def __init__(self, owner: Any) -> None:
        super().__init__()
        self.device = torch.device("cpu")
        if isinstance(owner, nn.Module):
            self.owner = owner


class _AsTheyAre:
    """Takes the place of a transform: the object prepares images itself."""

    def __call__(self, images: Sequence[Image.Image], *, where: Sequence[str]) -> Image.Image:
        return images[0]

    def batch(self, parts: Sequence[Image.Image], device: Any) -> list[Image.Image]:
        return list(parts)


def _vectors(values: Any) -> NDArray[np.float32]:
    return (
        values.detach().float().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values, np.float32)
    )


def _encode(encode: Encode, batch: list[Any]) -> NDArray[np.float32]:
    vectors = _vectors(encode(batch))
    # A vector of length 0 becomes NaN, which the caller reports.
    with np.errstate(invalid="ignore"):
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def _functions(model: Any) -> tuple[Encode, Encode] | None:
    """Returns the functions that encode images and texts; `None` for an object of an unknown kind."""
    if all(callable(getattr(model, name, None)) for name in ENCODES):
        return model.encode_images, model.encode_texts
    parts = model if isinstance(model, tuple) and model else (model,)
    if all(hasattr(parts[0], name) for name in OPEN_CLIP) and not hasattr(parts[0], "get_image_features"):
        # The third value of open_clip.create_model_and_transforms is not a tokenizer, but a second transform.
        if len(parts) != 3 or hasattr(parts[2], "transforms"):
            raise ValueError(
                f"{type(parts[0]).__name__}: found {', '.join(type(part).__name__ for part in parts)}, expected "
                "(model, preprocess, tokenizer). `model, _, preprocess = open_clip.create_model_and_transforms(NAME)` "
                "and `open_clip.get_tokenizer(NAME)` make them."
            )
        return _open_clip_functions(*parts)
    packages = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    if hasattr(model, "mteb_model_meta"):
        return partial(_mteb_encode, model, "image"), partial(_mteb_encode, model, "text")
    if hasattr(model, "encode") and "sentence_transformers" in packages:
        encode = partial(model.encode, convert_to_numpy=True, show_progress_bar=False)
        return encode, encode
    return None


def _open_clip_functions(model: Any, preprocess: Callable[[Image.Image], torch.Tensor], tokenizer: Any) -> Any:
    device = next(model.parameters()).device
    # In fp16, some weights stay in fp32; the first convolution has the dtype of images.
    first = next((part for part in model.modules() if isinstance(part, nn.Conv2d)), None)
    dtype = None if first is None else first.weight.dtype

    def images(batch: list[Image.Image]) -> torch.Tensor:
        return model.encode_image(torch.stack([preprocess(image) for image in batch]).to(device, dtype))

    def texts(batch: list[str]) -> torch.Tensor:
        return model.encode_text(tokenizer(batch).to(device))

    return images, texts


def _mteb_encode(model: Any, kind: str, batch: list[Any]) -> Any:
    import mteb

    # Models read only a task's prompt. As in MTEB's own SugarCrepe, neither images nor captions are queries.
    task = mteb.get_task("SugarCrepe").metadata
    known = getattr(model.mteb_model_meta, "modalities", (kind,))
    if kind not in known:
        raise ValueError(
            f"{type(model).__name__}: its mteb_model_meta.modalities are {', '.join(known)}, expected image and text. "
            "If it embeds both, set mteb_model_meta.modalities = ['image', 'text'] on the model."
        )
    rows = DataLoader(
        _Rows(kind, batch), batch_size=len(batch), collate_fn=lambda rows: {kind: [row[kind] for row in rows]}
    )
    settings = {"batch_size": len(batch), "show_progress_bar": False}
    return model.encode(rows, task_metadata=task, hf_split="test", hf_subset="default", **settings)


class _Rows(list):
    """A batch as MTEB's models read it: a dataset of rows, with the name of its only column in `features`."""

    def __init__(self, kind: str, cells: Sequence[Any]) -> None:
        super().__init__({kind: cell} for cell in cells)
        self.features = {kind: None}
