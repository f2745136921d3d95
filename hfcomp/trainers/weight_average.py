"""`WeightAverage`: an exponential moving average of the trained weights, which becomes the model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from tqdm.auto import tqdm
from transformers import TrainerCallback

from hfcomp.distributed.shards import gather_whole, local_part, split_like
from hfcomp.modeling.weight_checks import check_same, read_tensors
from hfcomp.writing import replacing

AVERAGE_FILE = "weight_average.safetensors"


class WeightAverage(TrainerCallback):
    """Averages the trained weights over the steps of an hfcomp trainer, and makes the average the final model.

    After step t the average is a_t = decay * a_(t-1) + (1 - decay) * w_t, with a_start = w_start; with `start=0` these
    are the weights before the first step. After n steps the first weights still have the weight decay^n, which is
    printed at the end: a run of fewer than 1 / (1 - decay) steps stays close to them. The average covers all trained
    parameters, including `logit_scale` and the objective's own, but not running values such as thresholds. An
    adapter's matrices are averaged one by one, not their product.

    `weight_average_decay` in a config adds this callback; so does `trainer.add_callback(WeightAverage(0.999))`.
    Evaluations and checkpoints during training use the weights themselves. A checkpoint also holds the average, from
    which a resumed run continues exactly. Cost: a copy of the trained weights in memory and in each checkpoint, and a
    pass over them per step.

    Args:
        decay: Decay of the average, at least 0 and below 1, such as 0.999.
        start: Step at which the average begins.

    Raises:
        ValueError: For a decay or start out of range.

    Source:
        Polyak and Juditsky (1992), in the exponential form of `torch.optim.swa_utils`. The user chooses decay and
        start.
        choice.
    """

    def __init__(self, decay: float, start: int = 0) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"weight_average_decay: found {decay}, expected at least 0 and below 1, such as 0.999.")
        if start < 0:
            raise ValueError(f"weight_average_start: found {start}, expected a step of at least 0.")
        self.decay = decay
        self.start = start
        self._update = get_ema_multi_avg_fn(decay)
        self._average: dict[str, torch.Tensor] | None = None
        self._loaded: Path | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: nn.Module | None = None, **kwargs: Any
    ) -> None:
        """Starts with the weights before the first step, or with the average in a checkpoint.

        Raises:
            ValueError: For conflicting settings, or a checkpoint without an average or with another model's.
        """
        if args.load_best_model_at_end:
            raise ValueError(
                "load_best_model_at_end and weight_average_decay each define the final model. Remove one of them."
            )
        if state.max_steps <= self.start:
            raise ValueError(
                f"weight_average_start={self.start}: training ends at step {state.max_steps}, before averaging "
                "starts. Lower it, or remove weight_average_decay."
            )
        folder, self._loaded, self._average = self._loaded, None, None
        if 0 < state.global_step >= self.start:
            self._read(folder, _trained_parameters(model))
        elif self.start == 0:
            self._begin(model)

    def on_step_end(self, args: Any, state: Any, control: Any, model: nn.Module | None = None, **kwargs: Any) -> None:
        """Adds the weights of this step."""
        if self._average is not None:
            # Averaging is element-wise, so each process averages its own part of sharded weights.
            now = [local_part(parameter.detach()) for parameter in _trained_parameters(model).values()]
            self._update(list(self._average.values()), now, None)
        elif state.global_step == self.start:
            self._begin(model)

    def on_train_end(self, args: Any, state: Any, control: Any, model: nn.Module | None = None, **kwargs: Any) -> None:
        """Makes the average the model's weights."""
        if self._average is None:  # a run that a callback stopped before its start
            tqdm.write(f"No weights were averaged: training ended at step {state.global_step}, before {self.start}.")
            return
        for name, parameter in _trained_parameters(model).items():
            local_part(parameter.detach()).copy_(self._average[name])
        steps = state.global_step - self.start
        if state.is_world_process_zero:
            tqdm.write(
                f"The model is the average of its weights over {steps:,} steps (decay {self.decay:g}); the weights of "
                f"step {self.start:,} contribute {math.pow(self.decay, steps):.1%}."
            )

    def save(self, folder: Path, model: nn.Module, *, writes: bool) -> None:
        """Writes the average into a checkpoint. The trainer calls it on all processes."""
        if self._average is None:
            return
        trained = _trained_parameters(model)
        # With FSDP this is a collective, so every process runs it, whether it writes or not.
        state = {name: gather_whole(value, trained[name]).cpu().contiguous() for name, value in self._average.items()}
        if writes:
            with replacing(folder / AVERAGE_FILE) as part:
                save_file(state, part, metadata={"format": "pt"})

    def load(self, folder: Path) -> None:
        """Sets the checkpoint that the next training resumes from. The trainer calls it."""
        self._loaded = folder

    def _begin(self, model: nn.Module) -> None:
        trained = _trained_parameters(model)
        self._average = {name: local_part(parameter.detach()).clone() for name, parameter in trained.items()}

    def _read(self, folder: Path | None, trained: dict[str, nn.Parameter]) -> None:
        if folder is None or not (folder / AVERAGE_FILE).is_file():
            raise ValueError(
                f"{folder}: the checkpoint has no {AVERAGE_FILE}, because its run had no weight_average_decay. Omit "
                "weight_average_decay to resume that run, or start a new run."
            )
        stored = read_tensors(folder / AVERAGE_FILE)
        check_same(folder / AVERAGE_FILE, stored, trained)
        self._average = {name: local_part(split_like(stored[name], weight)) for name, weight in trained.items()}


def _trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
