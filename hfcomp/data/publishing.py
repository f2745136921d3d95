"""Texts for publication: without local paths and tokens, safe inside Markdown; licenses, and texts for cards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hfcomp.data.built_sets.files import CARD, TRAIN

LOCAL = "LOCAL"
ABSOLUTE = re.compile(r"(?<![\w:/.$}])(?:~|[A-Za-z]:)?(?:[/\\][\w.@+=-]+){2,}[/\\]?")
TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{16,}")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def without_local_paths(value: Any, *, known: Iterable[str] = ()) -> Any:
    """Replaces absolute paths with `LOCAL/name`, and tokens, in a string or in a list or mapping of strings.

    Args:
        value: String, list or mapping; other values are returned unchanged.
        known: Paths to replace exactly as given, even if they contain blanks.
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
    # Longest first: otherwise, a path inside another known path would lose only its beginning and stay readable.
    for path in sorted(known, key=len, reverse=True):
        value = re.sub(rf"(?<![\w/.:]){re.escape(path)}", lambda match: _last_part(match[0]), value)
    return TOKEN.sub("TOKEN", ABSOLUTE.sub(lambda match: _last_part(match[0]), value))


def is_absolute(text: str) -> bool:
    """Whether a string is a path that starts at the root, a drive or a home directory."""
    return "\n" not in text and re.match(r"/(?!/)|~|[A-Za-z]:[/\\]", text) is not None and text not in ("/", "~")


def _last_part(path: str) -> str:
    parts = [part for part in re.split(r"[/\\]", path) if part]
    return f"{LOCAL}/{parts[-1]}"


def is_on_hub(name: str | None) -> bool:
    """Whether a name looks like a Hub id and is not a path that exists on this machine."""
    return bool(name) and HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def fenced(text: str, language: str) -> str:
    """Makes a Markdown code block that ends in the right place, whatever backticks its text contains."""
    # A fence ends at a line with the same number of backticks. A stranger's text could close it and continue as
    # Markdown.
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


LICENSE = "license"
"""Column with the license of each row."""
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
"""Licenses of COCO's photographs by number, as listed in its annotation files."""
_FORBIDS = re.compile(r"no[ -]?deriv|\bnd\b|all rights reserved", re.IGNORECASE)
_ALLOWS = re.compile(
    r"\bcc[ -]?(?:by|0|zero)\b|creativecommons\.org|creative commons|attribution|public domain|\bpdm?\b"
    r"|no known copyright|government work|flickr\.com/commons|usa\.gov|\b(?:apache|mit|bsd|pddl|odc-by|odbl)\b",
    re.IGNORECASE,
)


def allows_adaptation(license: str | None) -> bool | None:
    """Whether a license allows modified copies to be published, for some purpose and under its conditions.

    Args:
        license: Name or URL of a Creative Commons license, one of `COCO_LICENSES`, a Hub id such as `cc-by-nd-4.0`, or
            any other text.

    Returns:
        False for licenses that forbid derivatives, None if the text is missing or names no known license.
    """
    text = str(license or "")
    # Restrictions are tested first: "Attribution-NoDerivs" matches both.
    if _FORBIDS.search(text):
        return False
    return True if _ALLOWS.search(text) else None


DEFAULT = "default"
"""Name of a dataset's only configuration."""
UNKNOWN = "unknown"
"""License name in the metadata if the license is unknown."""
PLACE = "<this dataset's id or folder>"
"""Placeholder for the dataset's location, which is not known until it is pushed."""
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
)


def stated_license(name: str) -> str | None:
    """Reads the license from a source's card, on disk or on the Hub; None if the card states none."""
    from huggingface_hub import DatasetCard

    try:
        card = Path(name) / CARD
        if Path(name).exists() and not card.is_file():
            return None
        license = DatasetCard.load(card if card.is_file() else name).data.license
    except Exception:  # the Hub client and YAML raise many types; a card that cannot be read states nothing
        return None
    return ", ".join(license) if isinstance(license, list) else license


def size_category(rows: int) -> str:
    """Returns the Hub's size category for a number of rows."""
    return next((name for limit, name in _SIZES if rows < limit), "n>100M")


def loading_text(names: Sequence[str], split: str = TRAIN) -> str:
    config = "" if names == [DEFAULT] else f'"{names[0]}", '
    others = [f"Other configurations: {', '.join(f'`{name}`' for name in names[1:])}."] if names[1:] else []
    code = f'rows = load_dataset("{PLACE}", {config}split="{split}")'
    return "\n\n".join([f"```python\nfrom datasets import load_dataset\n\n{code}\n```", *others])
