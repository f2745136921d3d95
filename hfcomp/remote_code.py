"""Models at a pinned commit, and the Python code in their repositories, which runs only if the user trusts it.

A Hub id becomes the local folder of one commit, a [`Pinned`], and nothing else can be trusted. Converted to a plain
string or path, it is no longer trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from hfcomp.checksums import file_hash
from hfcomp.options import Options
from hfcomp.reading import read_json, split_revision

# Key under which a file of a model names classes that are code.
_NAMED_BY = {
    **dict.fromkeys(("config.json", "tokenizer_config.json"), "auto_map"),
    **dict.fromkeys(("processor_config.json", "preprocessor_config.json"), "auto_map"),
    "modules.json": "type",
}
# Weights that nothing here reads, and that double a download.
_UNREAD = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt", "*.h5", "*.msgpack", "*.onnx*", "*.gguf")


@dataclass(kw_only=True)
class RevisionOptions(Options):
    """Revision and code of models."""

    revision: Annotated[
        str | None, "Branch, tag or commit of the Hub model. With several Hub models, write each as ID@REVISION."
    ] = None
    trust_remote_code: Annotated[
        bool, "Run the Python code in model repositories and folders. A Hub model needs a commit of 40 digits."
    ] = False


class Pinned(str):
    """Local folder of a model that the user named as `source`, at a commit `revision` (empty for a folder)."""

    source: str
    revision: str
    trusted: bool

    @property
    def facts(self) -> dict[str, Any]:
        """The entries of `results.json`: the commit, and the SHA-256 of each Python file that has run."""
        modules = [module for name, module in list(sys.modules.items()) if name.startswith("transformers_modules.")]
        # transformers runs a copy. Compared by content, a file counts only if the copy that ran is equal to it.
        ran = {file_hash(Path(module.__file__)) for module in modules if getattr(module, "__file__", None)}
        code = {name: sha256 for name, sha256 in _python_files(self).items() if self.trusted and sha256 in ran}
        return ({"revision": self.revision} if self.revision else {}) | ({"remote_code": code} if code else {})


def pin(models: Sequence[Any], revision: str | None = None, *, trust: bool = False) -> list[Any]:
    """Downloads Hub models at a revision, and marks them and, with `trust`, local folders as [`Pinned`].

    Other models, such as objects, are returned as they are. All revisions are checked before anything is downloaded.

    Args:
        models: Hub ids, `ID@REVISION`, folders or objects.
        revision: Revision of the Hub ids without their own.
        trust: Whether code in repositories and folders may run. Every Hub id then needs a commit.

    Raises:
        ValueError: If a revision has no effect, is not a commit or cannot be downloaded, or names code in another
            repository.
    """
    split = [split_revision(str(model)) if isinstance(model, str | Path) else ("", "") for model in models]
    split = [(source, own or revision) for source, own in split]
    hub = [(source, commit) for source, commit in split if source and not os.path.exists(source)]
    if revision and not hub:
        raise ValueError(f"revision: found {revision!r}, but no Hub model: a folder has no revision. Remove it.")
    for source, commit in hub if trust else ():
        if not re.fullmatch("[0-9a-f]{40}", commit or ""):
            raise ValueError(
                f"{source}: found {f'the revision {commit!r}' if commit else 'no revision'}, expected a commit of 40 "
                "digits with --trust_remote_code, because a branch or tag may get other code later. Read the code, "
                f"then write {source}@{_commit(source, commit)}"
            )
    return [_pin(model, *place, trust) if place[0] else model for model, place in zip(models, split, strict=True)]


def load_pretrained(kind: Any, place: str | Path, **settings: Any) -> Any:
    """Calls `kind.from_pretrained`; the code of a repository runs only for a trusted [`Pinned`].

    Raises:
        ValueError: If other code would be needed; the message says how to run it.
    """
    try:
        return kind.from_pretrained(place, trust_remote_code=is_trusted(place), **settings)
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        code = "; ".join(f"{name} names {', '.join(classes)}" for name, classes in _code(place).items())
        raise ValueError(
            f"{place} needs Python code from its repository, which is not run: {code}. {how_to_trust(place)}, or load "
            "the model yourself and pass the object. Only an object can be trained, or be the base of an adapter."
        ) from error


def is_trusted(place: Any) -> bool:
    return isinstance(place, Pinned) and place.trusted


def how_to_trust(place: str | Path) -> str:
    """Returns the command that runs the code of a repository, with the commit of its files."""
    commit = getattr(place, "revision", "") or ("" if os.path.isdir(place) else _commit(str(place), None))
    pinned = f" --revision {commit}" if commit else ""
    source = getattr(place, "source", place)
    return f"If you have read and trust the code: hfcomp evaluate {source} --trust_remote_code{pinned}"


def code_notes(models: Sequence[Any]) -> list[str]:
    """Returns a note for each model whose own code runs."""
    places = {
        f"{model.source}{model.revision and f' at {model.revision}'}" for model in models if code_identity(model)
    }
    return [f"{place}: its own code runs (--trust_remote_code)" for place in sorted(places)]


def code_identity(place: Any) -> str:
    """Returns a hash of a model's trusted code, or nothing. Embeddings of other code are stored separately."""
    files = _python_files(place) if is_trusted(place) else {}
    return f" code sha256:{hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]}" if files else ""


def model_class(place: str | Path, config: Any) -> Any:
    """Returns the class that `AutoModel` loads, or None. Imports trusted code."""
    from transformers import MODEL_MAPPING
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    name = (getattr(config, "auto_map", None) or {}).get("AutoModel")
    trusted = name and is_trusted(place)
    return get_class_from_dynamic_module(name, str(place)) if trusted else MODEL_MAPPING.get(type(config), None)


def _pin(model: Any, source: str, revision: str | None, trust: bool) -> Any:
    is_folder = os.path.exists(source)
    if not (trust if is_folder else revision):
        return model
    pinned = Pinned(source if is_folder else _download(source, revision))
    pinned.source, pinned.revision, pinned.trusted = source, "" if is_folder else Path(pinned).name, trust
    others = [f"{name} names {code}" for name, codes in _code(pinned).items() for code in codes if "--" in code]
    if (Path(pinned) / "modules.json").is_file():  # sentence-transformers would extend the trust to an adapter's base
        others += [f"{path.name} names a base model" for path in Path(pinned).rglob("adapter_config.json")]
    if trust and others:
        raise ValueError(
            f"{source}: {others[0]}, which is in another repository, so no revision pins its code. It is not run. "
            "Load the model yourself and pass the object to hfcomp.evaluate()."
        )
    return pinned


def _download(source: str, revision: str | None) -> str:
    from huggingface_hub import snapshot_download

    try:
        return snapshot_download(source.rpartition(":")[2], revision=revision, ignore_patterns=_UNREAD)
    except (OSError, ValueError) as error:  # no such model or revision, gated, or no connection
        raise ValueError(f"{source} at {revision} cannot be downloaded: {' '.join(str(error).split())}") from error


def _commit(source: str, revision: str | None) -> str:
    from transformers.utils.hub import extract_commit_hash

    paths = (_find(source, name, revision) for name in _NAMED_BY)
    return next((str(extract_commit_hash(path, None)) for path in paths if path), "COMMIT")


def _code(place: str | Path) -> dict[str, list[str]]:
    """Returns the classes outside of libraries that the files of a model name, by file; in a folder at any depth."""
    if os.path.isdir(place):
        paths = {path.relative_to(place).as_posix(): path for name in _NAMED_BY for path in Path(place).rglob(name)}
    else:
        paths = {name: path for name in _NAMED_BY if (path := _find(str(place), name))}
    classes = {name: _classes(read_json(path), _NAMED_BY[Path(path).name]) for name, path in paths.items()}
    return {name: list(dict.fromkeys(names)) for name, names in classes.items() if names}


def _classes(content: Any, key: str, named: bool = False) -> list[str]:
    if isinstance(content, str):
        return [content] if named and not content.startswith("sentence_transformers.") else []
    parts = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [name for own, part in parts for name in _classes(part, key, named or own == key)]


def _find(source: str, name: str, revision: str | None = None) -> str | None:
    from transformers.utils import cached_file

    try:
        return cached_file(source, name, revision=revision, _raise_exceptions_for_missing_entries=False)
    except OSError:  # no such model or revision, gated, or no connection
        return None


def _python_files(folder: str) -> dict[str, str]:
    files = sorted(Path(folder).rglob("*.py"))
    return {path.relative_to(folder).as_posix(): file_hash(path) for path in files}
