"""The processes of a run, and what is told while it goes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from transformers.utils.logging import disable_progress_bar

from hfcomp.data.urls import DEFAULT_TIMEOUT, UrlAccess, set_url_access
from hfcomp.distributed import check_world_size, fail_together, gather_objects

T = TypeVar("T")
# Seconds that the other processes wait for the main one, which evaluates alone: a day, as benchmarks can take hours.
DDP_TIMEOUT = 24 * 3600


@dataclass
class Session:
    """What every part of a run talks to.

    Attributes:
        state: the processes.
        notes: the lines that were told, which the report repeats.
        overlaps: what was found of images that are both trained on and scored, by the rows that it was found for.
        searched: the scored images that rows were compared with and what was found, by what decides the rows' images.
    """

    state: PartialState
    notes: list[str] = field(default_factory=list)
    overlaps: dict[str, dict[str, Any]] = field(default_factory=dict)
    searched: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def tell(self, note: str) -> None:
        """Prints a line and keeps it for the report, each line once."""
        if note not in self.notes:
            self.notes.append(note)
            self.state.print(note)

    def keep(self, note: str) -> None:
        """Keeps a line for the report that the trainer prints itself."""
        if note not in self.notes:
            self.notes.append(note)

    def on_main(self, work: Callable[[], T]) -> T | None:
        """What the main process alone does while the others wait for it; they fail with it, and get `None`."""
        with fail_together():
            return work() if self.state.is_main_process else None

    def from_main(self, work: Callable[[], T]) -> T:
        """Like `on_main`, and all processes get the result, by pickle."""
        with fail_together():
            return gather_objects(work() if self.state.is_main_process else None)[0]

    def close(self) -> None:
        """Waits for all processes and ends their group."""
        self.state.wait_for_everyone()
        if self.state.num_processes > 1:
            self.state.destroy_process_group()


def open_session(arguments: dict[str, Any]) -> Session:
    """Starts the processes.

    Args:
        arguments: of the trainer; `use_cpu`, `ddp_timeout`, `allow_urls` and `url_timeout` are read.

    Raises:
        ValueError: for several processes that accelerate takes for one.
    """
    wait = timedelta(seconds=float(arguments.get("ddp_timeout") or DDP_TIMEOUT))
    on_cpu = bool(arguments.get("use_cpu")) or not torch.accelerator.is_available()
    state = PartialState(cpu=on_cpu, timeout=wait)
    check_world_size(state.num_processes)
    _use_all_cores(state)
    set_url_access(
        UrlAccess.asked(bool(arguments.get("allow_urls")), float(arguments.get("url_timeout") or DEFAULT_TIMEOUT))
    )
    disable_progress_bar()  # of loading and writing weights; the stages show their own
    return Session(state)


def _use_all_cores(state: PartialState) -> None:
    """`accelerate launch` sets one thread per process where nothing is set; a CPU run would take twice as long."""
    if (
        state.device.type != "cpu"
        or os.environ.get("OMP_NUM_THREADS") != "1"
        or "ACCELERATE_MIXED_PRECISION" not in os.environ
    ):
        return
    threads = max(1, (os.cpu_count() or 1) // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    if threads > 1:
        torch.set_num_threads(threads)
        state.print(f"{threads} threads per process (accelerate launch had set OMP_NUM_THREADS=1)")
