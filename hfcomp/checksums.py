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
"""Key in a JSON file for the sha256 of the rest of its content."""

_TEXT_CHECKSUM = re.compile(r"\n<!-- sha256 of the text above: (\w*) -->\n\Z")


def file_hash(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a JSON file with its checksum, which does not depend on whitespace or the order of keys."""
    return {**content, CHECKSUM: _checksum(content)}


def read_checked(path: Path, how_to_fix: str) -> Any:
    """Reads a JSON file, verifies and removes its checksum. Files from an earlier hfcomp have none and are accepted.

    Raises:
        ValueError: If the file is not JSON or does not match its checksum. The message names the file and ends with
            `how_to_fix`.
    """
    try:
        content = parse_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}), so it is damaged. {how_to_fix}") from error
    if not isinstance(content, dict) or CHECKSUM not in content:
        return content
    expected = content.pop(CHECKSUM)
    actual = _checksum(content)
    if actual != expected:
        raise ValueError(f"{path} is damaged: expected content with {expected}, found {actual}. {how_to_fix}")
    return content


def with_text_checksum(text: str) -> str:
    """A Markdown text with its checksum in a comment at the end, which replaces an earlier one."""
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
    # Covers the values, not the bytes: an editor may reformat the file or sort its keys.
    return f"sha256:{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}"
