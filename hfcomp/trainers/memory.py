"""The most memory that a stage took: of the GPU where it trained on one, otherwise of the process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

GPU = "GPU"
RESIDENT = "resident"
RESIDENT_SO_FAR = "resident, of the whole run so far"


class PeakMemory:
    """Counts from its creation if the system lets a process reset its own maximum.

    That is so for CUDA and, for resident memory, on Linux (`/proc/self/clear_refs`). Elsewhere resident memory is the
    maximum of the process so far, earlier stages included, which `read` reports.
    """

    def __init__(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self.of_stage = _high_water_mark() is not None
        except OSError:
            self.of_stage = False

    def read(self, device: torch.device) -> tuple[int, str]:
        """Bytes, and what they are of: `GPU`, `RESIDENT` or `RESIDENT_SO_FAR`.

        Args:
            device: where the stage trained.
        """
        if device.type == "cuda":
            return torch.cuda.max_memory_allocated(device), GPU
        resident = _high_water_mark() if self.of_stage else None
        if resident is not None:
            return resident, RESIDENT
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return (peak if sys.platform == "darwin" else peak * 1024), RESIDENT_SO_FAR  # Linux counts in KiB


def _high_water_mark() -> int | None:
    """Bytes of `VmHWM`, where the system has such a line."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)
