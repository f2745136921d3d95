"""The files of the cache of embeddings: their sizes, models and last use."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from hfcomp.reading import nearest
from hfcomp.writing import remove_unfinished

DEFAULT_LIMIT = "20GB"
LIMIT_VARIABLE = "HFCOMP_CACHE_LIMIT"
FINGERPRINT = "fingerprint.json"
NEIGHBOURS = "neighbours"
DAY = 24 * 3600.0

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)
# only what the cache itself has written is ever removed, whatever folder a user names
_FOLDER = re.compile(r"[0-9a-f]{16}")
_FILE = re.compile(r"[0-9a-f]{32}\.(safetensors|json)")


def default_folder() -> Path:
    """Where the commands keep embeddings: `$HF_HOME/hfcomp/embeddings`."""
    from huggingface_hub.constants import HF_HOME  # not needed by `hfcomp evaluate --list`

    return Path(HF_HOME) / "hfcomp" / "embeddings"


def default_limit() -> int:
    """Bytes that the cache may take: `$HFCOMP_CACHE_LIMIT`, else 20 GB."""
    return parse_size(os.environ.get(LIMIT_VARIABLE) or DEFAULT_LIMIT, LIMIT_VARIABLE)


def parse_size(text: str, option: str) -> int:
    """Bytes of a size such as `20GB`, `500 MB` or `0`.

    Raises:
        ValueError: for another text, naming the option.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{option}: found {text!r}, expected a size such as 20GB or 500MB.")
    return round(float(found[1]) * _UNITS[found[2].upper()])


def size_text(size: int) -> str:
    """A number of bytes as a user reads it, such as `1.2 GB`."""
    power = min(4, (len(str(size)) - 1) // 3)
    number = size / 1000**power
    return f"{number:.{int(power > 0)}f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


@dataclass(frozen=True)
class CachedFile:
    """A file of the cache."""

    path: Path
    size: int  # in bytes
    used: float  # when it was last used, in seconds since 1970


@dataclass(frozen=True)
class CachedModel:
    """What the cache holds of one model and preprocessing."""

    folder: Path
    model: str  # that encoded it; of an older hfcomp, or where `fingerprint.json` is damaged, `unknown`
    kind: str  # `images`, `texts`, `pairs` of both, or `neighbours` for stored searches
    versions: dict[str, str]  # of the packages that it was encoded with
    files: list[CachedFile]  # of vectors
    used: float  # when it was last used, in seconds since 1970

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(file.size for file in self.files)

    @property
    def entries(self) -> int:
        """Images, texts or pairs; a file that cannot be read counts none."""
        return sum(_entries(file.path) for file in self.files)


def cached_models(folder: Path) -> list[CachedModel]:
    """What a cache holds, the last used first; nothing for a folder that does not exist or cannot be read."""
    found = []
    for place in _folders(folder):
        files = list(_files(place, _FILE))
        facts = _facts(place / FINGERPRINT)
        neighbours = place.name == NEIGHBOURS
        versions = {name: str(facts[name]) for name in ("torch", "transformers", "pillow") if name in facts}
        kind = NEIGHBOURS if neighbours else _kind(facts)
        used = max([file.used for file in files], default=0.0)
        with contextlib.suppress(OSError):
            used = max(used, (place / FINGERPRINT).stat().st_mtime)
        model = "of all models" if neighbours else str(facts.get("model", "unknown"))
        found.append(CachedModel(place, model, kind, versions, files, used))
    return sorted(found, key=lambda one: -one.used)


def _kind(facts: Mapping[str, Any]) -> str:
    if "scoring" in facts:
        return "pairs"
    return "images" if "pixels" in facts else "texts" if facts else "unknown"


def chosen_models(folder: Path, *, model: str | None = None, older_than: float | None = None) -> list[CachedModel]:
    """What a cache holds of one model (as `hfcomp cache` shows it) or of all, and was not used for some days."""
    if older_than is not None and not older_than >= 0:
        raise ValueError(f"--older_than: found {older_than}, expected a number of days, 0 or more.")
    found = cached_models(folder)
    names = sorted({one.model for one in found})
    if model is not None and model not in names:
        known = f"it has {', '.join(names)}.{nearest(model, names)}" if names else "it is empty."
        raise ValueError(f"--model: {folder} has no entries of {model!r}; {known}")
    latest = math.inf if older_than is None else time.time() - older_than * DAY
    return [one for one in found if model in (None, one.model) and one.used < latest]


def evict(folder: Path, limit: int, *, since: float) -> tuple[int, int, int]:
    """Removes the least recently used files until the cache is within its limit in bytes.

    Files that were used since `since`, in seconds since 1970, are never removed. Returns the number of files that were
    removed, their bytes, and the bytes that are left.
    """
    every = [file for place in _folders(folder) for file in _files(place, _FILE)]
    size, number, removed = sum(file.size for file in every), 0, 0
    for file in sorted(every, key=lambda one: one.used):
        # sorted by last use: where one is in use, all that follow are
        if size <= limit or file.used >= since:
            break
        own = remove(file.path)
        if own:
            number, removed = number + 1, removed + file.size
        if own or not os.path.exists(file.path):  # another process was faster
            size -= file.size
    return number, removed, size


def clear(models: Iterable[CachedModel]) -> int:
    """Removes all files of some models and returns the bytes that were freed.

    Raises:
        OSError: for a file that cannot be removed.
    """
    freed = 0
    for model in models:
        for file in model.files:
            file.path.unlink(missing_ok=True)
            freed += file.size
        remove_unfinished(model.folder)
        (model.folder / FINGERPRINT).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds a user's own file
            model.folder.rmdir()
    return freed


def remove(path: Path) -> bool:
    """Removes a file where that is possible, and returns whether this process did."""
    try:
        path.unlink()
    except OSError:  # another process was faster, or the folder is read-only
        return False
    return True


def mark_used(path: Path) -> None:
    """Notes that a file is used now; a read-only cache goes without."""
    with contextlib.suppress(OSError):
        os.utime(path)


def holds(path: Path, content: bytes) -> bool:
    """Whether a file is there with this content."""
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if _FOLDER.fullmatch(name) or name == NEIGHBOURS]


def vector_files(folder: Path) -> list[Path]:
    """The files of vectors in a model's folder; none where it cannot be read."""
    return sorted(file.path for file in _files(folder, _FILE) if file.path.suffix == ".safetensors")


def _files(folder: Path, names: re.Pattern[str]) -> Iterator[CachedFile]:
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if names.fullmatch(entry.name)]
    except OSError:
        return
    for entry in found:
        with contextlib.suppress(OSError):  # removed by another process
            facts = entry.stat()
            yield CachedFile(Path(entry.path), facts.st_size, facts.st_mtime)


def _facts(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _entries(path: Path) -> int:
    if path.suffix != ".safetensors":
        return 1
    try:
        with safe_open(path, framework="numpy") as file:
            return int(file.get_slice("keys").get_shape()[0])
    except (OSError, SafetensorError, IndexError):
        return 0
