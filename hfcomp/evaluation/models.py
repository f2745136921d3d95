"""The encoders that score with the models of users, by the kind of model."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.embedded import Encoder
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.evaluation.pairs.items import PairScorer
from hfcomp.evaluation.pairs.models import BlipMatcher, PairModel, VQAScorer
from hfcomp.modeling import base_of_adapter
from hfcomp.options import place_of
from hfcomp.reading import check_place

_MATCHER = "BlipForImageTextRetrieval"


def pair_model(place: str | Path) -> type[PairModel] | None:
    """What scores the model of a Hub id or folder pair by pair; `None` for any other, such as a dual encoder.

    Only the configuration is read: `architectures`, and where it names none `model_type`. Remote code is never run.
    """
    folder = Path(place)
    # A folder without a configuration fails with its own message when it is loaded.
    if (folder.is_dir() and not (folder / "config.json").is_file()) or base_of_adapter(place) is not None:
        return None
    return kind_of(AutoConfig.from_pretrained(place, trust_remote_code=False))


def kind_of(config: Any) -> type[PairModel] | None:
    # Architectures take precedence: one `model_type`, such as blip, has heads for several tasks.
    names = set(getattr(config, "architectures", None) or ())
    known = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    if _MATCHER in names:
        return BlipMatcher
    if names & set(known.values()) or (not names and known.get(getattr(config, "model_type", "")) is not None):
        return VQAScorer
    return None


def open_encoder(model: Any, *, cache: EmbeddingCache, **settings: Any) -> Encoder | PairScorer:
    """What scores with a model: a Hub id or folder, a module alone or paired with its processor, or an encoder.

    A dual encoder becomes an `Embedder`, a model that reads image and text together a `PairModel`, by its
    configuration. An encoder is used as it is; what is stored of a module, whose weights may change, is kept in memory
    only. `settings` are those of `Embedder`.
    """
    if isinstance(model, str | Path):
        return _open(model, pair_model, cache=cache, **settings)
    # Tested by its methods: a user's encoder needs no base class.
    if hasattr(model, "index_images") or hasattr(model, "score_pairs"):
        return model
    module, processor = model if isinstance(model, tuple) else (model, None)
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"models: found a {type(module).__name__}, expected a Hub id, a folder, a model of transformers, a pair "
            "of a model and its processor, or an encoder with index_images and index_texts, or with score_pairs."
        )
    kind = kind_of(getattr(module, "config", None)) or Embedder
    # Each call has its own cache in memory, because the weights of a module may change between two calls.
    return kind(module, processor, cache=EmbeddingCache(), **settings)


def open_embedder(place: str | Path, **settings: Any) -> Embedder:
    """An `Embedder` of a Hub id or folder that a user named.

    Raises ValueError for a place without a model, a model that is not a supported dual encoder, or a device that is
    not there.
    """
    return _open(place, lambda _: None, **settings)


def _open(place: str | Path, kind: Callable[[str | Path], type[PairModel] | None], **settings: Any) -> Any:
    check_device(settings.get("device"))
    check_place(place)
    try:
        return (kind(place) or Embedder)(place, **settings)
    except OSError as error:  # transformers' own words on what is not on the Hub, gated or no model's folder
        where = "" if os.path.isdir(place) else "is not a local folder, and as a Hub id: "
        raise ValueError(f"{place} {where}{error}") from error


def describe_model(model: Any, encoder: Any) -> dict[str, Any]:
    """What `results.json` says of a model: where it is, its weights, and how it reads texts or scores pairs."""
    weights = identity(model) if isinstance(model, str | Path) else f"of a {type(model).__name__} in memory"
    tokenizer = getattr(encoder, "tokenizer", None)
    texts = {} if tokenizer is None else {"texts": tokenizer.preparation}
    return {"path": place_of(model), "weights": weights, **texts, **getattr(encoder, "facts", {})}


def check_device(device: Any) -> None:
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device: {device!r} cannot be used here: {str(error).splitlines()[0]}") from error
