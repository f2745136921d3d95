"""Worker processes: the number of this one in a build, where each takes a GPU of its own, and how one ends."""

from __future__ import annotations

import multiprocessing.connection
import os
from multiprocessing.connection import Connection

_number = 0


def worker_number() -> int:
    """The number of this worker, from 0; 0 where a build runs in one process."""
    return _number


def set_worker_number(number: int) -> None:
    """Called once, by the executor that starts the worker."""
    global _number
    _number = number


def end_with(stop: Connection) -> None:
    """Ends this process as soon as the one that started it closes its side or is gone, killed ones included."""
    multiprocessing.connection.wait([stop])
    os._exit(1)
