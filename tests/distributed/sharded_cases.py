"""Cases of FSDP2 beside those of every trainer: half precision, recomputed activations, checkpoints, refusals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from hfcomp.distributed import rank, world_size
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests.distributed.cases import Found, case, data, train, trainer_of, weights_of
from tests.trainers.own_objective import OwnTrainer

# where a run of one process has left its checkpoints
CHECKPOINTS = "TEST_CHECKPOINTS"
SHARDED_ONLY = ("recomputed", "half", "resumable", "resumed_from_one", "trained_twice", "refused")


@case
def recomputed(models: Path, folder: Path) -> Found:
    return train(trainer_of(InfoNCETrainer, models / "clip", folder, gradient_checkpointing=True))


@case
def half(models: Path, folder: Path) -> Found:
    """Of one step: the types of weights and embeddings, and the gradients."""
    trainer = trainer_of(CementTrainer, models / "clip", folder, bf16=True, use_cpu=True, max_steps=1)
    encode, types = trainer.gather_features, set()

    def watch(*inputs: Any) -> Any:
        features = encode(*inputs)
        types.update(str(x.dtype) for x in features.values() if isinstance(x, torch.Tensor) and x.is_floating_point())
        return features

    trainer.gather_features = watch
    tensors, facts = train(trainer)
    kept = {str(parameter.dtype) for parameter in trainer.model.parameters()}
    return tensors, facts | {"features": sorted(types), "weights": sorted(kept)}


# learned state of its own, clipped gradients, weight decay and a rate that falls
SETTINGS = {
    "num_negatives": 2,
    "max_grad_norm": 0.5,
    "weight_decay": 0.1,
    "lr_scheduler_type": "linear",
    "weight_average_decay": 0.5,
    "save_strategy": "steps",
    "save_steps": 2,
}


@case
def resumable(models: Path, folder: Path) -> Found:
    """A whole run, and one that goes on from its checkpoint."""
    whole = trainer_of(OwnTrainer, models / "siglip", folder, **SETTINGS)
    tensors, facts = train(whole)
    whole.save_model(str(folder / "saved"))
    resumed = trainer_of(OwnTrainer, models / "siglip", folder / "again", **SETTINGS)
    resumed.train(resume_from_checkpoint=str(folder / "out" / "checkpoint-2"))
    return tensors | weights_of(resumed.model, "resumed"), facts


@case
def resumed_from_one(models: Path, folder: Path) -> Found:
    """Goes on from a checkpoint that one process without FSDP has written."""
    trainer = trainer_of(OwnTrainer, models / "siglip", folder, **SETTINGS)
    trainer.train(resume_from_checkpoint=str(Path(os.environ[CHECKPOINTS]) / "checkpoint-2"))
    return weights_of(trainer.model), {}


@case
def trained_twice(models: Path, folder: Path) -> Found:
    """An evaluation between two trainings of one trainer, the second of which begins with a warm optimizer."""
    trainer = trainer_of(InfoNCETrainer, models / "clip", folder, max_steps=2)
    tensors, facts = train(trainer)
    loss = trainer.evaluate(data(5))["eval_loss"]
    trainer.train()
    facts["adam"]["steps"] *= 2
    return tensors | weights_of(trainer.model), facts | {"loss": loss}


@case
def refused(models: Path, folder: Path) -> Found:
    said, tried = {}, {"evaluated": {}, "optim": {"optim": "adafactor"}, "compiled": {"torch_compile": True}}
    for name, settings in tried.items():
        try:
            trainer = trainer_of(InfoNCETrainer, models / "clip", folder, **settings)
            trainer.evaluate(data(5)) if name == "evaluated" else trainer.train()
        except ValueError as error:
            said[name] = str(error)
    return {}, {"said": said, "rank": rank(), "processes": world_size()}
