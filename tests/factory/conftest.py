"""Processes of builds that need not import everything anew."""

from __future__ import annotations

import multiprocessing

import pytest

from hfcomp.factory import executors
from tests import processes


@pytest.fixture(scope="session")
def context() -> multiprocessing.context.ForkServerContext:
    return processes.forkserver()


@pytest.fixture
def quick_workers(context, monkeypatch) -> None:
    """Has the executor `local` fork its workers from a process that has imported what they need."""
    monkeypatch.setattr(executors, "START_METHOD", "forkserver")
