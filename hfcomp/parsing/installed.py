"""The packages of the extra `text`, which parsing needs and importing hfcomp does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_PACKAGES = ("spacy", "textblob", "simplemma")
_INSTALL_EXTRA = 'pip install "hfcomp[text]"'

Result = TypeVar("Result")


def with_extra(make: Callable[..., Result], *arguments: str, needed_by: str = "parsing") -> Result:
    """What `make` returns; where it misses a package of the extra, the error names the package and the extra.

    Args:
        make: Imports what it needs.
        arguments: Of `make`.
        needed_by: How the message begins.

    Raises:
        ModuleNotFoundError: A package is not installed.
    """
    try:
        return make(*arguments)
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise ModuleNotFoundError(
            f"{needed_by} needs {error.name}, which is not installed: {_INSTALL_EXTRA}", name=error.name
        ) from error
