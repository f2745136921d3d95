"""Opens folders and Hub repositories of sentence-transformers and open_clip, without their code and pickles."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import HfApi, constants, snapshot_download

from hfcomp.devices import default_device
from hfcomp.evaluation.encoding.identity import pipeline_identity
from hfcomp.modeling import read_config
from hfcomp.modeling.backbones import is_dual_encoder
from hfcomp.modeling.weight_checks import OtherNetwork, name_damaged_weights
from hfcomp.reading import read_json
from hfcomp.remote_code import explain_code, find_file, how_to_trust, is_trusted
from hfcomp.store import cache_folder, digest

LIBRARY = "sentence-transformers"
MODULES = "modules.json"
OPEN_CLIP = "open_clip_config.json"
OPEN_CLIP_LIBRARY = "open_clip_torch"  # its name for pip
OPEN_CLIP_PREFIX = "hf-hub:"  # in names of open_clip
_OURS = "sentence_transformers."  # prefix of the module types that the library itself brings
_PICKLED = (".bin", ".pt", ".pth", ".pkl", ".ckpt")


def is_sentence_transformer(place: str | Path) -> bool:
    """Returns whether only sentence-transformers can load a Hub id or folder as an encoder of images and texts.

    Other dual encoders may have its files too, and are loaded by transformers, which hfcomp trains and caches.
    """
    if find_file(place, MODULES) is None:
        return False
    return find_file(place, "config.json") is None or not is_dual_encoder(place, read_config(place))


def load_sentence_transformer(place: str | Path, device: Any = None) -> Any:
    """Loads a Hub id or folder with sentence-transformers.

    Raises:
        ImportError: If sentence-transformers is not installed.
        ValueError: If a module would need code from the repository, or weights are pickled.
    """
    if find_spec("sentence_transformers") is None:
        raise ImportError(f"{place} has {MODULES}, so it needs {LIBRARY}: pip install {LIBRARY}")
    modules = read_json(find_file(place, MODULES))
    if not isinstance(modules, list) or not all(_is_module(module) for module in modules):
        raise ValueError(f"{place}: expected a list in {MODULES}, each entry with idx, type and a path inside.")
    for module in modules:
        if not (is_trusted(place) or str(module["type"]).startswith(_OURS)):
            raise ValueError(
                f"{place}: module {module['idx']} in {MODULES} has the type {module['type']!r}, which is code from "
                f"outside {LIBRARY}. It is not run. Load the model yourself and pass the object to hfcomp.evaluate(). "
                f"{how_to_trust(place)}"
            )
    folders = {str(module["path"]) for module in modules}
    pickled = [name for name in _files(place) if _is_pickled(name, folders)]
    if pickled:
        raise ValueError(
            f"{place}: {pickled[0]} is a pickle, which may run code when it is read. If you trust it, load the model "
            "with sentence-transformers and write safetensors with model.save_pretrained(FOLDER)."
        )
    from sentence_transformers import SentenceTransformer

    settings = {"trust_remote_code": is_trusted(place), "model_kwargs": {"use_safetensors": True}}
    with name_damaged_weights(place), explain_code(place):
        return SentenceTransformer(str(place), device=None if device is None else str(device), **settings)


def open_open_clip(place: str | Path, device: Any = None) -> Path | tuple[Any, Any, Any] | None:
    """Opens an open_clip folder or Hub id; returns `None` for any other.

    Returns:
        The folder, in the cache, of a converted model that transformers loads; for a network that transformers does
        not have, open_clip's model, image transform and tokenizer.

    Raises:
        ImportError: If only open_clip has the network, and it is not installed.
        ValueError: If the weights are pickled, or do not fit the network.
    """
    if find_file(place, "config.json") is not None or find_file(place, OPEN_CLIP) is None:
        return None
    folder = cache_folder("converted") / digest(pipeline_identity(place, OPEN_CLIP).encode()).hex()
    if (folder / "config.json").is_file():
        return folder
    weights = _safetensors(place)
    try:
        # By name, because conversion builds on evaluation.
        import_module("hfcomp.convert").convert_checkpoint(weights, folder)
    except OtherNetwork as reason:
        return _load_with_open_clip(place, weights, device, reason)
    return folder


def _safetensors(place: str | Path) -> Path:
    """Locates the weights of an open_clip folder; downloads them, with its JSON and text files, from the Hub."""
    names = [name for name in _files(place) if name.endswith(".safetensors") and "/" not in name]
    if not names:
        raise ValueError(
            f"{place} is an open_clip model whose weights are a pickle. Convert it first: hfcomp convert {place} "
            f"--output {Path(place).name}-transformers"
        )
    name = import_module("hfcomp.convert.checkpoint_file").choose_weights(names, str(place))
    if Path(place).is_dir():
        return Path(place) / name
    return Path(snapshot_download(str(place), allow_patterns=[name, "*.json", "*.txt", "*.model"])) / name


def _load_with_open_clip(place: str | Path, weights: Path, device: Any, reason: OtherNetwork) -> tuple[Any, Any, Any]:
    # As a part of `tokenizer_kwargs`, open_clip would pass it to transformers.
    if "trust_remote_code" in json.dumps(read_json(weights.parent / OPEN_CLIP)):
        raise ValueError(f"{place}: {OPEN_CLIP} sets trust_remote_code. No code from the repository is run.")
    if find_spec("open_clip") is None:
        raise ImportError(f"{place}: {reason} Evaluation needs open_clip: pip install {OPEN_CLIP_LIBRARY}") from reason
    import open_clip

    local = f"local-dir:{weights.parent}"
    # Neither a pickle next to the weights nor pretrained weights of a single tower are read.
    unread = {"load_weights": False, "pretrained_image": False, "pretrained_text": False}
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it warns that the weights are random
    try:
        where = device or default_device()
        model, _, preprocess = open_clip.create_model_and_transforms(local, device=where, **unread)
        open_clip.load_checkpoint(model, str(weights))
        tokenizer = open_clip.get_tokenizer(local if Path(place).is_dir() else f"{OPEN_CLIP_PREFIX}{place}")
    except Exception as error:  # of any type, because the configuration is someone else's
        raise ValueError(f"{place}: {reason} open_clip cannot load it either: {error}") from error
    finally:
        logging.disable(level)
    return model.eval(), preprocess, tokenizer


def _is_module(entry: Any) -> bool:
    if not isinstance(entry, dict) or not {"idx", "type", "path"} <= set(entry):
        return False
    path = PurePosixPath(str(entry["path"]))
    return not path.is_absolute() and ".." not in path.parts


def _is_pickled(name: str, folders: Iterable[str]) -> bool:
    path = PurePosixPath(name)
    return path.suffix in _PICKLED and ("" if str(path.parent) == "." else str(path.parent)) in folders


def _files(place: str | Path) -> list[str]:
    if Path(place).is_dir():
        return [path.relative_to(place).as_posix() for path in Path(place).rglob("*") if path.is_file()]
    if constants.HF_HUB_OFFLINE:  # only what is in the cache can be loaded
        return _files(snapshot_download(str(place)))
    return HfApi().list_repo_files(str(place))
