"""Builds that are killed at random moments, for tests of any build."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from hfcomp.data.built_sets.files import UNFINISHED
from tests.factory import builds


def survive_kills(start: Callable[[Path], BaseProcess], folder: Path, *, kills: int = 20, seed: int = 0) -> list[int]:
    """Kills builds with SIGKILL at random moments and resumes them; all end with the bytes of one left alone.

    A killed build is resumed until it ends, so that kills meet it at every place; then another is begun.

    Args:
        start: begins or resumes the build in a folder, as a started process of its own; returns when what is to be
            killed begins.
        folder: for all builds.
        kills: of running builds; each moment is drawn from the time that a whole build takes.
        seed: of the moments.

    Returns:
        How many shards were finished at each kill.
    """
    seconds, expected, counts = float("inf"), [], []
    for name in ("first", "second"):  # the second finds everything loaded
        process, clock = start(folder / name), time.monotonic()
        expected.append(builds.hashes(_ended(process, folder / name)))
        seconds = min(seconds, time.monotonic() - clock)
    assert expected[0] == expected[1]
    rng, number = random.Random(seed), 0
    while len(counts) < kills:
        process = start(folder / str(number))
        process.join(rng.uniform(0, seconds))
        if process.is_alive():
            process.kill()
            process.join()
            with contextlib.suppress(ProcessLookupError):  # no group of its own
                os.killpg(process.pid, signal.SIGKILL)
            counts.append(len(list((folder / str(number)).rglob(f"{UNFINISHED}/[0-9]*.json"))))
        else:
            assert builds.hashes(_ended(process, folder / str(number))) == expected[0], (seed, number)
            number += 1
    assert builds.hashes(_ended(start(folder / str(number)), folder / str(number))) == expected[0], (seed, number)
    return counts


def _ended(process: BaseProcess, folder: Path) -> Path:
    process.join()
    assert process.exitcode == 0
    return folder
