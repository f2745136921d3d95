"""Worker processes of a build: the worker's number, which selects its GPU, and how it ends."""

from __future__ import annotations

import multiprocessing.connection
import os
from multiprocessing.connection import Connection

_number = 0


def worker_number() -> int:
    """The number of this worker, starting at 0; 0 if a build runs in one process."""
    return _number


def set_worker_number(number: int) -> None:
    """Sets the number of this worker; the executor that starts the worker calls this once."""
    global _number
    _number = number


def end_with(stop: Connection) -> None:
    """Ends this process as soon as its parent closes its side of the connection or is gone, even if killed."""
    multiprocessing.connection.wait([stop])
    os._exit(1)
