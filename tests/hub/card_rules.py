"""What the Hub refuses of a card's metadata, of the rules in its documentation that cards of hfcomp could break."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from huggingface_hub.repocard import REGEX_YAML_BLOCK

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
RELATIONS = ("finetune", "adapter", "merge", "quantized")
LICENSES = ("apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "cc0-1.0", "openrail", "other", "unknown")
TEXTS = ("library_name", "pipeline_tag", "base_model_relation")


def card_errors(content: str) -> list[str]:
    """A message for each rule that a card breaks."""
    block = REGEX_YAML_BLOCK.search(content)
    if block is None:
        return ["no metadata"]
    try:
        data = yaml.safe_load(block[2]) or {}
    except yaml.YAMLError as error:
        return [f"not YAML: {error}"]
    return list(_errors(data)) if isinstance(data, dict) else ["the metadata is no mapping"]


def _errors(data: dict[str, Any]) -> Iterator[str]:
    yield from (f"{key} is empty" for key, value in data.items() if value is None)
    yield from (f"{key} is no text" for key in TEXTS if not isinstance(data.get(key, ""), str))
    for key in ("base_model", "datasets"):
        for entry in _as_list(data.get(key)):
            if not isinstance(entry, str) or not HUB_ID.fullmatch(entry):
                yield f"{key}: {entry!r} is no id"
    if not all(isinstance(tag, str) for tag in _as_list(data.get("tags"))):
        yield "tags are no texts"
    if data.get("base_model_relation", RELATIONS[0]) not in RELATIONS:
        yield "base_model_relation is none of them"
    yield from (f"license {entry!r} is unknown" for entry in _as_list(data.get("license")) if entry not in LICENSES)
    for model in data.get("model-index", ()):
        yield from _index_errors(model)


def _index_errors(model: dict[str, Any]) -> Iterator[str]:
    if not model.get("name") or not model.get("results"):
        yield "model-index has no name or no results"
    for result in model.get("results", ()):
        needed = {"task": ("type",), "dataset": ("name", "type")}
        parts = [(part, key, result.get(part, {}).get(key)) for part, keys in needed.items() for key in keys]
        parts += [
            ("metrics", key, metric.get(key)) for metric in result.get("metrics", ()) for key in ("type", "value")
        ]
        yield from (f"model-index: {part}.{key} is missing" for part, key, value in parts if value in (None, ""))
        if not result.get("metrics"):
            yield "model-index: a result has no metrics"


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
