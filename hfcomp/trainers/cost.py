"""Cost of a training run: steps, encoded images and texts, seconds and memory, including runs that were resumed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from hfcomp.platforms import max_resident_bytes

ELAPSED = "elapsed_seconds"
# Kinds of peak memory
GPU = "GPU"
RESIDENT = "resident"
RESIDENT_SO_FAR = "resident, of the whole run so far"


class PeakMemory:
    """Peak memory since the object's creation, if the system lets a process reset its own maximum.

    CUDA does, and Linux does for resident memory (`/proc/self/clear_refs`). Elsewhere resident memory is the maximum
    of the process so far, including earlier stages, and `read` says so.
    """

    def __init__(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
        try:
            # 5 resets the high-water mark of resident memory to the current value (man proc_pid_clear_refs).
            Path("/proc/self/clear_refs").write_text("5")
            self.has_own_peak = _high_water_mark() is not None
        except OSError:
            self.has_own_peak = False

    def read(self, device: torch.device) -> tuple[int, str]:
        """Returns the bytes and their kind: `GPU`, `RESIDENT` or `RESIDENT_SO_FAR`."""
        if device.type == "cuda":
            return torch.cuda.max_memory_allocated(device), GPU
        resident = _high_water_mark() if self.has_own_peak else None
        if resident is not None:
            return resident, RESIDENT
        return max_resident_bytes(), RESIDENT_SO_FAR


def _high_water_mark() -> int | None:
    """Bytes of `VmHWM`, or None if the system has no such line."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


@dataclass
class StageSummary:
    """Cost of a run.

    Attributes:
        name: Name of the stage.
        steps: Number of optimizer steps.
        images: Number of encoded images over all processes, including negative images.
        texts: Number of encoded texts over all processes, including negatives.
        seconds: Training time without loading. For a resumed run, steps that were lost do not count.
        images_per_second: Mean over the whole run.
        peak_memory_gib: Peak memory of this process.
        loss: Last logged loss.
        truncated_text_share: Share of texts that are too long for the text tower.
        peak_memory_of: `GPU`, `resident`, or, if the system cannot separate stages, `resident, of the whole run so
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
    """Adds the seconds of training to every log line. A resumed run continues from its checkpoint's."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # As if training had never stopped: a resumed run starts with the seconds in its checkpoint's last line.
        self.started = time.perf_counter() - elapsed_seconds(state.log_history)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # The Trainer appends the line before it calls callbacks.
        state.log_history[-1][ELAPSED] = round(time.perf_counter() - self.started, 2)


def elapsed_seconds(history: list[dict[str, float]]) -> float:
    return next((line[ELAPSED] for line in reversed(history) if ELAPSED in line), 0.0)


def summarize_stage(name: str, trainer: Any, memory: PeakMemory) -> StageSummary:
    history = trainer.state.log_history
    lines = [line for line in history if "images_encoded" in line]
    images = int(sum(line["images_encoded"] for line in lines))
    texts = int(sum(line["texts_encoded"] for line in lines))
    # The share in a line covers its own texts only, so weight it by their number.
    truncated = sum(line.get("truncated_text_share", 0.0) * line["texts_encoded"] for line in lines)
    losses = [line["loss"] for line in history if "loss" in line]
    seconds = elapsed_seconds(history)
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
