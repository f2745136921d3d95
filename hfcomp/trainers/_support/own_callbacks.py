"""The callbacks of a trainer: those that all have, and those that its config asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from transformers import TrainerCallback

from hfcomp.trainers._support.callbacks import LogBeforeSave, LogitScaleClamp, SizeAtStart, SkipTrainedBatches
from hfcomp.trainers.profiling.callback import StepProfiler
from hfcomp.trainers.weight_average import WeightAverage


def own_callbacks(trainer: Any) -> Iterator[TrainerCallback]:
    """The callbacks of a trainer of hfcomp, in the order in which they are to be called.

    Args:
        trainer: whose `args` and `model` are there.
    """
    args, model = trainer.args, trainer.model
    yield LogBeforeSave()
    yield SizeAtStart()
    yield SkipTrainedBatches()
    if args.weight_average_decay is not None:
        yield WeightAverage(args.weight_average_decay, args.weight_average_start)
    maximum = args.max_logit_scale
    if maximum is None:
        maximum = math.inf if model.config.model_type == "siglip" else 100.0
    if math.isfinite(maximum) and model.plain.logit_scale.requires_grad:
        yield LogitScaleClamp(model.plain.logit_scale, maximum)
    if args.profile:
        yield StepProfiler(trainer)  # last: the others' work is part of a step
