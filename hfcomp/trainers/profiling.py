"""Where the time of a training step goes: phases, FLOPs and a trace of some steps, for the field `profile`."""

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
    "data": "waiting for the batch, and moving it to the device",
    "encode": "forward pass of the towers",
    "loss": "gathering over processes, and the objective",
    "backward": "backward pass, with recomputed activations if any",
    "optimizer": "gradient norm, clipping, the update",
}
"""Of a step, in their order; each ends where the next one begins."""
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
"""FLOP/s of bf16 and fp16 matrix products without sparsity, by a part of the device's name, the first that fits.

Source:
    the vendors' data sheets, as `get_peak_flops` of pytorch/torchtitan (torchtitan/tools/utils.py) has them; MI250X is
    of one of its two dies.
"""


def peak_flops(device_name: str) -> float | None:
    """FLOP/s of a device at its peak, by the name that torch gives it; `None` if it is not in the table."""
    return next((peak for name, peak in PEAK_FLOPS.items() if name in device_name), None)


def flop_counter() -> FlopCounterMode:
    """Torch's counter, which also counts the fused attention of CPUs; 2 for a multiply-add.

    Causal attention counts as full attention, as in torch's own formulas. Products alone are counted, and
    convolutions: norms, activations and the optimizer are memory traffic.
    """
    return FlopCounterMode(display=False, custom_mapping=_cpu_attention())


def _cpu_attention() -> dict[Any, Any]:
    aten = torch.ops.aten

    def forward(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
        return sdpa_flop_count(query, key, value)

    def backward(gradient: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
        return sdpa_backward_flop_count(gradient, query, key, value)

    return {
        # torch's counter has no formulas for these operators, and would count 0 for attention on a CPU.
        aten._scaled_dot_product_flash_attention_for_cpu: forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }


class Reader:
    """Observes some steps; this one nothing: the first steps, in which libraries start and towers are compiled."""

    def begin(self) -> None:
        """The first of the steps is next."""

    def enter(self, phase: str | None) -> None:
        """A phase begins, or with `None` what is no part of a step, such as logging or saving."""

    def end(self) -> None:
        """The last of the steps has ended."""


class PhaseClock(Reader):
    """Times each phase, on a GPU between two places of its stream: the host runs ahead, which the trace shows."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[str | None, Any]] = []

    def enter(self, phase: str | None) -> None:
        if self._device.type == "cuda":
            # The host only queues work: its own clock would say when a phase was queued, not when it ran.
            mark = torch.cuda.Event(enable_timing=True)
            mark.record(torch.cuda.current_stream(self._device))
        else:
            mark = time.perf_counter()
        self._marks.append((phase, mark))

    def times(self) -> dict[str, float]:
        """Seconds of each phase of `PHASES`, summed over steps; waits for the device."""
        found = dict.fromkeys(PHASES, 0.0)
        is_cuda = self._device.type == "cuda"
        if is_cuda:
            torch.cuda.synchronize(self._device)
        # A phase lasts until the next mark.
        for (phase, mark), (_, following) in itertools.pairwise(self._marks):
            if phase is not None:
                found[phase] += mark.elapsed_time(following) / 1000 if is_cuda else following - mark
        return found


class FlopReader(Reader):
    """Counts the floating-point operations of each phase. Compiled towers run uncompiled meanwhile."""

    def __init__(self) -> None:
        self.flops = dict.fromkeys(PHASES, 0)
        self._counter: Any = None
        self._stack = ExitStack()
        self._phase: str | None = None
        self._counted = 0

    def begin(self) -> None:
        # A compiled graph calls no operators that the counter would see.
        self._stack.enter_context(torch.compiler.set_stance("force_eager"))
        self._counter = self._stack.enter_context(flop_counter())

    def enter(self, phase: str | None) -> None:
        # The counter runs on, so a phase has what was added since the last border.
        counted = self._counter.get_total_flops()
        if self._phase is not None:
            self.flops[self._phase] += counted - self._counted
        self._phase, self._counted = phase, counted

    def end(self) -> None:
        self._stack.close()


class TraceReader(Reader):
    """Records a trace with a range for each phase, for Perfetto or `chrome://tracing`.

    Args:
        warn: receives a line where it cannot be written.
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
                # The file name's ending decides whether the trace is compressed.
                named = part.with_name(f"{part.name}.json.gz")
                self._profile.export_chrome_trace(str(named))
                named.rename(part)
        except OSError as error:  # a full disk must not end the training
            self._warn(f"the trace cannot be written: {error}")


@dataclass(frozen=True)
class Profile:
    """What was measured.

    Attributes:
        times: seconds of each phase, summed over the steps.
        steps: that were timed.
        pairs: rows of a step, over all processes.
        processes: of the run; the others are not measured.
        flops: counted in one further step of this process, by phase; empty where none was counted.
        recomputes: whether the backward pass computes the activations of `encode` again.
        device: its name, or `cpu`.
        half: whether the towers compute in half precision.
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
        """Seconds of a step."""
        return sum(self.times.values()) / self.steps

    @property
    def model_flops(self) -> int:
        """Operations of a step that the model needs: activations that the backward pass recomputes do not count."""
        return sum(self.flops.values()) - (self.flops["encode"] if self.recomputes else 0)


def profile_report(profile: Profile) -> Report:
    lines = [
        f"{profile.steps} steps of {profile.pairs:,} pairs on {profile.device}, after those in which libraries start",
        f"{profile.pairs / profile.seconds:,.1f} pairs per second",
        *_utilization(profile),
        f"operators and their times: {TRACE_FILE}, for https://ui.perfetto.dev",
    ]
    if profile.processes > 1:
        lines.append(f"measured on the main process alone, of {profile.processes}")
    return Report("Where the time of a step goes", sections=[Section("", [_phases(profile), Lines(lines)])])


def _phases(profile: Profile) -> Table:
    rows = []
    for phase, what in PHASES.items():
        seconds = profile.times[phase] / profile.steps
        flops = amount(profile.flops[phase]) if profile.flops else ""
        rows.append([phase, what, f"{1000 * seconds:,.1f}", f"{seconds / profile.seconds:.1%}", flops])
    return Table("Milliseconds of a step", ["phase", "what", "ms", "share", "FLOPs"], rows, labels=2)


def _utilization(profile: Profile) -> list[str]:
    if not profile.flops:
        return ["too few steps to count FLOPs"]
    rate = profile.model_flops / profile.seconds
    spent = f"{amount(profile.model_flops)}FLOPs in a step, {amount(rate)}FLOP/s"
    peak = peak_flops(profile.device)
    if peak is None:
        return [f"{spent}; the peak of this device is not in hfcomp's table"]
    if not profile.half:
        return [f"{spent}; the table of peaks is of half precision, and this run computes in fp32"]
    return [f"{spent}: {rate / peak:.1%} of the {amount(peak)}FLOP/s of its data sheet (model FLOPs utilization)"]


def amount(value: float) -> str:
    """A number with three digits and its prefix, as `4.41 T`; the unit is to follow."""
    power = next((power for power in (4, 3, 2, 1) if value >= 1000**power), 0)
    return f"{value / 1000**power:.3g} {' kMGT'[power].strip()}"


class StepProfiler(TrainerCallback):
    """Measures steps of a trainer of hfcomp from within, and changes nothing that they compute.

    The first steps are left out. Then some are timed, phase by phase, one runs under torch's counter of
    floating-point operations, and some under torch's profiler. The main process measures itself alone. `profile.md`
    and `profile_trace.json.gz` go to `output_dir`, and the table to the terminal when training ends.
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
            tqdm.write(f"profile: training has {left} steps left, at least 4 are needed. Nothing is measured.")
            return
        self._clock, self._flops, self._timed = PhaseClock(args.device), FlopReader(), 0
        trace = TraceReader(Path(args.output_dir) / TRACE_FILE, args.device, tqdm.write)
        readers = Reader(), self._clock, self._flops, trace
        self._plan = (reader for reader, steps in zip(readers, plan, strict=True) for _ in range(steps))
        self._watch()
        self._next()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._reader is None:
            return
        # Logging, saving and evaluating come after a step and belong to no phase.
        self._reader.enter(None)
        self._timed += self._reader is self._clock
        self._next()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Prints the table, also of a training that ended before all was measured."""
        if self._reader is not None:
            self._reader.end()
            self._finish()
        if self._profile is not None:
            render_terminal(profile_report(self._profile), folder=Path(args.output_dir))
            self._profile = None

    def _next(self) -> None:
        # Readers change between two steps; after the last one all is undone and written.
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
            tqdm.write("profile: training ended before a step was timed. Nothing is written.")
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

    def _watch(self) -> None:
        # The borders of phases: the request for a batch, the encoder's forward, and the backward pass.
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

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._enter(before)
            result = method(*args, **kwargs)
            if after is not None:
                self._enter(after)
            return result

        setattr(owner, name, watched)
        self._undo.append(lambda: delattr(owner, name))  # the class's own again

    def _enter(self, phase: str) -> None:
        # An evaluation between two steps encodes too.
        if self._reader is not None and (phase != "encode" and phase != "loss" or self._trainer.model.training):
            self._reader.enter(phase)


def plan_steps(steps: int) -> tuple[int, int, int, int] | None:
    """How many of a training's steps are left out, timed, counted and traced, in this order; `None` if below 4."""
    if steps < 4:
        return None
    # In the first steps libraries choose kernels, allocate and compile. One counted step is enough, since all have the
    # same operations.
    skipped, traced = (3, 3) if steps >= 17 else (1, 1)
    return skipped, min(10, steps - skipped - 1 - traced), 1, traced
