"""Adaptive pace of requests to a language model server, and its errors: who is at fault, and how long to wait.

Concurrency decreases after a temporary failure, and increases again with every success.
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

# Seconds of the first and of the longest pause after failures; each consecutive pause is twice the previous one. Our
# choice.
PAUSE, LONGEST_PAUSE = 0.5, 8.0


class Halted(Exception):
    """Raised in waiting requests after `Pace.halt`."""


def pause_after(failures: int) -> float:
    return min(PAUSE * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE)


class Pace:
    """Limits the number of concurrent requests of threads to what the endpoint accepts.

    As in TCP, a failure halves the limit, once for all requests that ran at the same time, and each round of successes
    increases it by one. If a server enforces a rate limit, all threads wait.

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
        """Waits until a request may run, and counts it while it runs.

        Yields:
            Start time of the request, on the monotonic clock.

        Raises:
            Halted: After `halt`.
        """
        with self._changed:
            # A thread waits until the server's requested pause is over and a slot is free, and checks again whenever
            # it wakes up.
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
        """Waits outside of a turn. Raises `Halted` after `halt`."""
        if self._halted.wait(seconds):
            raise Halted

    def speed_up(self) -> None:
        """Records a success."""
        with self._changed:
            # Each success adds a fraction, so a full round of successes adds one.
            self._limit = min(self._most, self._limit + 1 / self._limit)
            self._rounds, self.succeeded = 0, time.monotonic()

    def slow_down(self, started: float, hold: bool = False, seconds: float | None = None) -> None:
        """Records a temporary failure.

        Args:
            started: Start time of the request.
            hold: Whether all requests must wait.
            seconds: Duration of the wait; by default it grows with each consecutive failure.
        """
        with self._changed:
            if started >= self._slowed:  # simultaneous failures count once
                self._limit, self._slowed = max(1.0, self._limit / 2), time.monotonic()
                self._rounds += 1
            if hold:
                pause = pause_after(max(self._rounds, 1)) if seconds is None else seconds
                self._opens = max(self._opens, time.monotonic() + pause)


# Seconds. A longer `Retry-After` counts as this value; any program would give up.
LONGEST_WAIT = 86_400.0
_OWN_FAULT = (400, 413, 422)  # a prompt that is too long, an unsupported word
_MAY_PASS = (408, 409, 425, 429)  # and 5xx
_SPENT = "insufficient_quota"  # OpenAI's code, sent with status 429
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
    """Whether the request itself may be the cause of a failure."""
    return status_of(error) in _OWN_FAULT or type(error) is BadBody


def may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later. Errors without a status are lost connections and bad bodies."""
    status = status_of(error)
    if getattr(error, "code", None) == _SPENT:
        return False
    return status is None or status in _MAY_PASS or status >= 500


def retry_after(error: Exception) -> float | None:
    """Seconds to wait that the server requests, at most `LONGEST_WAIT`; None without a usable number or date."""
    text = _header(error, "retry-after")
    try:
        seconds = float(text)
    except ValueError:
        try:
            # The header may contain a date instead of seconds (RFC 9110).
            seconds = calendar.timegm(parsedate_to_datetime(text).utctimetuple()) - time.time()
        except (ValueError, OverflowError, IndexError, TypeError):
            return None
    return min(seconds, LONGEST_WAIT) if seconds > 0 else None  # NaN compares as False


def redirect_target(error: Exception) -> str | None:
    """The target of a redirect, without its query; None for other errors."""
    if not 300 <= (status_of(error) or 0) < 400:
        return None
    try:
        place = urlsplit(_header(error, "location"))
        return f"{place.scheme}://{place.netloc.rpartition('@')[2]}{place.path}" if place.netloc else place.path
    except ValueError:
        return ""


def unsupported_fields(error: Exception, fields: Collection[str]) -> list[str]:
    """The request fields that the server reports as unsupported."""
    words = str(error)
    if status_of(error) not in (400, 422) or not _UNSUPPORTED.search(words):
        return []
    parameter = str(getattr(error, "param", None) or "").partition(".")[0]
    if parameter in fields:
        return [parameter]
    return [name for name in fields if re.search(rf"\b{re.escape(name)}\b", words)]


def root_cause(error: BaseException) -> str:
    """The text of the first error in the chain that led to a lost connection."""
    while (
        # HTTP libraries wrap the operating system's error several times. The innermost error states the reason.
        cause := error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
    ):
        error = cause
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error) or type(error).__name__


def option_without(field: str) -> str:
    """The command-line option that removes a field from requests."""
    return _OPTIONS.get(field, f"--request_options {field}=null")


def _header(error: Exception, name: str) -> str:
    headers: Any = getattr(getattr(error, "response", None), "headers", {})
    return str(headers.get(name, ""))
