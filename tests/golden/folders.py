"""Everything in a folder that a command wrote, as one JSON value: rows, columns, manifests, cards, texts of pages.

A picture is its format and size, a PNG its pixels too, as a hash. Hashes of files, versions of libraries, times and
places on the disk are left out, here and by `record.py`.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Collection
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet
import safetensors
from PIL import Image

from tests.golden.record import LEFT_OUT, comparable

HASHES = {"sha256", "set_aside_sha256", "keys_sha256", "fingerprint", "probes", "pillow", "jpeg"}
_PATTERNS = (
    (re.compile(r"sha256:[0-9a-f]{8,}"), f"sha256:{LEFT_OUT}"),
    (re.compile(r"(sha256 of the text above: )[0-9a-f]+"), rf"\1{LEFT_OUT}"),
    (re.compile(r"\b\d+(\.\d+){2,}(\.dev\d+|\+\w+)?"), LEFT_OUT),  # versions
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?"), LEFT_OUT),  # times
    (re.compile(r"\| (platform|device|threads) \| .* \|"), rf"| \1 | {LEFT_OUT} |"),
    (re.compile(r"data:image/\w+;base64,[\w+/=]+"), "a picture"),
)


def everything(folder: Path, root: Path, *, skip: Collection[str] = ()) -> Any:
    """What a folder holds, by path in it; files of several shards are one entry. Rows of `steps/` are counted.

    Args:
        folder: that a command wrote.
        root: above it and all that the command was given, which paths in the files begin with.
        skip: names of files that are not read.
    """
    readers: dict[str, Callable[[Path], Any]] = {".json": _json, ".jsonl": _json_lines, ".md": _lines, ".html": page}
    readers[".safetensors"] = _tensors
    contents: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("[!.]*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".parquet":
            entry = contents.setdefault(re.sub(r"-\d{5}-of-\d{5}", "-*", name), {"files": 0})
            _add_rows(entry, path, is_step=name.startswith("steps/"))
        elif path.name not in skip:
            contents[name] = readers[path.suffix](path) if path.suffix in readers else "a file"
    return plain(contents, root)


def plain(value: Any, root: Path) -> Any:
    """A JSON value without places, hashes, versions and times."""
    return _without_patterns(comparable(value, root))


def _without_patterns(value: Any, key: str = "") -> Any:
    if key in HASHES:
        return LEFT_OUT
    if isinstance(value, dict):
        return {name: _without_patterns(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_patterns(inner) for inner in value]
    if isinstance(value, str):
        for pattern, other in _PATTERNS:
            value = pattern.sub(other, value)
    return value


def _json(path: Path) -> Any:
    return _with_short_features(json.loads(path.read_text(encoding="utf-8")))


def _with_short_features(value: Any) -> Any:
    """The features of a manifest's plan in one line each."""
    if isinstance(value, dict):
        return (
            {name: _with_short_features(inner) for name, inner in value.items()}
            if "_type" not in value
            else str(value)
        )
    return [_with_short_features(inner) for inner in value] if isinstance(value, list) else value


def _json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in _lines(path)]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _tensors(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, "numpy") as file:
        parts = {name: file.get_slice(name) for name in sorted(file.keys())}
        return {name: f"{part.get_dtype()} {part.get_shape()}" for name, part in parts.items()}


def _add_rows(entry: dict[str, Any], path: Path, *, is_step: bool) -> None:
    table = pyarrow.parquet.read_table(path)
    features = datasets.Features.from_arrow_schema(table.schema)
    entry["files"] += 1
    entry["features"] = {name: str(feature) for name, feature in features.items()}
    if is_step:
        entry["rows"] = entry.get("rows", 0) + len(table)
        return
    for row in table.to_pylist():
        entry.setdefault("rows", []).append({name: _cell(value) for name, value in row.items()})


def _cell(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        return _picture(value["bytes"])
    nested = isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, list) for item in value))
    return json.dumps(value, ensure_ascii=False) if nested else value


def _picture(content: bytes) -> str:
    with Image.open(io.BytesIO(content)) as image:
        facts = f"{image.format} {image.width}x{image.height} {image.mode}"
        is_exact = image.format == "PNG"  # a JPEG's pixels are those of its decoder, and of the network that edited it
        return f"{facts} {hashlib.sha256(image.tobytes()).hexdigest()[:16]}" if is_exact else facts


def page(path: Path) -> dict[str, Any]:
    """The texts of an HTML page, one a tag, and the data of its scripts."""
    reader = _PageReader()
    reader.feed(path.read_text(encoding="utf-8"))
    return {"texts": reader.texts, **reader.data}


class _PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.data: dict[str, Any] = {}
        self._inside: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        is_data = tag == "script" and given.get("type") == "application/json"
        self._inside = (given.get("id") or "data") if is_data else "" if tag in ("script", "style", "svg") else None

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.data[self._inside] = json.loads(data)
        elif self._inside is None and data.strip():
            self.texts.append(" ".join(data.split()))
