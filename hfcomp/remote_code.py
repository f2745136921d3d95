"""Models at a pinned commit, and the Python code in their repositories, which runs only if the user trusts it."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from hfcomp.checksums import file_hash
from hfcomp.reading import read_json, split_revision

# Files of a model that name classes, and the key under which they do.
_CONFIGS = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
_NAMED_BY = {**dict.fromkeys(_CONFIGS, "auto_map"), "modules.json": "type"}
_RUN_AS = "transformers_modules."  # package of the copies that transformers runs
# Weights that nothing here reads, and that double a download.
_UNREAD = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt", "*.h5", "*.msgpack", "*.onnx*", "*.gguf")

Revision = Annotated[str | None, "Branch, tag or commit of the Hub model; for several, use ID@REVISION."]
TrustRemoteCode = Annotated[bool, "Run the models' own Python code. Hub models need a commit of 40 digits."]


class Pinned(str):
    """Local path of a model that the user named as `source`. Its plain `str` or `Path` is not trusted."""

    source: str
    revision: str  # commit, or empty for a folder
    trusted: bool

    @property
    def facts(self) -> dict[str, Any]:
        """The entries of `results.json`: the commit, and the SHA-256 of each Python file that has run."""
        modules = [module for name, module in list(sys.modules.items()) if name.startswith(_RUN_AS)]
        # transformers runs a copy. Compared by content, a file counts only if the copy that ran is equal to it.
        ran = {file_hash(Path(module.__file__)) for module in modules if getattr(module, "__file__", None)}
        code = {name: sha256 for name, sha256 in _trusted_files(self).items() if sha256 in ran}
        return {key: value for key, value in (("revision", self.revision), ("remote_code", code)) if value}


def pin(models: Sequence[Any], revision: str | None = None, *, trust: bool = False) -> list[Any]:
    """Returns each `ID@REVISION`, each Hub id at `revision` and, with `trust`, each folder as a [`Pinned`].

    Other models, such as objects, are returned as they are. All revisions are checked before anything is downloaded.

    Raises:
        ValueError: If a revision has no effect, is missing or not a commit although code is trusted, cannot be
            downloaded, or names code in another repository.
    """
    split = [split_revision(str(model)) if isinstance(model, str | Path) else ("", "") for model in models]
    hub = [(source, own) for source, own in split if source and not os.path.exists(source)]
    bare = [source for source, own in hub if not own]
    if revision and len(bare) != 1:
        raise ValueError(
            f"revision: found {revision!r} for {len(bare)} Hub models, expected one. Write ID@REVISION for each of "
            "several. A folder has no revision."
        )
    for source, commit in ((source, own or revision) for source, own in hub if trust):
        if not re.fullmatch("[0-9a-f]{40}", commit or ""):
            raise ValueError(
                f"{source}: found {f'the revision {commit!r}' if commit else 'no revision'}, expected a commit of 40 "
                "digits with --trust_remote_code, because a branch or tag may get other code later. Read the code, "
                f"then write {source}@{_commit(source, commit)}"
            )
    return [_pin(model, source, own or revision, trust) for model, (source, own) in zip(models, split, strict=True)]


def _pin(model: Any, source: str, revision: str | None, trust: bool) -> Any:
    from huggingface_hub import snapshot_download

    folder, is_folder = source, os.path.exists(source)
    if not source or not (trust if is_folder else revision):
        return model
    if not is_folder:
        try:
            folder = snapshot_download(source.rpartition(":")[2], revision=revision, ignore_patterns=_UNREAD)
        except (OSError, ValueError) as error:  # no such model or revision, gated, or no connection
            raise ValueError(f"{source} at {revision} cannot be downloaded: {' '.join(str(error).split())}") from error
    pinned = Pinned(folder)
    pinned.source, pinned.revision, pinned.trusted = source, "" if is_folder else Path(folder).name, trust
    if not trust:
        return pinned
    others = [f"{name} names {code}" for name, codes in _classes(pinned).items() for code in codes if "--" in code]
    if (Path(folder) / "modules.json").is_file():  # sentence-transformers would extend the trust to an adapter's base
        others += [f"{path.name} names a base model" for path in Path(folder).rglob("adapter_config.json")]
    if others:
        raise ValueError(
            f"{source}: {others[0]}, which is in another repository, so no revision pins its code. It is not run. "
            "Load the model yourself and pass the object to hfcomp.evaluate()."
        )
    return pinned


def load_pretrained(kind: Any, place: str | Path, **settings: Any) -> Any:
    """Calls `kind.from_pretrained`; code runs only if it is trusted."""
    with explain_code(place):
        return kind.from_pretrained(place, trust_remote_code=is_trusted(place), **settings)


@contextmanager
def explain_code(place: str | Path) -> Iterator[None]:
    """Says in the error of a library that needs code which is not trusted, what the code is and how to run it."""
    try:
        yield
    except ValueError as error:
        if is_trusted(place) or "trust_remote_code" not in str(error):
            raise
        code = "; ".join(f"{name} names {', '.join(classes)}" for name, classes in _classes(place).items())
        raise ValueError(
            f"{getattr(place, 'source', place)} needs Python code from its repository, which is not run: {code}. "
            f"{how_to_trust(place)}, or load the model yourself and pass the object. Only an object can be trained, "
            "or be the base of an adapter."
        ) from error


def is_trusted(place: Any) -> bool:
    return isinstance(place, Pinned) and place.trusted


def how_to_trust(place: str | Path) -> str:
    """Returns the command that runs the code of a repository, with the commit of its files."""
    commit = getattr(place, "revision", "") or ("" if os.path.isdir(place) else _commit(str(place)))
    pinned = f" --revision {commit}" if commit else ""
    source = getattr(place, "source", place)
    return f"If you have read and trust the code: hfcomp evaluate {source} --trust_remote_code{pinned}"


def code_notes(models: Sequence[Any]) -> list[str]:
    """Returns a note for each model whose own code runs."""
    places = [
        f"{model.source}{model.revision and f' at {model.revision}'}" for model in models if _trusted_files(model)
    ]
    return [f"{place}: its own code runs (--trust_remote_code)" for place in places]


def run_code(model: Any) -> str | None:
    """Returns the file with a loaded model's own code and its SHA-256, for cards; None for a class of a library."""
    name = type(model).__module__
    file = Path(sys.modules[name].__file__ or "") if name.startswith(_RUN_AS) else None
    return file and f"its own {file.name} (sha256:{file_hash(file)})"


def code_identity(place: Any) -> str:
    """Returns a hash of a model's trusted code, or nothing. Embeddings of other code are stored separately."""
    files = _trusted_files(place)
    return f" code sha256:{hashlib.sha256(repr(files).encode()).hexdigest()[:16]}" if files else ""


def model_class(place: str | Path, config: Any) -> Any:
    """Returns the class that `AutoModel` loads, or None. Imports trusted code."""
    from transformers import MODEL_MAPPING
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    name = (getattr(config, "auto_map", None) or {}).get("AutoModel")
    trusted = name and is_trusted(place)
    return get_class_from_dynamic_module(name, str(place)) if trusted else MODEL_MAPPING.get(type(config), None)


def find_file(place: str | Path, name: str, revision: str | None = None) -> str | None:
    """Returns the path of a file in a folder or Hub repository; None if it is missing or cannot be reached."""
    from transformers.utils import cached_file

    try:
        return cached_file(str(place), name, revision=revision, _raise_exceptions_for_missing_entries=False)
    except OSError:
        return None


def _commit(source: str, revision: str | None = None) -> str:
    path = find_file(source, "config.json", revision) or find_file(source, "modules.json", revision)
    return "COMMIT" if path is None else Path(path).parent.name


def _classes(place: str | Path) -> dict[str, list[str]]:
    """Returns the classes outside of libraries that the files of a model name, by file; in a folder at any depth."""
    if os.path.isdir(place):
        paths = {path.relative_to(place).as_posix(): path for name in _NAMED_BY for path in Path(place).rglob(name)}
    else:
        paths = {name: path for name in _NAMED_BY if (path := find_file(place, name))}
    classes = {name: _names(read_json(path), _NAMED_BY[Path(path).name]) for name, path in paths.items()}
    return {name: list(dict.fromkeys(names)) for name, names in classes.items() if names}


def _names(content: Any, key: str, named: bool = False) -> list[str]:
    if isinstance(content, str):
        return [content] if named and not content.startswith("sentence_transformers.") else []
    parts = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [name for own, part in parts for name in _names(part, key, named or own == key)]


def _trusted_files(place: Any) -> dict[str, str]:
    """Returns the SHA-256 of each Python file of a trusted model, by relative path."""
    files = sorted(Path(place).rglob("*.py")) if is_trusted(place) else ()
    return {path.relative_to(place).as_posix(): file_hash(path) for path in files}
