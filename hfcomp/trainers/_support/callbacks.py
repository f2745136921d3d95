"""Callbacks of a trainer: the default ones, and those that its config enables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from packaging.version import Version
from tqdm.auto import tqdm
from transformers import TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, has_length

from hfcomp.data.sampling.streaming import StreamedRows
from hfcomp.distributed.shards import is_sharded, local_part
from hfcomp.families import family_of
from hfcomp.trainers._support.saving import HubPushes
from hfcomp.trainers.profiling import StepProfiler
from hfcomp.trainers.weight_average import WeightAverage

# An adapter with a lower learning rate gets a warning, because the configs' defaults are meant for whole models.
LOW_ADAPTER_RATE = 1e-5


class LogitScaleClamp(TrainerCallback):
    """Keeps the multiplier of the logits within [1, `maximum`] after each step, as CLIP's authors do with 100."""

    def __init__(self, parameter: torch.nn.Parameter, maximum: float, *, temperature: bool = False) -> None:
        self.parameter = parameter
        # The parameter is the logarithm of the multiplier, or a temperature, its inverse.
        self.bounds = (1 / maximum, 1.0) if temperature else (0.0, math.log(maximum))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        with torch.no_grad():
            self.parameter.clamp_(*self.bounds)


class StartReport(TrainerCallback):
    """Prints the size of a batch and an epoch at every start, which reveals a wrong number of processes.

    Also prints how weights are sharded, what share an adapter trains, and warnings about learning rate and warm-up.
    """

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            tqdm.write(size_line(args, state.train_batch_size, train_dataloader))  # above the progress bar
            if is_sharded(model):
                tqdm.write(sharding_line(model))
            if getattr(model, "is_peft", False):
                tqdm.write(adapter_line(model))
                if args.learning_rate < LOW_ADAPTER_RATE:
                    tqdm.write(
                        f"learning_rate={args.learning_rate:g} is meant for whole models. An adapter starts at zero "
                        "and hardly moves at this rate. Set a higher learning_rate, such as 1e-4."
                    )
            warmup = args.get_warmup_steps(state.max_steps)
            if warmup >= state.max_steps:
                tqdm.write(
                    f"warmup_steps={args.warmup_steps}, but training has only {state.max_steps:,} steps, so the "
                    f"learning rate ends at {state.max_steps / warmup:.0%} of {args.learning_rate:g}. Set fewer "
                    "warmup_steps, or a share below 1."
                )


def size_line(args: Any, batch_size: int, loader: Any) -> str:
    """Returns, for example, `2 processes x 8 = 16 pairs, 96 rows, 6 steps per epoch, device cpu`."""
    processes = f"{args.world_size} process{'es' if args.world_size > 1 else ''}"
    notes = f" ({', '.join(args.batch_notes())})" if args.batch_notes() else ""
    if has_length(loader):
        steps = math.ceil(len(loader) / args.gradient_accumulation_steps)
        epoch = f"{len(loader.dataset):,} rows, {steps:,} step{'s' if steps > 1 else ''} per epoch"
    else:
        epoch = f"streamed rows, {args.max_steps:,} steps"
    batch = f"{batch_size} = {args.world_size * batch_size} {args.batch_unit}{notes}"
    return f"{processes} x {batch}, {epoch}, device {args.device.type}"


def sharding_line(model: torch.nn.Module) -> str:
    """Returns, for example, `FSDP2: this process holds 31,000 of 60,000 weights`."""
    parts = [(local_part(weight.detach()).numel(), weight.numel()) for weight in model.parameters()]
    held, whole = (sum(numbers) for numbers in zip(*parts, strict=True))
    return f"FSDP2: this process holds {held:,} of {whole:,} weights"


def adapter_line(model: torch.nn.Module) -> str:
    """Returns, for example, `An adapter of 24 modules: 12,290 of 60,000 weights are trained (20.5%)`."""
    modules = {name.partition(".lora_")[0] for name, weight in model.named_parameters() if ".lora_" in name}
    trained, whole = (
        sum(weight.numel() for weight in model.parameters() if weight.requires_grad or not only_trained)
        for only_trained in (True, False)
    )
    kind = f"An adapter of {len(modules)} modules" if modules else "An adapter"
    return f"{kind}: {trained:,} of {whole:,} weights are trained ({trained / whole:.2%})"


class SkipTrainedBatches(TrainerCallback):
    """Makes a stream skip the batches that a resumed run was trained on, without decoding their images.

    accelerate reads and discards the same number of batches; the stream yields empty ones.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any) -> None:
        rows = getattr(train_dataloader, "dataset", None)
        if not isinstance(rows, StreamedRows):
            rows = getattr(rows, "dataset", None)  # this process's part
        if isinstance(rows, StreamedRows):
            steps = 0 if args.ignore_data_skip else state.global_step % state.max_steps
            # 0 in a new run, even if an earlier run has already read the stream.
            rows.skip_batches = steps * args.gradient_accumulation_steps


class LogBeforeSave(TrainerCallback):
    """Adds a log line at every checkpoint; otherwise, a resumed run would lose the counts since the last line."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # The Trainer logs before it saves, so the line is in the checkpoint's history.
        control.should_log = control.should_log or control.should_save

    on_epoch_end = on_step_end


class RecordBest(TrainerCallback):
    """Records the checkpoint of `save_strategy="best"` as the best, which transformers does from 5.4.

    Otherwise, `load_best_model_at_end` would do nothing.
    """

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.save_strategy == "best":
            folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            state.best_global_step, state.best_model_checkpoint = state.global_step, str(folder)
            if state.is_world_process_zero:
                state.save_to_json(str(folder / TRAINER_STATE_NAME))


def default_callbacks(trainer: Any) -> Iterator[TrainerCallback]:
    """Yields the default callbacks and those that the config enables, in the order in which they are called."""
    args, model = trainer.args, trainer.model
    yield LogBeforeSave()
    yield StartReport()
    yield SkipTrainedBatches()
    if Version(transformers.__version__) < Version("5.4"):
        yield RecordBest()
    if isinstance(trainer.weights, TrainerCallback):
        yield trainer.weights
    if args.weight_average_decay is not None:
        yield WeightAverage(args.weight_average_decay, args.weight_average_start)
    # The clamp runs on the optimizer step, before the event that ends a step, so the average gets clamped scales.
    family = family_of(model.config)
    maximum = family.max_scale if args.max_logit_scale is None else args.max_logit_scale
    parameter = model.plain.temperature if family.temperature else model.plain.logit_scale
    if math.isfinite(maximum) and parameter.requires_grad:
        yield LogitScaleClamp(parameter, maximum, temperature=family.temperature)
    if args.push_to_hub:
        yield HubPushes(trainer)
    if args.profile:
        yield StepProfiler(trainer)  # last, because the work of the others is part of a step
