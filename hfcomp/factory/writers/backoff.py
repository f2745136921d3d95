"""Pace of requests to a language model server, and its errors: whose fault they are, and how long to wait.

Fewer requests run at a time after a failure that may pass, more again with every success.
"""

from __future__ import annotations

import calendar
import os
import re
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from hfcomp.factory.writers.requests import BadBody

# Seconds of the first pause after a failure, and of the longest; each pause in a row is twice the one before. Our
# choice.
PAUSE, LONGEST_PAUSE = 0.5, 8.0


class Halted(Exception):
    """The other requests are given up."""


def pause_after(failures: int) -> float:
    return min(PAUSE * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE)


class Pace:
    """Lets threads send requests, at most so many at a time as the endpoint takes.

    The number is halved by a failure, once for all requests that ran at the same moment, and grows by one with each
    round of successes, as TCP does. A server that sets a limit of requests makes all threads wait.

    Attributes:
        succeeded: Time of the last success, on the monotonic clock.
    """

    def __init__(self, most: int) -> None:
        self._most, self._limit, self._running = most, float(most), 0
        self._changed = threading.Condition()
        self._slowed = self._opens = self.succeeded = float("-inf")
        self._rounds, self._halted = 0, threading.Event()

    @property
    def concurrency(self) -> int:
        return int(self._limit)

    def restart(self) -> None:
        self._halted.clear()

    def halt(self) -> None:
        with self._changed:
            self._halted.set()
            self._changed.notify_all()

    @contextmanager
    def turn(self) -> Iterator[float]:
        """Waits until a request may run, and counts it while it does.

        Yields:
            When it started.

        Raises:
            Halted: after `halt`.
        """
        with self._changed:
            # A thread waits until the pause that a server requested is over and a place is free. A thread that wakes
            # up checks again.
            while not self._halted.is_set() and (
                (left := self._opens - time.monotonic()) > 0 or self._running >= self.concurrency
            ):
                self._changed.wait(left if left > 0 else None)
            if self._halted.is_set():
                raise Halted
            self._running += 1
        try:
            yield time.monotonic()
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def rest(self, seconds: float) -> None:
        """Waits, out of turn; raises `Halted` after `halt`."""
        if self._halted.wait(seconds):
            raise Halted

    def speed_up(self) -> None:
        """After a success."""
        with self._changed:
            # Each success adds a share of one, so a whole round of successes adds one.
            self._limit = min(self._most, self._limit + 1 / self._limit)
            self._rounds, self.succeeded = 0, time.monotonic()

    def slow_down(self, started: float, hold: bool = False, seconds: float | None = None) -> None:
        """After a failure that may pass.

        Args:
            started: when the request did.
            hold: whether all have to wait.
            seconds: so long; by default longer with each failure in a row.
        """
        with self._changed:
            if started >= self._slowed:  # the others of the same moment say nothing new
                self._limit, self._slowed = max(1.0, self._limit / 2), time.monotonic()
                self._rounds += 1
            if hold:
                pause = pause_after(max(self._rounds, 1)) if seconds is None else seconds
                self._opens = max(self._opens, time.monotonic() + pause)


# Seconds. A longer `Retry-After` counts as this long: any program would give up.
LONGEST_WAIT = 86_400.0
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
            # The header may hold a date instead of seconds (RFC 9110).
            seconds = calendar.timegm(parsedate_to_datetime(text).utctimetuple()) - time.time()
        except (ValueError, OverflowError, IndexError, TypeError):
            return None
    return min(seconds, LONGEST_WAIT) if seconds > 0 else None  # not a number compares as False


def redirect_target(error: Exception) -> str | None:
    """Target of a redirect, without a query; None for other errors."""
    if not 300 <= (status_of(error) or 0) < 400:
        return None
    try:
        place = urlsplit(_header(error, "location"))
        return f"{place.scheme}://{place.netloc.rpartition('@')[2]}{place.path}" if place.netloc else place.path
    except ValueError:
        return ""


def unsupported_fields(error: Exception, fields: Collection[str]) -> list[str]:
    """The fields of a request that the server says it does not support."""
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
        # HTTP libraries wrap the operating system's error several times. The innermost error has the reason.
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
