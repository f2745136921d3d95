"""Errors of a language model server: whose fault they are, how long to wait, and which field is not supported."""

from __future__ import annotations

import calendar
import os
import re
from collections.abc import Collection
from email.utils import parsedate_to_datetime
from time import time
from typing import Any
from urllib.parse import urlsplit

from hfcomp.generation.writers.completions import BadBody

LONGEST_WAIT = 86_400.0
"""Seconds. A longer `Retry-After` counts as this one: any program would give up."""
_OWN_FAULT = (400, 413, 422)  # too long a prompt, a word that the server does not take
_MAY_PASS = (408, 409, 425, 429)  # and 5xx
_SPENT = "insufficient_quota"  # OpenAI's, which comes as 429
_UNSUPPORTED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|not recogni[sz]ed|unknown|unexpected|extra_|extra inputs|not permitted"
    r"|not allowed",
    re.IGNORECASE,
)
_OPTIONS = {"chat_template_kwargs": "--thinking as_served", "response_format": "--plain_answers"}


def status_of(error: Exception) -> int | None:
    """The HTTP status of an error, if any."""
    status: int | None = getattr(error, "status_code", None)
    return status


def is_own(error: Exception) -> bool:
    """Whether a failure may be the request's own."""
    return status_of(error) in _OWN_FAULT or type(error) is BadBody


def may_pass(error: Exception) -> bool:
    """Whether the same request may be answered later; those without a code are lost connections and bad bodies."""
    status = status_of(error)
    if getattr(error, "code", None) == _SPENT:
        return False
    return status is None or status in _MAY_PASS or status >= 500


def retry_after(error: Exception) -> float | None:
    """Seconds that the server asks to wait, at most `LONGEST_WAIT`; None if it gives no usable number or date."""
    text = _header(error, "retry-after")
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = calendar.timegm(parsedate_to_datetime(text).utctimetuple()) - time()
        except (ValueError, OverflowError, IndexError, TypeError):
            return None
    return min(seconds, LONGEST_WAIT) if seconds > 0 else None  # not a number compares as False


def redirect_target(error: Exception) -> str | None:
    """Where a redirect leads, without a query; None for other errors."""
    if not 300 <= (status_of(error) or 0) < 400:
        return None
    try:
        place = urlsplit(_header(error, "location"))
        return f"{place.scheme}://{place.netloc.rpartition('@')[2]}{place.path}" if place.netloc else place.path
    except ValueError:
        return ""


def unsupported_fields(error: Exception, fields: Collection[str]) -> list[str]:
    """The fields of a request that the server says it does not support.

    Args:
        error: What the server replied.
        fields: Names of fields that were sent.
    """
    words = str(error)
    if status_of(error) not in (400, 422) or not _UNSUPPORTED.search(words):
        return []
    parameter = str(getattr(error, "param", None) or "").partition(".")[0]
    if parameter in fields:
        return [parameter]
    return [name for name in fields if re.search(rf"\b{re.escape(name)}\b", words)]


def root_cause(error: BaseException) -> str:
    """The words of the first of the errors that led to a lost connection."""
    while (
        cause := error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
    ):
        error = cause
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error) or type(error).__name__


def option_without(field: str) -> str:
    """The command-line option that leaves a field out of requests."""
    return _OPTIONS.get(field, f"--request_options {field}=null")


def _header(error: Exception, name: str) -> str:
    headers: Any = getattr(getattr(error, "response", None), "headers", {})
    return str(headers.get(name, ""))
