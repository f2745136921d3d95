"""Callbacks that every trainer of hfcomp installs."""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import TrainerCallback


class LogitScaleClamp(TrainerCallback):
    """Keeps the multiplier of the logits within [1, `maximum`] after each step, as CLIP's authors do with 100.

    Args:
        parameter: the logarithm of the multiplier, the model's `logit_scale`.
        maximum: the largest multiplier.
    """

    def __init__(self, parameter: torch.nn.Parameter, maximum: float) -> None:
        self.parameter = parameter
        self.maximum = maximum

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Clamps in place, on the device."""
        with torch.no_grad():
            self.parameter.clamp_(0, math.log(self.maximum))


class LogBeforeSave(TrainerCallback):
    """A line of the log at every checkpoint: what was counted since the last line would be lost to a resumed run."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Asks for the line; the Trainer logs before it saves."""
        control.should_log = control.should_log or control.should_save

    on_epoch_end = on_step_end
