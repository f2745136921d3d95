"""Hashes that identify a model's weights."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, WEIGHTS_NAME, cached_file
from transformers.utils.hub import extract_commit_hash

from hfcomp.evaluation.results import weights_hash
from hfcomp.modeling import base_of_adapter

ORIGIN = ("_name_or_path", "transformers_version", "base_model_name_or_path", "peft_version")
"""Entries of configurations that change no embedding."""


def identity(place: str | Path) -> str:
    """The hash of a folder's weights and configuration, or the revision of a model of the Hub.

    Of an adapter, both its own and its base's, at the revision that it names.

    Args:
        place: folder or Hub id.
    """
    base = base_of_adapter(place)
    if base is None:
        return _own(place, CONFIG_NAME, None)
    return f"{_own(place, ADAPTER_CONFIG_NAME, None)} on {_own(base.place, CONFIG_NAME, base.revision)}"


def _own(place: str | Path, config: str, revision: str | None) -> str:
    folder = Path(place)
    if not folder.is_dir():
        return f"revision {extract_commit_hash(cached_file(str(place), config, revision=revision), None)}"
    pickled = folder / WEIGHTS_NAME
    weights = weights_hash(pickled if pickled.is_file() and not any(folder.glob("*.safetensors")) else folder)
    return f"{weights} config {_settings(folder / config)}"


def _settings(path: Path) -> str:
    """Short hash of a configuration, without its origin."""
    settings = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in settings.items() if name not in ORIGIN}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]
