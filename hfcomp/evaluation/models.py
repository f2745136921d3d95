"""Opens a user's models as encoders, by the kind of model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as _KNOWN

from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.embedded import Encoder
from hfcomp.evaluation.encoding.identity import identity, pipeline_identity
from hfcomp.evaluation.encoding.objects import ObjectEncoder, can_encode
from hfcomp.evaluation.encoding.other_folders import (
    LIBRARY,
    MODULES,
    OPEN_CLIP,
    OPEN_CLIP_LIBRARY,
    OPEN_CLIP_PREFIX,
    is_sentence_transformer,
    load_sentence_transformer,
    open_open_clip,
)
from hfcomp.evaluation.pairs.heads import Blip2Matcher, FlavaMatcher, ViltMatcher
from hfcomp.evaluation.pairs.items import PairScorer
from hfcomp.evaluation.pairs.models import BlipMatcher, PairModel, VQAScorer
from hfcomp.evaluation.pairs.options import PAPER, PairOptions
from hfcomp.modeling import base_of_adapter, read_config
from hfcomp.options import place_of
from hfcomp.reading import check_place

_MATCHERS: Mapping[str, type[PairModel]] = {
    "BlipForImageTextRetrieval": BlipMatcher,
    "Blip2ForImageTextRetrieval": Blip2Matcher,
    "FlavaForPreTraining": FlavaMatcher,
    "ViltForImageAndTextRetrieval": ViltMatcher,
}
_ALSO_ENCODERS = ("FlavaForPreTraining",)  # their checkpoints are dual encoders, unless `matching_head` names them


def pair_model(place: str | Path, *, by_head: bool = False) -> type[PairModel] | None:
    """Returns the class that scores a Hub id or folder pair by pair; `None` for other models, such as dual encoders.

    Only the configuration is read: `architectures`, or `model_type` if it lists none.
    """
    folder = Path(place)
    # A folder without a configuration fails with its own error when it is loaded.
    if (folder.is_dir() and not (folder / "config.json").is_file()) or base_of_adapter(place) is not None:
        return None
    config = read_config(place)
    if "AutoModelForImageTextToText" in (getattr(config, "auto_map", None) or ()):  # a class of the repository
        return VQAScorer
    # Architectures take precedence because one `model_type`, such as blip, has heads for several tasks.
    return _pair_class(getattr(config, "architectures", None) or [_KNOWN.get(config.model_type)], by_head)


def _pair_class(names: Iterable[str | None], by_head: bool) -> type[PairModel] | None:
    """Returns the class that scores a model, by the names of the model's classes."""
    for name in names:
        if name in _MATCHERS and (by_head or name not in _ALSO_ENCODERS):
            return _MATCHERS[name]
        if name in _KNOWN.values():
            return VQAScorer
    return None


def open_encoders(models: Iterable[Any], heads: Iterable[bool], pairs: PairOptions, **settings: Any) -> list[Any]:
    """Opens models with `open_encoder`, the i-th one by its matching head if `heads[i]`.

    Raises ValueError also if an option of `pairs` has no effect on these models.
    """
    encoders, asked = [], []
    for model, by_head in zip(models, heads, strict=True):
        encoder = open_encoder(model, by_head=by_head, **settings)
        if by_head and type(encoder) not in _MATCHERS.values():
            expected = " or ".join(_MATCHERS)
            raise ValueError(
                f"matching_head: {place_of(model)} has no matching head, expected a {expected}. Remove the name."
            )
        if isinstance(encoder, VQAScorer) and encoder is not model:  # the caller's own scorer has its own question
            asked.append(encoder.ask(pairs))
        encoders.append(encoder)
    if not asked and replace(pairs, matching_head=()) != PAPER:
        raise ValueError("vqa_prompt and vqa_answer have no effect: no model is scored with VQAScore. Remove them.")
    return encoders


def open_encoder(model: Any, *, cache: EmbeddingCache, by_head: bool = False, **settings: Any) -> Encoder | PairScorer:
    """Opens a model for scoring: a Hub id or folder, a module, a pair of a module and its processor, or an encoder.

    The configuration, or a module's class, decides: a dual encoder becomes an `Embedder`, a model that reads image and
    text together a `PairModel`. An encoder is used as it is. Embeddings of a module are kept only in memory, because
    its weights may change. `settings` are those of `Embedder`.
    """
    if isinstance(model, str | Path):
        return _open_place(_without_prefix(model), cache=cache, by_head=by_head, **settings)
    # Recognized by its methods, because a user's encoder needs no base class.
    if hasattr(model, "index_images") or hasattr(model, "score_pairs"):
        return model
    if can_encode(model):
        return _open_object(model, settings)
    module, processor = model if isinstance(model, tuple) else (model, None)
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"models: found a {type(module).__name__}, expected a Hub id, a folder, a transformers model, a pair of "
            "a model and its processor, or an encoder with index_images and index_texts, or with score_pairs."
        )
    plain = getattr(module, "_orig_mod", module)  # set by torch.compile
    plain = plain.get_base_model() if hasattr(plain, "get_base_model") else plain
    kind = _pair_class([base.__name__ for base in type(plain).__mro__], by_head=True) or Embedder
    # Each call has its own in-memory cache, because a module's weights may change between two calls.
    return kind(module, processor, cache=EmbeddingCache(), **settings)


def _without_prefix(place: str | Path) -> str | Path:
    # A pinned place stays as it is: a copy would not be trusted.
    return str(place).removeprefix(OPEN_CLIP_PREFIX) if str(place).startswith(OPEN_CLIP_PREFIX) else place


def _open_place(place: str | Path, *, cache: EmbeddingCache, by_head: bool, **settings: Any) -> Encoder | PairScorer:
    check_device(settings["device"])
    check_place(place)
    with _name_place(place):
        if is_sentence_transformer(place):
            model = load_sentence_transformer(place, settings["device"])
            return _open_object(model, settings, library=LIBRARY, weights=pipeline_identity(place, MODULES))
        opened = open_open_clip(place, settings["device"])
    if isinstance(opened, tuple):
        return _open_object(opened, settings, library=OPEN_CLIP_LIBRARY, weights=pipeline_identity(place, OPEN_CLIP))
    encoder = _open(opened or place, partial(pair_model, by_head=by_head), cache=cache, **settings)
    if opened is not None:
        encoder.facts = {"library": "transformers, converted from open_clip", "weights": identity(opened)}
    return encoder


def _open_object(model: Any, settings: Mapping[str, Any], *, library: str = "", weights: str = "") -> ObjectEncoder:
    encoder = ObjectEncoder(model, batch_size=settings["batch_size"], split=settings["split"])
    if library:
        encoder.facts = {"library": f"{library} {version(library)}", "weights": weights}
    return encoder


def open_embedder(place: str | Path, **settings: Any) -> Embedder:
    """Opens an `Embedder` for a Hub id or folder that a user named.

    Raises ValueError for a place without a model, a model that is not a dual encoder, or a missing device.
    """
    return _open(place, lambda _: None, **settings)


def _open(place: str | Path, kind: Callable[[str | Path], type[PairModel] | None], **settings: Any) -> Any:
    check_device(settings.get("device"))
    check_place(place)
    with _name_place(place):
        return (kind(place) or Embedder)(place, **settings)


@contextmanager
def _name_place(place: str | Path) -> Iterator[None]:
    """Turns the errors of libraries about a place's files into `ValueError` with its name."""
    try:
        yield
    except OSError as error:  # transformers explains ids that are not on the Hub or gated, and folders without a model
        where = ":" if os.path.isdir(place) else " is not a local folder, and as a Hub id:"
        raise ValueError(f"{place}{where} {error}") from error
    except RecursionError as error:
        raise ValueError(f"{place}: one of its JSON files is nested too deeply to read.") from error
    except Exception as error:
        # The tokenizers library has no type of its own for damaged files.
        if type(error) is not Exception:
            raise
        raise ValueError(f"{place}: {error}") from error


def describe_model(model: Any, encoder: Any) -> dict[str, Any]:
    """Returns a model's entry in `results.json`: its place, its weights, and how it reads texts or scores pairs."""
    tokenizer, facts = getattr(encoder, "tokenizer", None), getattr(encoder, "facts", {})
    texts = {} if tokenizer is None else {"texts": tokenizer.preparation}
    weights = facts.get("weights")
    if weights is None:
        in_memory = not isinstance(model, str | Path)
        weights = f"of a {type(model).__name__} in memory" if in_memory else identity(_without_prefix(model))
    return {"path": place_of(model), "weights": weights, **texts, **facts, **getattr(model, "facts", {})}


def check_device(device: Any) -> None:
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device: {device!r} cannot be used here: {str(error).splitlines()[0]}") from error
