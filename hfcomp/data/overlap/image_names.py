"""By what name an image is known for sure: COCO's number, or its id in the sandbox."""

from __future__ import annotations

import re
from typing import Any

Name = tuple[str, str]
COCO, SANDBOX = "COCO", "hfcomp-sandbox"
_COCO_SOURCE = re.compile(r"(?:ms[ _-]?)?coco(?:[ _/-]?(?:captions|karpathy|train|val|test|201[457]))*", re.IGNORECASE)
_COCO_FILE = re.compile(r"(?:^|[/\\:])COCO_(?:train|val|test)201[457]_0{6}(\d{6})(?:\.\w+)?(?:$|::)")
# a file has twelve digits, as an id made from the name of any file would else be taken for COCO's
_COCO_NUMBER = re.compile(r"(?:COCO_[a-z]+201[457]_)?(\d{12}|\d{1,12}(?=$))(?:\.\w+)?")
_COCO_WORDS = re.compile(r"COCO (\d{1,12})")  # as VALSE's reader has it
_NUMBERED_FILE = re.compile(r"(?:^|[/\\:])0{6}(\d{6})(?:\.\w+)?(?:$|::)")


def photograph_name(image_id: Any = None, source: Any = None, path: Any = None) -> Name | None:
    """The source of an image and its name there, where these are sure: another name is then another image.

    A bare number counts only if the source is COCO: other sets have names of twelve digits too, and each
    split may number its rows from 0.

    Args:
        image_id: of the column contract.
        source: likewise.
        path: of its file.
    """
    source = str(source).strip() if source else ""
    if source.startswith(SANDBOX) and image_id is not None:
        return SANDBOX, str(image_id)
    of_coco = _COCO_SOURCE.fullmatch(source) is not None
    number = _COCO_NUMBER.fullmatch(str(image_id)) if of_coco and image_id is not None else None
    for text in (image_id, path) if of_coco or not source else ():
        if number is None and isinstance(text, str):
            number = _COCO_FILE.search(text) or _COCO_WORDS.fullmatch(text)
            number = number or (_NUMBERED_FILE.search(text) if of_coco else None)
    return None if number is None else (COCO, str(int(number[1])))
