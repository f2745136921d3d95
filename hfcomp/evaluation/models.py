"""Opens a user's models as encoders, by the kind of model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.embedded import Encoder
from hfcomp.evaluation.encoding.identity import identity, pipeline_identity
from hfcomp.evaluation.encoding.objects import ObjectEncoder, can_encode
from hfcomp.evaluation.encoding.other_folders import (
    MODULES,
    convert_open_clip,
    describe_library,
    is_sentence_transformer,
    load_sentence_transformer,
)
from hfcomp.evaluation.pairs.heads import Blip2Matcher, ViltMatcher
from hfcomp.evaluation.pairs.items import PairScorer
from hfcomp.evaluation.pairs.models import BlipMatcher, PairModel, VQAScorer
from hfcomp.modeling import base_of_adapter, read_config
from hfcomp.options import place_of
from hfcomp.reading import check_place

_MATCHERS: Mapping[str, type[PairModel]] = {
    "BlipForImageTextRetrieval": BlipMatcher,
    "Blip2ForImageTextRetrieval": Blip2Matcher,
    "ViltForImageAndTextRetrieval": ViltMatcher,
}


def pair_model(place: str | Path) -> type[PairModel] | None:
    """Returns the class that scores a Hub id or folder pair by pair; `None` for other models, such as dual encoders.

    Only the configuration is read: `architectures`, or `model_type` if it lists none.
    """
    folder = Path(place)
    # A folder without a configuration fails with its own error when it is loaded.
    if (folder.is_dir() and not (folder / "config.json").is_file()) or base_of_adapter(place) is not None:
        return None
    return pair_model_class(read_config(place))


def pair_model_class(config: Any) -> type[PairModel] | None:
    # Architectures take precedence because one `model_type`, such as blip, has heads for several tasks.
    names = set(getattr(config, "architectures", None) or ())
    known = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    for name in names & set(_MATCHERS):
        return _MATCHERS[name]
    own = "AutoModelForImageTextToText" in (getattr(config, "auto_map", None) or ())  # a class of the repository
    if own or names & set(known.values()) or (not names and known.get(getattr(config, "model_type", "")) is not None):
        return VQAScorer
    return None


def open_encoder(model: Any, *, cache: EmbeddingCache, **settings: Any) -> Encoder | PairScorer:
    """Opens a model for scoring: a Hub id or folder, a module, a pair of a module and its processor, or an encoder.

    The model's configuration decides: a dual encoder becomes an `Embedder`, a model that reads image and text together
    a `PairModel`. An encoder is used as it is. Embeddings of a module are kept only in memory, because its weights may
    change. `settings` are those of `Embedder`.
    """
    if isinstance(model, str | Path):
        check_place(model)
        if is_sentence_transformer(model):
            return _open_sentence_transformer(model, **settings)
        folder = convert_open_clip(model)
        encoder = _open(folder or model, pair_model, cache=cache, **settings)
        if folder is not None:
            encoder.facts = {"library": "open_clip, converted", "weights": identity(folder)}
        return encoder
    # Recognized by its methods, because a user's encoder needs no base class.
    if hasattr(model, "index_images") or hasattr(model, "score_pairs"):
        return model
    if can_encode(model):
        return ObjectEncoder(model, batch_size=settings["batch_size"], split=settings["split"])
    module, processor = model if isinstance(model, tuple) else (model, None)
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"models: found a {type(module).__name__}, expected a Hub id, a folder, a transformers model, a pair of "
            "a model and its processor, or an encoder with index_images and index_texts, or with score_pairs."
        )
    kind = pair_model_class(getattr(module, "config", None)) or Embedder
    # Each call has its own in-memory cache, because a module's weights may change between two calls.
    return kind(module, processor, cache=EmbeddingCache(), **settings)


def _open_sentence_transformer(place: str | Path, **settings: Any) -> ObjectEncoder:
    check_device(settings["device"])
    model = load_sentence_transformer(place, settings["device"])
    encoder = ObjectEncoder(model, batch_size=settings["batch_size"], split=settings["split"])
    encoder.facts = {"library": describe_library(), "weights": pipeline_identity(place, MODULES)}
    return encoder


def open_embedder(place: str | Path, **settings: Any) -> Embedder:
    """Opens an `Embedder` for a Hub id or folder that a user named.

    Raises ValueError for a place without a model, a model that is not a dual encoder, or a missing device.
    """
    return _open(place, lambda _: None, **settings)


def _open(place: str | Path, kind: Callable[[str | Path], type[PairModel] | None], **settings: Any) -> Any:
    check_device(settings.get("device"))
    check_place(place)
    try:
        return (kind(place) or Embedder)(place, **settings)
    except OSError as error:  # transformers explains ids that are not on the Hub or gated, and folders without a model
        where = "" if os.path.isdir(place) else "is not a local folder, and as a Hub id: "
        raise ValueError(f"{place} {where}{error}") from error


def describe_model(model: Any, encoder: Any) -> dict[str, Any]:
    """Returns a model's entry in `results.json`: its place, its weights, and how it reads texts or scores pairs."""
    tokenizer, facts = getattr(encoder, "tokenizer", None), getattr(encoder, "facts", {})
    texts = {} if tokenizer is None else {"texts": tokenizer.preparation}
    weights = facts.get("weights")
    if weights is None:
        weights = identity(model) if isinstance(model, str | Path) else f"of a {type(model).__name__} in memory"
    return {"path": place_of(model), "weights": weights, **texts, **facts, **getattr(model, "facts", {})}


def check_device(device: Any) -> None:
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device: {device!r} cannot be used here: {str(error).splitlines()[0]}") from error
