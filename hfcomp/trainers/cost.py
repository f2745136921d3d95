"""What a training run cost: steps, encoded images and texts, seconds and memory, also of one that was resumed."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

ELAPSED = "elapsed_seconds"
# Kinds of peak memory.
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
            # 5 resets the high water mark of resident memory to what is resident now (man proc_pid_clear_refs).
            Path("/proc/self/clear_refs").write_text("5")
            self.of_stage = _high_water_mark() is not None
        except OSError:
            self.of_stage = False

    def read(self, device: torch.device) -> tuple[int, str]:
        """Bytes, and what they are of: `GPU`, `RESIDENT` or `RESIDENT_SO_FAR`."""
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


@dataclass
class StageSummary:
    """What a run cost.

    Attributes:
        name: of the stage.
        steps: optimizer steps.
        images: images encoded, negative ones too, over all processes.
        texts: texts encoded, likewise.
        seconds: of training, without loading; of a resumed run without the steps that were lost.
        images_per_second: over all of it.
        peak_memory_gib: of this process.
        loss: the last logged one.
        truncated_text_share: texts longer than the text tower, as a share of all.
        peak_memory_of: `GPU`, `resident`, or where the system cannot separate stages, `resident, of the whole run so
            far`.
    """

    name: str
    steps: int
    images: int
    texts: int
    seconds: float
    images_per_second: float
    peak_memory_gib: float
    loss: float
    truncated_text_share: float
    peak_memory_of: str = RESIDENT_SO_FAR


class Clock(TrainerCallback):
    """Seconds of training in every line of the log, which a resumed run continues from its checkpoint."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # As if training had never stopped: a resumed run begins with the seconds of its checkpoint's last line.
        self.started = time.perf_counter() - elapsed(state.log_history)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # The Trainer appends the line before it calls callbacks.
        state.log_history[-1][ELAPSED] = round(time.perf_counter() - self.started, 2)


def elapsed(history: list[dict[str, float]]) -> float:
    return next((line[ELAPSED] for line in reversed(history) if ELAPSED in line), 0.0)


def summarize_stage(name: str, trainer: Any, memory: PeakMemory) -> StageSummary:
    history = trainer.state.log_history
    lines = [line for line in history if "images_encoded" in line]
    images = int(sum(line["images_encoded"] for line in lines))
    texts = int(sum(line["texts_encoded"] for line in lines))
    # A line's share refers to its own texts, so it is weighted by their number.
    truncated = sum(line.get("truncated_text_share", 0.0) * line["texts_encoded"] for line in lines)
    losses = [line["loss"] for line in history if "loss" in line]
    seconds = elapsed(history)
    peak, peak_of = memory.read(trainer.args.device)
    return StageSummary(
        name=name,
        steps=trainer.state.global_step,
        images=images,
        texts=texts,
        seconds=seconds,
        images_per_second=round(images / max(seconds, 1e-9), 2),
        peak_memory_gib=round(peak / 2**30, 3),
        peak_memory_of=peak_of,
        loss=losses[-1] if losses else history[-1].get("train_loss", float("nan")),
        truncated_text_share=truncated / max(texts, 1),
    )
