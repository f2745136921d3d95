"""How many requests run at a time: fewer after a failure that may pass, more again with every success."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Seconds after the first failure in a row, and after many; each pause is twice the one before. Our choice."""


class Halted(Exception):
    """The other requests are given up."""


def pause_after(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return min(PAUSE * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE)


class Pace:
    """Lets threads send requests, at most so many at a time as the endpoint takes.

    The number is halved by a failure, once for all requests that ran at the same moment, and grows by one with each
    round of successes, as TCP does. A server that sets a limit of requests makes all threads wait.

    Args:
        most: requests at a time.
    """

    def __init__(self, most: int) -> None:
        self._most, self._limit, self._running = most, float(most), 0
        self._changed = threading.Condition()
        self._slowed = self._opens = self._succeeded = float("-inf")
        self._rounds, self._halted = 0, threading.Event()

    @property
    def succeeded(self) -> float:
        """When the last success was, on the monotonic clock."""
        return self._succeeded

    @property
    def at_a_time(self) -> int:
        """Requests that may run now."""
        return int(self._limit)

    def restart(self) -> None:
        """Lets threads send again after `halt`."""
        self._halted.clear()

    def halt(self) -> None:
        """Ends all waiting."""
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
            while not self._halted.is_set() and (
                (left := self._opens - time.monotonic()) > 0 or self._running >= self.at_a_time
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
            self._limit = min(self._most, self._limit + 1 / self._limit)
            self._rounds, self._succeeded = 0, time.monotonic()

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
