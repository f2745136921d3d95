"""What is read at the borders between the phases of a step: clocks, counted FLOPs, ranges of a trace."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from hfcomp.trainers.profiling.flops import flop_counter
from hfcomp.writing import replacing

PHASES = ("data", "encode", "loss", "backward", "optimiser")
"""Of a step, in their order; each ends where the next one begins."""


class Reader(Protocol):
    """Observes some steps."""

    def begin(self) -> None:
        """The first of the steps is next."""

    def enter(self, phase: str | None) -> None:
        """A phase begins, or with `None` what is no part of a step, such as logging or saving."""

    def end(self) -> None:
        """The last of the steps has ended."""


class NoReader:
    """Observes nothing: the first steps, in which libraries start and towers are compiled."""

    def begin(self) -> None:
        """Nothing to start."""

    def enter(self, phase: str | None) -> None:
        """Nothing to read."""

    def end(self) -> None:
        """Nothing to stop."""


@dataclass
class PhaseTime:
    """Seconds of a phase, summed over steps.

    Attributes:
        wall: of the host's clock. On a GPU the host runs ahead: this is the time that it took to submit the work.
        cpu: of all threads of this process.
        device: between the same two places on the device's stream; `None` on the CPU.
    """

    wall: float = 0.0
    cpu: float = 0.0
    device: float | None = None


class PhaseClock:
    """Adds up the seconds of each phase. Reads no value from the device before `times` is called.

    Args:
        device: that trains.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[str | None, float, float, Any]] = []

    def begin(self) -> None:
        """Nothing to start: clocks run."""

    def enter(self, phase: str | None) -> None:
        """Reads the clocks."""
        self._marks.append((phase, time.perf_counter(), time.process_time(), self._event()))

    def end(self) -> None:
        """Nothing to stop."""

    def times(self) -> dict[str, PhaseTime]:
        """Of each phase of `PHASES`; waits for the device."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        found = {phase: PhaseTime() for phase in PHASES}
        for (phase, wall, cpu, event), (_, next_wall, next_cpu, next_event) in zip(
            self._marks, self._marks[1:], strict=False
        ):
            if phase is None:
                continue
            of_phase = found[phase]
            of_phase.wall += next_wall - wall
            of_phase.cpu += next_cpu - cpu
            if event is not None:
                of_phase.device = (of_phase.device or 0.0) + event.elapsed_time(next_event) / 1000
        return found

    def _event(self) -> Any:
        if self._device.type != "cuda":
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event


class FlopReader:
    """Counts the floating-point operations of each phase. Compiled towers run uncompiled meanwhile."""

    def __init__(self) -> None:
        self.flops = dict.fromkeys(PHASES, 0)
        self._counter: Any = None
        self._stack = ExitStack()
        self._phase: str | None = None
        self._counted = 0

    def begin(self) -> None:
        """Starts the counter."""
        self._stack.enter_context(torch.compiler.set_stance("force_eager"))
        self._counter = self._stack.enter_context(flop_counter())

    def enter(self, phase: str | None) -> None:
        """Adds what was counted to the phase that ends."""
        counted = self._counter.get_total_flops()
        if self._phase is not None:
            self.flops[self._phase] += counted - self._counted
        self._phase, self._counted = phase, counted

    def end(self) -> None:
        """Stops the counter."""
        self._stack.close()


class TraceReader:
    """Records a trace with a range for each phase, for Perfetto or `chrome://tracing`.

    Args:
        path: that the trace is written to when it ends, gzipped JSON.
        device: that trains.
        warn: receives a line where it cannot be written.
    """

    def __init__(self, path: Path, device: torch.device, warn: Callable[[str], None]) -> None:
        self.path = path
        self._warn = warn
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        self._profile = profile(activities=activities)
        self._range: Any = None

    def begin(self) -> None:
        """Starts the profiler."""
        self._profile.start()

    def enter(self, phase: str | None) -> None:
        """Closes a range and opens the next."""
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None
        if phase is not None:
            self._range = record_function(f"hfcomp: {phase}")
            self._range.__enter__()

    def end(self) -> None:
        """Stops the profiler and writes the trace."""
        self.enter(None)
        self._profile.stop()
        try:
            with replacing(self.path) as part:
                # the ending decides whether it is compressed
                named = part.with_name(f"{part.name}.json.gz")
                self._profile.export_chrome_trace(str(named))
                named.rename(part)
        except OSError as error:  # a full disk must not end the training
            self._warn(f"the trace cannot be written: {error}")
