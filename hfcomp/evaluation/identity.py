"""What tells a model's weights from others."""

from __future__ import annotations

from pathlib import Path

from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, WEIGHTS_NAME, cached_file
from transformers.utils.hub import extract_commit_hash

from hfcomp.evaluation.results import weights_hash
from hfcomp.modeling import base_of_adapter


def identity(place: str | Path) -> str:
    """The hash of a folder's weights, or the revision of a model of the Hub; of an adapter, both its and its base's.

    Args:
        place: folder or Hub id.
    """
    base = base_of_adapter(place)
    if base is None:
        return _own(place, CONFIG_NAME)
    return f"{_own(place, ADAPTER_CONFIG_NAME)} on {identity(base)}"


def _own(place: str | Path, config: str) -> str:
    folder = Path(place)
    if not folder.is_dir():
        return f"revision {extract_commit_hash(cached_file(str(place), config), None)}"
    pickled = folder / WEIGHTS_NAME
    return weights_hash(pickled if pickled.is_file() and not any(folder.glob("*.safetensors")) else folder)
