"""One-line errors for user mistakes; bugs in the library keep their traceback."""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

FLAG, VARIABLE = "--traceback", "HFCOMP_TRACEBACK"
# Errors that hfcomp raises for the user's values, files and packages, and for a loss that is no longer finite.
MISTAKES = (ValueError, OSError, ImportError, FloatingPointError)
# Modules that define the errors of libraries that access the Hub or other services. They have no common base class.
THEIRS = ("datasets.exceptions", "huggingface_hub.errors", "httpx", "httpcore", "requests.exceptions", "wandb.errors")
# These libraries log every attempt to reach the Hub and every damaged file, which the final error repeats.
REPEATED = {"huggingface_hub.utils._http": logging.ERROR, "datasets.packaged_modules": logging.CRITICAL}
# The advice of transformers and its peers for a model with code of its own. No option of hfcomp passes this argument.
_REMOTE_CODE = re.compile(r"Please \w+ the \w+ `trust_remote_code=True`[^.]*\.")
_PACKAGE = Path(__file__).parent
_within: ContextVar[bool] = ContextVar("within", default=False)


@contextmanager
def one_line_errors(*, traceback_wanted: bool = False) -> Iterator[None]:
    """Ends the process with one line for a user mistake; other exceptions are bugs of ours and pass through.

    Does nothing inside another `one_line_errors`, because the outer one has the user's choice.

    Args:
        traceback_wanted: Whether every exception passes through, as with the environment variable HFCOMP_TRACEBACK=1.

    Raises:
        SystemExit: With the one-line message.
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
        # Checks the type and the module, because the errors of the Hub's libraries have no common base class. Anything
        # else is a bug in hfcomp, and its traceback is needed.
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
    """The message of an error, with the place where it was raised if that is outside hfcomp: it may be our bug."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
    if isinstance(error, UnicodeEncodeError):
        return f"{_surrounding_text(error)!a:.200} is not valid Unicode. Rename the file, or correct the text."
    message = " ".join(str(error).split()) or type(error).__name__
    message = _REMOTE_CODE.sub("It is not run here. Use a model without code of its own.", message)
    # A ValueError raised by numpy may be a bug in hfcomp that a user's file triggers. The line then also names the
    # place and the option that shows the traceback.
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or _PACKAGE in Path(frames[-1].filename).parents:
        return message
    place = "/".join(Path(frames[-1].filename).parts[-2:])
    return f"{message} ({type(error).__name__} in {place}; {FLAG} shows the full traceback)"


def _surrounding_text(error: UnicodeEncodeError) -> str:
    """The line, or in JSON the string, that contains half a character; the error itself does not name it."""
    text, place = error.object, error.start
    start = max(text.rfind(end, 0, place) for end in '"\n') + 1
    ends = [position for end in '"\n' if (position := text.find(end, place)) >= 0]
    return text[start : min(ends, default=len(text))]
