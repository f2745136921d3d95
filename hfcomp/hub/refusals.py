"""What the Hub, or the way to it, refuses: one line without the token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from hfcomp.data.publishing import TOKEN

# the bases too: an unreachable Hub is an error of the HTTP client alone, a missing login an OSError alone, and an
# upload that breaks a RuntimeError with either as its cause
_ERRORS = (*HfHubHTTPError.__bases__, HFValidationError, RuntimeError)


@contextmanager
def one_line_refusals(what: str) -> Iterator[None]:
    """Turns every error of the Hub into one of a line.

    Args:
        what: is pushed, such as `Space me/recall_at_k`.

    Raises:
        ValueError: with what the Hub said and how to fix it.
    """
    try:
        yield
    except _ERRORS as error:
        said = f"{error} {error.__cause__ or ''}" if isinstance(error, RuntimeError) else str(error)
        raise ValueError(
            f"{what} was not pushed: {' '.join(TOKEN.sub('TOKEN', said).split())} Log in with `hf auth login` and a "
            "token with write access to the namespace, then repeat the command: what was uploaded is not sent again."
        ) from None  # the error itself may hold the token
