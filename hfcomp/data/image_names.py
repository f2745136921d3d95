"""By what name an image is known: its source, and what it is called there."""

from __future__ import annotations

import re
from typing import Any

Name = tuple[str, str]
# Sources in which a name is one image and another name another.
COCO, SANDBOX = "COCO", "hfcomp-sandbox"
_COCO_SOURCE = re.compile(r"(?:ms[ _-]?)?coco(?:[ _/-]?(?:captions|karpathy|train|val|test|201[457]))*", re.IGNORECASE)
_COCO_FILE = re.compile(r"(?:^|[/\\:])(?:COCO_[a-z]+201[457]_)?0{6}(\d{6})(?:\.\w+)?(?:$|::)")
_COCO_NUMBER = re.compile(r"(?:COCO_[a-z]+201[457]_)?(\d{1,12})(?:\.\w+)?")
_COCO_WORDS = re.compile(r"COCO (\d{1,12})")  # as VALSE's reader has it


def photograph_name(image_id: Any = None, source: Any = None, path: Any = None) -> Name | None:
    """The source of an image and its name there, or `None` where nothing says them.

    Args:
        image_id: of the column contract.
        source: likewise.
        path: of its file.
    """
    source = str(source).strip() if source else ""
    of_coco = _COCO_SOURCE.fullmatch(source) is not None
    if source and image_id is not None:
        number = _COCO_NUMBER.fullmatch(str(image_id)) if of_coco else None
        if number:
            return COCO, str(int(number[1]))
        return (SANDBOX if source.startswith(SANDBOX) else source.lower()), str(image_id)
    for text in (image_id, path) if of_coco or not source else ():
        found = (_COCO_FILE.search(text) or _COCO_WORDS.fullmatch(text)) if isinstance(text, str) else None
        if found:
            return COCO, str(int(found[1]))
    return None


def decides(name: Name | None) -> bool:
    """Whether another name means another image."""
    return name is not None and name[0] in (COCO, SANDBOX)
