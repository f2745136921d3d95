"""What others will read: texts without local paths and tokens, safe inside Markdown, and licenses of images."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LOCAL = "LOCAL"
ABSOLUTE = re.compile(r"(?<![\w:/.$}])(?:~|[A-Za-z]:)?(?:[/\\][\w.@+=-]+){2,}[/\\]?")
TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{16,}")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def without_local_paths(value: Any, *, known: Iterable[str] = ()) -> Any:
    """A text, or a list or mapping of texts, with `LOCAL/name` for each absolute path and without tokens.

    Args:
        value: other kinds of value are returned as they are.
        known: paths to be replaced as they stand, blanks in them included.
    """
    if isinstance(value, dict):
        return {key: without_local_paths(part, known=known) for key, part in value.items()}
    if isinstance(value, list):
        return [without_local_paths(part, known=known) for part in value]
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str):
        return value
    if is_absolute(value):
        return _last_part(value)
    # The longest first: a path inside another known one would otherwise lose its beginning and stay readable.
    for path in sorted(known, key=len, reverse=True):
        value = re.sub(rf"(?<![\w/.:]){re.escape(path)}", lambda match: _last_part(match[0]), value)
    return TOKEN.sub("TOKEN", ABSOLUTE.sub(lambda match: _last_part(match[0]), value))


def is_absolute(text: str) -> bool:
    """Whether a text is a path from the root, a drive or a home directory."""
    return "\n" not in text and re.match(r"/(?!/)|~|[A-Za-z]:[/\\]", text) is not None and text not in ("/", "~")


def _last_part(path: str) -> str:
    parts = [part for part in re.split(r"[/\\]", path) if part]
    return f"{LOCAL}/{parts[-1]}"


def is_on_hub(name: str | None) -> bool:
    """Whether a name has the form of an id of the Hub and is nothing on this machine."""
    return bool(name) and HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def fenced(text: str, language: str) -> str:
    """A block of Markdown that ends where it should, whatever backticks its text holds."""
    # A fence ends at a line with as many backticks. A text of a stranger could close it and go on as Markdown.
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


LICENSE = "license"
"""The column of rows that state a licence each."""
COCO_LICENSES = {
    1: "Attribution-NonCommercial-ShareAlike License",
    2: "Attribution-NonCommercial License",
    3: "Attribution-NonCommercial-NoDerivs License",
    4: "Attribution License",
    5: "Attribution-ShareAlike License",
    6: "Attribution-NoDerivs License",
    7: "No known copyright restrictions",
    8: "United States Government Work",
}
"""The licences of COCO's photographs by their number, as its annotation files list them."""
_FORBIDS = re.compile(r"no[ -]?deriv|\bnd\b|all rights reserved", re.IGNORECASE)
_ALLOWS = re.compile(
    r"\bcc[ -]?(?:by|0|zero)\b|creativecommons\.org|creative commons|attribution|public domain|\bpdm?\b"
    r"|no known copyright|government work|flickr\.com/commons|usa\.gov|\b(?:apache|mit|bsd|pddl|odc-by|odbl)\b",
    re.IGNORECASE,
)


def allows_adaptation(license: str | None) -> bool | None:
    """Whether a licence lets changed copies be published, for some purpose and under its conditions.

    Args:
        license: the name or address of a Creative Commons licence, one of `COCO_LICENSES`, an id of the Hub such as
            `cc-by-nd-4.0`, or any other text.

    Returns:
        False for licences without derivatives, None for a text that names no known licence, or none.
    """
    text = str(license or "")
    # What forbids is looked for first: "Attribution-NoDerivs" holds both.
    if _FORBIDS.search(text):
        return False
    return True if _ALLOWS.search(text) else None
