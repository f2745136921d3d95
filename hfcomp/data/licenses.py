"""What licences allow: adapted images may be published for some only."""

from __future__ import annotations

import re

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
    if _FORBIDS.search(text):
        return False
    return True if _ALLOWS.search(text) else None
