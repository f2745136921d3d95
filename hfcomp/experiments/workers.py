"""Trains several arms at the same time, each in a separate process with a share of the CPU threads."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tqdm import tqdm

from hfcomp.experiments.arm import Arm
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.tracking import tracked_arm
from hfcomp.trainers.cost import StageSummary
from hfcomp.trainers.progress import Pace
from hfcomp.workers import end_with

# A forked process inherits torch's thread pools without their threads, and may hang in its first parallel operation.
START_METHOD = "spawn"
REFRESH = 0.5  # seconds between updates of the step count
DIED = (
    "a process that trained a model ended unexpectedly, for example because it ran out of memory. Finished models are "
    "kept. Pass --arms_at_once 1 to train the others one after the other."
)
_steps: Any = None  # in a worker: the step counter shared by all workers


def arms_at_once(number: int, session: Session) -> int:
    """Number of arms that train at the same time: 1 unless they train on the CPU in a single process."""
    state = session.state
    if number > 1 and (state.num_processes > 1 or state.device.type != "cpu"):
        session.log("arms_at_once works only on a CPU in a run with one process; training runs one after the other")
        return 1
    return number


@dataclass
class Workers:
    """Processes that train arms, and a progress bar that counts the steps of all of them."""

    folder: Path  # folder of the study
    pool: ProcessPoolExecutor
    steps: Any
    bar: tqdm
    runs: int
    futures: list[Future[StageSummary]] = field(default_factory=list)

    def submit(self, arm: Arm, start: Path | str, folder: Path) -> Future[StageSummary]:
        """Trains an arm as soon as a process is free."""
        if (most := arm.arguments.get("max_steps", -1)) > 0:
            self.bar.total = self.runs * most
        with _without_main(arm.trainer_class):
            self.futures.append(self.pool.submit(_train, self.folder, arm, start, folder))
        return self.futures[-1]

    def result(self, future: Future[StageSummary]) -> StageSummary:
        """Waits for an arm; raises the error of any arm that failed."""
        while True:
            done, _ = wait([future], REFRESH)
            self.bar.n = self.steps.value
            self.bar.refresh()
            try:
                # Checks all arms, not only this one; otherwise an error in the last arm would wait for the first.
                for finished in filter(Future.done, self.futures):
                    finished.result()
            except BrokenProcessPool:
                raise ChildProcessError(DIED) from None
            if done:
                return future.result()


@contextmanager
def open_workers(session: Session, folder: Path, number: int, runs: int) -> Iterator[Workers]:
    """Starts `number` worker processes, which end with the block, an interrupt or this process."""
    context = multiprocessing.get_context(START_METHOD)
    stop, alive = context.Pipe(duplex=False)
    steps, threads = context.Value("q", 0), max(1, torch.get_num_threads() // number)
    pool = ProcessPoolExecutor(number, context, _start_worker, (session.machine, threads, stop, steps))
    bar = tqdm(desc=f"{runs} runs, {number} at a time", disable=session.quiet)
    try:
        yield Workers(folder, pool, steps, bar, runs)
        pool.shutdown()
    finally:
        # Workers hold the other end of the pipe. They end when it closes, even if this process is killed.
        alive.close()
        pool.shutdown(wait=False, cancel_futures=True)
        bar.close()


def _start_worker(arguments: dict[str, Any], threads: int, stop: Any, steps: Any) -> None:
    global _steps
    _steps = steps
    # Ctrl-C reaches the whole process group. The parent process handles it and ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with, args=(stop,), daemon=True).start()
    # A session would take the value 1 for a launcher's default and use all cores.
    os.environ.pop("OMP_NUM_THREADS", None)
    open_session(arguments)
    torch.set_num_threads(threads)


def _train(study: Path, arm: Arm, start: Path | str, folder: Path) -> StageSummary:
    return arm.train(start, folder, Pace(counter=_steps), tracked_arm(study, arm))


@contextmanager
def _without_main(trainer_class: type) -> Iterator[None]:
    # A spawned process runs the caller's script again to rebuild its `__main__`. A script without the guard `if
    # __name__ == "__main__"` would start the study again, so workers get an empty `__main__`, unless the trainer is
    # defined in it.
    main = sys.modules["__main__"]
    if trainer_class.__module__ != "__main__":
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
