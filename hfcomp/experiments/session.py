"""The processes of a run and the notes that it logs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from accelerate import PartialState
from transformers.utils.logging import disable_progress_bar

from hfcomp.data.overlap.policy import OverlapRecord
from hfcomp.data.urls import DEFAULT_TIMEOUT, UrlAccess, set_url_access
from hfcomp.distributed import check_world_size

# Seconds that processes wait while one of them loads and filters a large dataset: a day.
DDP_TIMEOUT = 24 * 3600
# Trainer fields that concern this machine and not the training.
MACHINE_FIELDS = ("use_cpu", "ddp_timeout", "allow_urls", "url_timeout", "disable_tqdm")


@dataclass
class Session:
    """State that all parts of a run share."""

    state: PartialState
    machine: dict[str, Any] = field(default_factory=dict)  # values of `MACHINE_FIELDS`
    notes: list[str] = field(default_factory=list)  # logged lines, which the report repeats
    overlap: OverlapRecord = field(default_factory=OverlapRecord)  # images that are both trained on and scored

    @property
    def device(self) -> str | None:
        """Device for scoring; None for a GPU if available."""
        return "cpu" if self.machine.get("use_cpu") else None

    @property
    def quiet(self) -> bool:
        """Whether progress bars are hidden."""
        return bool(self.machine.get("disable_tqdm"))

    def log(self, note: str, *, show: bool = True) -> None:
        """Keeps a line for the report and prints it if `show` is set; each line only once."""
        if note not in self.notes:
            self.notes.append(note)
            if show:
                self.state.print(note)

    def close(self) -> None:
        """Waits for all processes and ends their group."""
        self.state.wait_for_everyone()
        if self.state.num_processes > 1:
            self.state.destroy_process_group()


def open_session(arguments: dict[str, Any]) -> Session:
    """Starts the processes, using the trainer arguments that are `MACHINE_FIELDS`."""
    wait = timedelta(seconds=float(arguments.get("ddp_timeout") or DDP_TIMEOUT))
    on_cpu = bool(arguments.get("use_cpu")) or not torch.accelerator.is_available()
    state = PartialState(cpu=on_cpu, timeout=wait)
    check_world_size(state.num_processes)
    _use_all_cores(state)
    set_url_access(
        UrlAccess.from_settings(
            bool(arguments.get("allow_urls")), float(arguments.get("url_timeout") or DEFAULT_TIMEOUT)
        )
    )
    # Hides the bars for loading and writing weights; the stages show their own bars.
    disable_progress_bar()
    return Session(state, {name: arguments[name] for name in MACHINE_FIELDS if name in arguments})


def _use_all_cores(state: PartialState) -> None:
    # `accelerate launch` sets one thread per process unless the user has set a number, and a CPU run would then take
    # twice as long. Its mixed precision variable shows that the launcher, not the user, chose one thread.
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
