"""Training step profile: phases, FLOPs and a trace of some steps, for the config field `profile`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from tqdm.auto import tqdm
from transformers import TrainerCallback

from hfcomp.distributed import world_size
from hfcomp.reporting.report import Lines, Report, Section, Table
from hfcomp.reporting.saving import render_markdown
from hfcomp.reporting.terminal import render_terminal
from hfcomp.writing import replacing, write_text

PROFILE_FILE, TRACE_FILE = "profile.md", "profile_trace.json.gz"
PHASES = {
    "data": "waiting for the batch and moving it to the device",
    "encode": "forward pass of the towers",
    "loss": "gathering over processes and computing the objective",
    "backward": "backward pass, with recomputed activations if any",
    "optimizer": "gradient norm, clipping and the update",
}
"""Phases of a step, in order. Each ends where the next one begins."""
PEAK_FLOPS = {
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "L40S": 362e12,
    "MI300X": 1300e12,
    "MI325X": 1300e12,
    "MI250X": 191.5e12,
}
"""Peak FLOP/s of dense bf16 and fp16 matrix products by a part of the device name; the first match counts.

Source:
    The vendors' data sheets, as quoted by `get_peak_flops` of pytorch/torchtitan (torchtitan/tools/utils.py). MI250X
    is the value for one of its two dies.
"""


def peak_flops(device_name: str) -> float | None:
    """Returns a device's peak FLOP/s, by the name that torch reports; `None` if it is not in the table."""
    return next((peak for name, peak in PEAK_FLOPS.items() if name in device_name), None)


def flop_counter() -> FlopCounterMode:
    """Returns torch's FLOP counter, extended to the fused attention of CPUs. A multiply-add counts as 2.

    Causal attention counts as full attention, as in torch's own formulas. Only matrix products and convolutions are
    counted; norms, activations and the optimizer are memory traffic.
    """
    return FlopCounterMode(display=False, custom_mapping=_cpu_attention())


def _cpu_attention() -> dict[Any, Any]:
    aten = torch.ops.aten

    def forward(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
        return sdpa_flop_count(query, key, value)

    def backward(gradient: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
        return sdpa_backward_flop_count(gradient, query, key, value)

    return {
        # torch's counter has no formulas for these operators and would count 0 for attention on a CPU.
        aten._scaled_dot_product_flash_attention_for_cpu: forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }


class Reader:
    """Observes some steps. This base class measures nothing, for the first steps (start-up and compilation)."""

    def begin(self) -> None:
        """Called before the first of its steps."""

    def enter(self, phase: str | None) -> None:
        """Called when a phase begins, with `None` for work outside of a step, such as logging or saving."""

    def end(self) -> None:
        """Called after the last of its steps."""


class PhaseClock(Reader):
    """Times each phase. On a GPU, between two events of its stream, because the host runs ahead (see the trace)."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[str | None, Any]] = []

    def enter(self, phase: str | None) -> None:
        if self._device.type == "cuda":
            # The host only queues work, so its clock would show when a phase was queued, not when it ran.
            mark = torch.cuda.Event(enable_timing=True)
            mark.record(torch.cuda.current_stream(self._device))
        else:
            mark = time.perf_counter()
        self._marks.append((phase, mark))

    def times(self) -> dict[str, float]:
        """Returns the seconds per phase of `PHASES`, summed over steps. Waits for the device."""
        seconds = dict.fromkeys(PHASES, 0.0)
        is_cuda = self._device.type == "cuda"
        if is_cuda:
            torch.cuda.synchronize(self._device)
        # A phase lasts until the next mark.
        for (phase, mark), (_, following) in itertools.pairwise(self._marks):
            if phase is not None:
                seconds[phase] += mark.elapsed_time(following) / 1000 if is_cuda else following - mark
        return seconds


class FlopReader(Reader):
    """Counts the floating-point operations of each phase. Compiled towers run uncompiled in these steps."""

    def __init__(self) -> None:
        self.flops = dict.fromkeys(PHASES, 0)
        self._counter: Any = None
        self._stack = ExitStack()
        self._phase: str | None = None
        self._counted = 0

    def begin(self) -> None:
        # A compiled graph hides its operators from the counter.
        self._stack.enter_context(torch.compiler.set_stance("force_eager"))
        self._counter = self._stack.enter_context(flop_counter())

    def enter(self, phase: str | None) -> None:
        # The counter never resets, so a phase gets what was added since the last boundary.
        counted = self._counter.get_total_flops()
        if self._phase is not None:
            self.flops[self._phase] += counted - self._counted
        self._phase, self._counted = phase, counted

    def end(self) -> None:
        self._stack.close()


class TraceReader(Reader):
    """Records a trace with a range for each phase, for Perfetto or `chrome://tracing`.

    Args:
        warn: Called with a message if the trace cannot be written.
    """

    def __init__(self, path: Path, device: torch.device, warn: Callable[[str], None]) -> None:
        self.path = path
        self._warn = warn
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        self._profile = profile(activities=activities)
        self._range: Any = None

    def begin(self) -> None:
        self._profile.start()

    def enter(self, phase: str | None) -> None:
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None
        if phase is not None:
            self._range = record_function(f"hfcomp: {phase}")
            self._range.__enter__()

    def end(self) -> None:
        self.enter(None)
        self._profile.stop()
        try:
            with replacing(self.path) as part:
                # The file name's extension decides whether the trace is compressed.
                named = part.with_name(f"{part.name}.json.gz")
                self._profile.export_chrome_trace(str(named))
                named.rename(part)
        except OSError as error:  # a full disk must not end the training
            self._warn(f"the trace cannot be written: {error}")


@dataclass(frozen=True)
class Profile:
    """Measurements of a training run.

    Attributes:
        times: Seconds per phase, summed over the steps.
        steps: Number of timed steps.
        pairs: Rows per step, over all processes.
        processes: Number of processes of the run; only the main one is measured.
        flops: Operations per phase, counted in one further step of this process. Empty if none were counted.
        recomputes: Whether the backward pass recomputes the activations of `encode`.
        device: Name of the device, or `cpu`.
        half: Whether the towers compute in half precision.
    """

    times: Mapping[str, float]
    steps: int
    pairs: int
    processes: int
    flops: Mapping[str, int]
    recomputes: bool
    device: str
    half: bool

    @property
    def seconds(self) -> float:
        """Seconds per step."""
        return sum(self.times.values()) / self.steps

    @property
    def model_flops(self) -> int:
        """Operations per step that the model needs, not counting activations that the backward pass recomputes."""
        return sum(self.flops.values()) - (self.flops["encode"] if self.recomputes else 0)


def profile_report(profile: Profile) -> Report:
    lines = [
        f"{profile.steps} steps of {profile.pairs:,} pairs on {profile.device}, measured after the start-up steps",
        f"{profile.pairs / profile.seconds:,.1f} pairs per second",
        *_utilization(profile),
        f"operators and their times: open {TRACE_FILE} at https://ui.perfetto.dev",
    ]
    if profile.processes > 1:
        lines.append(f"measured only on the main process of {profile.processes}")
    return Report("Time per training step", sections=[Section("", [_phases(profile), Lines(lines)])])


def _phases(profile: Profile) -> Table:
    rows = []
    for phase, description in PHASES.items():
        seconds = profile.times[phase] / profile.steps
        flops = format_amount(profile.flops[phase]) if profile.flops else ""
        rows.append([phase, description, f"{1000 * seconds:,.1f}", f"{seconds / profile.seconds:.1%}", flops])
    return Table("Milliseconds per step", ["phase", "what", "ms", "share", "FLOPs"], rows, labels=2)


def _utilization(profile: Profile) -> list[str]:
    if not profile.flops:
        return ["too few steps to count FLOPs"]
    rate = profile.model_flops / profile.seconds
    throughput = f"{format_amount(profile.model_flops)}FLOPs per step, {format_amount(rate)}FLOP/s"
    peak = peak_flops(profile.device)
    if peak is None:
        return [f"{throughput}; hfcomp's table has no peak for this device"]
    if not profile.half:
        return [f"{throughput}; the peaks in hfcomp's table are for half precision, this run computes in fp32"]
    share = f"{rate / peak:.1%} of the {format_amount(peak)}FLOP/s in its data sheet"
    return [f"{throughput}: {share} (model FLOPs utilization)"]


def format_amount(value: float) -> str:
    """Formats a number with three digits and its prefix, such as `4.41 T`, to be followed by the unit."""
    power = next((power for power in (4, 3, 2, 1) if value >= 1000**power), 0)
    return f"{value / 1000**power:.3g} {' kMGT'[power].strip()}"


class StepProfiler(TrainerCallback):
    """Measures steps of an hfcomp trainer from within, without changing what they compute.

    The first steps are skipped. Then some steps are timed phase by phase, one runs under torch's counter of
    floating-point operations, and some run under torch's profiler. Only the main process is measured. `profile.md` and
    `profile_trace.json.gz` are written to `output_dir`, and the table is printed when training ends.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._undo: list[Callable[[], None]] = []
        self._plan: Iterator[Reader] | None = None
        self._reader: Reader | None = None
        self._profile: Profile | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        plan = plan_steps(state.max_steps - state.global_step)
        if plan is None:
            left = state.max_steps - state.global_step
            tqdm.write(f"profile: only {left} training steps are left, but it needs at least 4. Nothing is measured.")
            return
        self._clock, self._flops, self._timed = PhaseClock(args.device), FlopReader(), 0
        trace = TraceReader(Path(args.output_dir) / TRACE_FILE, args.device, tqdm.write)
        readers = Reader(), self._clock, self._flops, trace
        self._plan = (reader for reader, steps in zip(readers, plan, strict=True) for _ in range(steps))
        self._install_hooks()
        self._next()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._reader is None:
            return
        # Logging, saving and evaluation come after a step and belong to no phase.
        self._reader.enter(None)
        self._timed += self._reader is self._clock
        self._next()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Prints the table, even if training ended before everything was measured."""
        if self._reader is not None:
            self._reader.end()
            self._finish()
        if self._profile is not None:
            render_terminal(profile_report(self._profile), folder=Path(args.output_dir))
            self._profile = None

    def _next(self) -> None:
        # Readers change between two steps; after the last reader, all hooks are removed and the results written.
        following = next(self._plan, None)
        if following is self._reader:
            return
        if self._reader is not None:
            self._reader.end()
        self._reader = following
        if following is None:
            self._finish()
        else:
            following.begin()

    def _finish(self) -> None:
        for undo in self._undo:
            undo()
        self._undo, self._reader = [], None
        if not self._timed:
            tqdm.write("profile: training ended before a step was timed. Nothing was written.")
            return
        args, model = self._trainer.args, self._trainer.model
        counted = dict(self._flops.flops) if any(self._flops.flops.values()) else {}
        recomputes = model.mini_batch_size is not None or model.is_activation_checkpointing
        rows = self._trainer.all_rows_per_batch(args.train_batch_size) * args.gradient_accumulation_steps
        self._profile = Profile(
            times=self._clock.times(),
            steps=self._timed,
            pairs=rows * world_size(),
            processes=world_size(),
            flops=counted,
            recomputes=recomputes,
            device=torch.cuda.get_device_name(args.device) if args.device.type == "cuda" else args.device.type,
            half=args.bf16 or args.fp16,
        )
        write_text(Path(args.output_dir) / PROFILE_FILE, render_markdown(profile_report(self._profile)))

    def _install_hooks(self) -> None:
        # The phase boundaries: requesting a batch, the encoder's forward pass, and the backward pass.
        encoder, trainer = self._trainer.model, self._trainer
        hooks = (
            encoder.register_forward_pre_hook(lambda *_: self._enter("encode")),
            encoder.register_forward_hook(lambda *_: self._enter("loss")),
        )
        self._undo = [hook.remove for hook in hooks]
        self._wrap(trainer, "get_batch_samples", "data", None)
        self._wrap(trainer.accelerator, "backward", "backward", "optimizer")

    def _wrap(self, owner: Any, name: str, before: str, after: str | None) -> None:
        method = getattr(owner, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._enter(before)
            result = method(*args, **kwargs)
            if after is not None:
                self._enter(after)
            return result

        setattr(owner, name, wrapper)
        self._undo.append(lambda: delattr(owner, name))  # restores the class's method

    def _enter(self, phase: str) -> None:
        # An evaluation between two steps also encodes.
        if self._reader is not None and (phase != "encode" and phase != "loss" or self._trainer.model.training):
            self._reader.enter(phase)


def plan_steps(steps: int) -> tuple[int, int, int, int] | None:
    """Returns the numbers of steps to skip, time, count and trace, in this order; `None` for fewer than 4 steps."""
    if steps < 4:
        return None
    # In the first steps, libraries choose kernels, allocate and compile. Counting one step is enough, because all
    # steps run the same operations.
    skipped, traced = (3, 3) if steps >= 17 else (1, 1)
    return skipped, min(10, steps - skipped - 1 - traced), 1, traced
