"""`StepProfiler`: measures some steps of a training and writes what it found beside the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import TrainerCallback

from hfcomp.distributed import world_size
from hfcomp.reporting.saving import render_markdown
from hfcomp.reporting.terminal import render_terminal
from hfcomp.trainers.profiling.flops import model_flops
from hfcomp.trainers.profiling.phases import FlopReader, NoReader, PhaseClock, Reader, TraceReader
from hfcomp.trainers.profiling.report import PROFILE_FILE, TRACE_FILE, Profile, profile_report
from hfcomp.writing import write_text


@dataclass(frozen=True)
class StepPlan:
    """How many steps are left out, timed, counted and traced, one after the other."""

    skipped: int
    timed: int
    counted: int
    traced: int

    @classmethod
    def of(cls, steps: int) -> StepPlan | None:
        """For a training of so many steps; `None` for fewer than 4."""
        if steps < 4:
            return None
        skipped, traced = (3, 3) if steps >= 17 else (1, 1)
        return cls(skipped, min(10, steps - skipped - 1 - traced), 1, traced)


class StepProfiler(TrainerCallback):
    """Measures steps of a trainer of hfcomp from within, and changes nothing that they compute.

    The first steps are left out. Then some are timed, phase by phase, one runs under torch's counter of
    floating-point operations, and some under torch's profiler. The main process measures itself alone. `profile.md`
    and `profile_trace.json.gz` go to `output_dir`, and the table to the terminal when training ends.

    Args:
        trainer: that it is added to.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._undo: list[Callable[[], None]] = []
        self._plan: Iterator[Reader] | None = None
        self._reader: Reader | None = None
        self._profile: Profile | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Plans the steps of this training, of a resumed one those that are left."""
        if not state.is_world_process_zero:
            return
        plan = StepPlan.of(state.max_steps - state.global_step)
        if plan is None:
            left = state.max_steps - state.global_step
            tqdm.write(f"profile: training has {left} steps left, at least 4 are needed. Nothing is measured.")
            return
        self._clock, self._flops, self._timed = PhaseClock(args.device), FlopReader(), 0
        trace = TraceReader(Path(args.output_dir) / TRACE_FILE, args.device, tqdm.write)
        readers = (NoReader(), plan.skipped), (self._clock, plan.timed), (self._flops, plan.counted)
        self._plan = _step_by_step([*readers, (trace, plan.traced)])
        self._watch()
        self._next()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends the phases of a step; logging, saving and evaluating come after it."""
        if self._reader is None:
            return
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
        """The reader of the next step; after the last one all is undone and written."""
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
            model_flops=model_flops(counted, recomputes=recomputes) if counted else 0,
            device=torch.cuda.get_device_name(args.device) if args.device.type == "cuda" else args.device.type,
            half=args.bf16 or args.fp16,
        )
        write_text(Path(args.output_dir) / PROFILE_FILE, render_markdown(profile_report(self._profile)))

    def _watch(self) -> None:
        """Marks the borders of phases: what asks for a batch, the encoder's forward, and the backward pass."""
        encoder, trainer = self._trainer.model, self._trainer
        hooks = (
            encoder.register_forward_pre_hook(lambda *_: self._enter("encode")),
            encoder.register_forward_hook(lambda *_: self._enter("loss")),
        )
        self._undo = [hook.remove for hook in hooks]
        self._wrap(trainer, "get_batch_samples", "data", None)
        self._wrap(trainer.accelerator, "backward", "backward", "optimiser")

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
        # an evaluation between two steps encodes too
        if self._reader is not None and (phase != "encode" and phase != "loss" or self._trainer.model.training):
            self._reader.enter(phase)


def _step_by_step(readers: list[tuple[Reader, int]]) -> Iterator[Reader]:
    for reader, steps in readers:
        for _ in range(steps):
            yield reader
