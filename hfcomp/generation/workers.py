"""Which worker of a build this process is: each takes a GPU of its own."""

from __future__ import annotations

_number = 0


def worker_number() -> int:
    """The number of this worker, from 0; 0 where a build runs in one process."""
    return _number


def set_worker_number(number: int) -> None:
    """Called once, by the executor that starts the worker."""
    global _number
    _number = number
