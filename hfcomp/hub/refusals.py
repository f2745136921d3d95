"""What the Hub, or the way to it, refuses: one line without the token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from hfcomp.data.publishing import TOKEN

# the bases too: an unreachable Hub is an error of the HTTP client alone, a missing login an OSError alone, and an
# upload that breaks a RuntimeError with either as its cause
_ERRORS = (*HfHubHTTPError.__bases__, HFValidationError, RuntimeError)


_LOGIN = "Log in with `hf auth login` and a token with write access to the namespace, then repeat the command"
_CONNECTION = "The Hub was not reached: check the connection, HF_ENDPOINT and HF_HUB_OFFLINE, then repeat the command"
_LATER = "The Hub was reached but did not do it: repeat the command later"
_BUSY = 429
_CONFLICT = "Another commit came in between: repeat the command"
_CONFLICTS = (409, 412)


@contextmanager
def one_line_refusals(what: str) -> Iterator[None]:
    """Turns every error of the Hub into one of a line.

    Args:
        what: is pushed, such as `Space me/recall_at_k`.

    Raises:
        ValueError: with what the Hub said, or that it was not reached, and how to fix it.
    """
    try:
        yield
    except _ERRORS as error:
        said = f"{error} {error.__cause__ or ''}" if isinstance(error, RuntimeError) else str(error)
        line = " ".join(TOKEN.sub("TOKEN", said).split()).removesuffix(".")
        # the error itself may hold the token
        raise ValueError(f"{what} was not pushed: {line}. {_advice(error)}") from None


def _advice(error: BaseException) -> str:
    if isinstance(error, HFValidationError):
        return "Choose another name."
    is_upload = isinstance(error, RuntimeError)
    advice = _how_to_go_on((error.__cause__ if is_upload else None) or error)
    return f"{advice}." if advice == _LOGIN and not is_upload else f"{advice}: what was uploaded is not sent again."


def _how_to_go_on(cause: BaseException) -> str:
    if isinstance(cause, HfHubHTTPError):
        status = cause.response.status_code
        return _LATER if status >= 500 or status == _BUSY else _CONFLICT if status in _CONFLICTS else _LOGIN
    if isinstance(cause, OSError) and not isinstance(cause, ConnectionError | TimeoutError):
        return _LOGIN  # no token, or one of a wrong form
    return _CONNECTION
