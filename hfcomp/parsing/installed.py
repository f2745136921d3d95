"""The packages of the extra `text`, which parsing needs and importing hfcomp does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_PACKAGES = ("spacy", "textblob", "simplemma")
_INSTALL_EXTRA = 'pip install "hfcomp[text]"'

Result = TypeVar("Result")


def with_extra(make: Callable[..., Result], *arguments: str, needed_by: str = "parsing") -> Result:
    """Calls `make`, which imports what it needs; an error for a missing package also names the extra to install."""
    try:
        return make(*arguments)
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise ModuleNotFoundError(
            f"{needed_by} needs {error.name}, which is not installed: {_INSTALL_EXTRA}", name=error.name
        ) from error
