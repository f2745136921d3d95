"""Opens folders and Hub repositories of sentence-transformers and open_clip, without their code and pickles."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import HfApi

from hfcomp.evaluation.encoding.identity import pipeline_identity
from hfcomp.modeling import read_config
from hfcomp.modeling.backbones import is_dual_encoder
from hfcomp.reading import read_json
from hfcomp.remote_code import explain_code, find_file, how_to_trust, is_trusted
from hfcomp.store import cache_folder, digest

LIBRARY = "sentence-transformers"
MODULES = "modules.json"
OPEN_CLIP = "open_clip_config.json"
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
    with explain_code(place):
        return SentenceTransformer(str(place), device=None if device is None else str(device), **settings)


def convert_open_clip(place: str | Path) -> Path | None:
    """Converts an open_clip folder or Hub id, in the cache, to one that transformers loads; `None` for any other.

    Raises:
        ValueError: If its weights are pickled, or transformers does not have its network.
    """
    place = str(place).removeprefix(OPEN_CLIP_PREFIX)
    if find_file(place, "config.json") is not None or find_file(place, OPEN_CLIP) is None:
        return None
    if not any(name.endswith(".safetensors") for name in _files(place)):
        raise ValueError(
            f"{place} is an open_clip model whose weights are a pickle. Convert it first: hfcomp convert {place} "
            f"--output {Path(place).name}-transformers"
        )
    folder = cache_folder("converted") / digest(pipeline_identity(place, OPEN_CLIP).encode()).hex()
    if not (folder / "config.json").is_file():
        # By name, because conversion builds on evaluation.
        import_module("hfcomp.convert").convert_checkpoint(place, folder)
    return folder


def describe_library() -> str:
    """Returns the library with its version."""
    return f"{LIBRARY} {version(LIBRARY)}"


def _is_pickled(name: str, folders: Iterable[str]) -> bool:
    path = PurePosixPath(name)
    return path.suffix in _PICKLED and ("" if str(path.parent) == "." else str(path.parent)) in folders


def _files(place: str | Path) -> list[str]:
    if Path(place).is_dir():
        return [path.relative_to(place).as_posix() for path in Path(place).rglob("*") if path.is_file()]
    return HfApi().list_repo_files(str(place))
