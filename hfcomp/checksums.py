"""Checksums that detect files damaged or modified since they were written."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hfcomp.reading import parse_json

CHECKSUM = "checksum"
"""The key of a JSON file that holds the sha256 of everything else in it."""

_TEXT_CHECKSUM = re.compile(r"\n<!-- sha256 of the text above: (\w*) -->\n\Z")


def file_hash(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a JSON file with its checksum, which spaces and the order of keys do not change."""
    return {**content, CHECKSUM: _checksum(content)}


def read_checked(path: Path, how_to_fix: str) -> Any:
    """The content of a JSON file without its checksum; a file without one, from an earlier hfcomp, is read as it is.

    Raises:
        ValueError: naming the file, if it is not JSON or does not match its checksum; it ends with `how_to_fix`.
    """
    try:
        content = parse_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}), so it is damaged. {how_to_fix}") from error
    if not isinstance(content, dict) or CHECKSUM not in content:
        return content
    expected = content.pop(CHECKSUM)
    found = _checksum(content)
    if found != expected:
        raise ValueError(f"{path} is damaged: expected content of {expected}, found {found}. {how_to_fix}")
    return content


def with_text_checksum(text: str) -> str:
    """A text in Markdown with its checksum in a comment at the end, in place of an earlier one."""
    plain = without_text_checksum(text)
    return f"{plain}\n<!-- sha256 of the text above: {_text_hash(plain)} -->\n"


def without_text_checksum(text: str) -> str:
    """A text without the comment that `with_text_checksum` adds."""
    return _TEXT_CHECKSUM.sub("", text)


def is_as_written(path: Path) -> bool | None:
    """Whether a Markdown file matches its checksum; None if it has none, for example from an earlier hfcomp."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    stated = _TEXT_CHECKSUM.search(text)
    return None if stated is None else stated[1] == _text_hash(without_text_checksum(text))


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _checksum(content: Mapping[str, Any]) -> str:
    # Covers the values and not the bytes: an editor that only reformats the file or sorts its keys changes nothing.
    return f"sha256:{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}"
