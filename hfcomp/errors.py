"""Mistakes of users end a command in one line; errors of the library keep their traceback."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

FLAG, VARIABLE = "--traceback", "HFCOMP_TRACEBACK"
# Errors that hfcomp raises for values, files and packages of the user, and for a loss that is no longer finite.
MISTAKES = (ValueError, OSError, ImportError, FloatingPointError)
# Modules of the Hub's and its libraries' errors, which have no common class.
THEIRS = ("datasets.exceptions", "huggingface_hub.errors", "httpx", "httpcore", "requests.exceptions", "wandb.errors")
# These libraries log every attempt to reach the Hub and every damaged file, which the final error repeats.
REPEATED = {"huggingface_hub.utils._http": logging.ERROR, "datasets.packaged_modules": logging.CRITICAL}
_PACKAGE = Path(__file__).parent
_within: ContextVar[bool] = ContextVar("within", default=False)


@contextmanager
def one_line_errors(*, traceback_wanted: bool = False) -> Iterator[None]:
    """Ends the process with one line for a mistake of the user's; other exceptions pass, which are ours.

    Inside another one it does nothing: the outer one knows what was asked for.

    Args:
        traceback_wanted: let every exception pass, as the environment variable HFCOMP_TRACEBACK=1 does.

    Raises:
        SystemExit: with the line.
    """
    if _within.get():
        yield
        return
    wanted = traceback_wanted or os.environ.get(VARIABLE, "0") not in ("", "0")
    token, levels = _within.set(True), {name: logging.getLogger(name).level for name in REPEATED}
    _set_levels({} if wanted else REPEATED)
    try:
        yield
    except Exception as error:
        # Tested by type and by module: the Hub's libraries have errors without a common class. Anything else is a bug
        # in hfcomp, and its traceback is needed.
        if wanted or not (isinstance(error, MISTAKES) or type(error).__module__.startswith(THEIRS)):
            raise
        raise SystemExit(f"error: {_line(error)}") from error
    finally:
        _within.reset(token)
        _set_levels(levels)


def _set_levels(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def _line(error: Exception) -> str:
    """What an error says, and where it was raised if that is not in hfcomp: it may be a mistake of ours then."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
    if isinstance(error, UnicodeEncodeError):
        return f"{_around(error)!a:.200} is not valid Unicode. Rename the file, or correct the text."
    said = " ".join(str(error).split()) or type(error).__name__
    # A ValueError that numpy raised may be a bug in hfcomp behind a user's file. The line then names the place, and
    # how to see the rest.
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or _PACKAGE in Path(frames[-1].filename).parents:
        return said
    place = "/".join(Path(frames[-1].filename).parts[-2:])
    return f"{said} ({type(error).__name__} in {place}; {FLAG} shows the whole)"


def _around(error: UnicodeEncodeError) -> str:
    """The line, and in JSON the text, in which there is half a character: only it says what the error is of."""
    text, place = error.object, error.start
    start = max(text.rfind(end, 0, place) for end in '"\n') + 1
    ends = [found for end in '"\n' if (found := text.find(end, place)) >= 0]
    return text[start : min(ends, default=len(text))]
