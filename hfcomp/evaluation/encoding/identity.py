"""Hashes that identify a model's weights."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, WEIGHTS_NAME, cached_file
from transformers.utils.hub import extract_commit_hash

from hfcomp.checksums import file_hash
from hfcomp.modeling import base_of_adapter
from hfcomp.remote_code import code_identity

PIPELINE_CONFIG = "model_index.json"
"""Configuration file of a diffusers pipeline, with its class and its parts."""
ORIGIN = ("_name_or_path", "transformers_version", "base_model_name_or_path", "peft_version")
"""Configuration entries that do not change embeddings."""


def identity(place: str | Path) -> str:
    """Returns the hash of a folder's weights and configuration, or the revision of a Hub model.

    An adapter has its own identity combined with its base's, at the revision that it names.
    """
    base = base_of_adapter(place)
    if base is None:
        return _own(place, CONFIG_NAME, None)
    return f"{_own(place, ADAPTER_CONFIG_NAME, None)} on {_own(base.source, CONFIG_NAME, base.revision)}"


def pipeline_identity(place: str | Path, config: str = PIPELINE_CONFIG) -> str:
    """Returns the hash of the weights and configurations in a pipeline's folder, or the revision of a Hub pipeline.

    `config` is the name of the file that makes a folder a pipeline.

    Raises:
        OSError: If there is no pipeline.
    """
    folder = Path(place)
    if not folder.is_dir():
        return f"revision {extract_commit_hash(cached_file(str(place), config), None)}"
    if not (folder / config).is_file():
        raise FileNotFoundError(f"{folder} has no {config}.")
    parts = sorted(path for path in folder.rglob("*") if path.suffix in (".json", ".safetensors", ".txt", ".py"))
    # Relative paths are included, because the parts of a pipeline may have files with equal names.
    lines = "".join(f"{path.relative_to(folder).as_posix()} {file_hash(path)}\n" for path in parts)
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()[:16]}"


def weights_hash(place: str | Path) -> str:
    """Returns a short hash of a model's weights: `sha256:` and 16 digits of `cat *.safetensors | sha256sum`.

    Args:
        place: Folder, whose `*.safetensors` are read in the order of their names, or a single file.

    Raises:
        ValueError: If there is no such file.
    """
    place = Path(place)
    files = [place] if place.is_file() else sorted(place.glob("*.safetensors"))
    if not files:
        raise ValueError(
            f"{place}: found no *.safetensors. Pass the folder that save_pretrained wrote. The weights of a Hub model "
            "are identified by its revision."
        )
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            hashlib.file_digest(stream, lambda: digest)
    return f"sha256:{digest.hexdigest()[:16]}"


def _own(place: str | Path, config: str, revision: str | None) -> str:
    folder, code = Path(place), code_identity(place)
    if not folder.is_dir():
        return f"revision {extract_commit_hash(cached_file(str(place), config, revision=revision), None)}"
    if commit := getattr(place, "revision", ""):
        return f"revision {commit}{code}"
    # transformers loads pickled weights only if there are no safetensors.
    pickled = folder / WEIGHTS_NAME
    weights = weights_hash(pickled if pickled.is_file() and not any(folder.glob("*.safetensors")) else folder)
    return f"{weights} config {_settings(folder / config)}{code}"


def _settings(path: Path) -> str:
    """Returns a short hash of a configuration without `ORIGIN`."""
    settings = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in settings.items() if name not in ORIGIN}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]
