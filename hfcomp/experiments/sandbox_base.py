"""How the sandbox's base models are made: plain contrastive pretraining on alt-text, until words are known."""

from __future__ import annotations

import json
import math
import shutil
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModel, AutoProcessor, CLIPModel, SiglipModel, set_seed

from hfcomp.evaluation.results import versions, weights_hash
from hfcomp.experiments.folders import write_atomically
from hfcomp.experiments.stages import train_stage
from hfcomp.sandbox import pretraining_set, sandbox_clip_config, sandbox_processor
from hfcomp.sandbox.bases import ARCHITECTURES, FACTS_FILE
from hfcomp.sandbox.processor import sandbox_siglip_config, sandbox_siglip_processor
from hfcomp.trainers.info_nce import InfoNCETrainer


@dataclass(frozen=True)
class Pretraining:
    """Settings of a base; all are our choice, found by trial.

    Attributes:
        rows: scenes, drawn anew for each seed.
        steps: optimiser steps.
        batch_size: images, with one caption each.
        learning_rate: at its height, after `warmup_steps`; then a cosine to 0.
        warmup_steps: of the learning rate.
        position_scale: factor on the vision tower's position embeddings at the start: they begin so small that
            places are learned last.
    """

    rows: int = 40_000
    steps: int = 1500
    batch_size: int = 128
    learning_rate: float = 1e-3
    warmup_steps: int = 50
    position_scale: float = 15.0

    def arguments(self, seed: int) -> dict[str, Any]:
        """Of the trainer."""
        return {
            "max_steps": self.steps,
            "learning_rate": self.learning_rate,
            "warmup_steps": self.warmup_steps,
            "lr_scheduler_type": "cosine",
            "weight_decay": 0.05,
            "adam_beta2": 0.98,
            "max_grad_norm": 1.0,
            "logging_steps": 50,
            "save_strategy": "no",
            "seed": seed,
        }


SETTINGS = {"clip": Pretraining(), "siglip": Pretraining()}
# Of SigLIP at the start, as its authors have them.
SIGLIP_SCALE, SIGLIP_BIAS = 10.0, -10.0


def fresh_model(architecture: str, folder: Path, *, seed: int, position_scale: float) -> tuple[nn.Module, Any]:
    """A model with random weights and its processor.

    Args:
        architecture: `clip` or `siglip`.
        folder: receives SigLIP's SentencePiece model.
        seed: of the weights.
        position_scale: factor on the vision tower's position embeddings.
    """
    set_seed(seed)
    if architecture == "clip":
        model, processor = CLIPModel(sandbox_clip_config()), sandbox_processor()
    else:
        processor = sandbox_siglip_processor(folder)
        model = SiglipModel(sandbox_siglip_config(processor.tokenizer))
    with torch.no_grad():
        model.vision_model.embeddings.position_embedding.weight.mul_(position_scale)
        if architecture == "siglip":
            model.logit_scale.fill_(math.log(SIGLIP_SCALE))
            model.logit_bias.fill_(SIGLIP_BIAS)
    return model, processor


def make_base(architecture: str, folder: Path, *, seed: int, settings: Pretraining, command: str) -> Path:
    """Pretrains a base and writes it in fp16 to `folder`, with `base.json` beside it.

    Args:
        architecture: `clip` or `siglip`.
        folder: receives the model; what is there is replaced once the new one is complete.
        seed: of weights and scenes.
        settings: of the training.
        command: that makes it again, for `base.json`.
    """
    work = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(work, ignore_errors=True)

    def build() -> tuple[Any, Any, Any]:
        model, processor = fresh_model(architecture, work, seed=seed, position_scale=settings.position_scale)
        return model, processor, pretraining_set(settings.rows, seed)

    cost = train_stage(
        architecture,
        InfoNCETrainer,
        build,
        work,
        settings.arguments(seed),
        batch_size=settings.batch_size,
        resume=False,
    )
    half = folder.with_name(f"{folder.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    AutoModel.from_pretrained(work, dtype=torch.float16).save_pretrained(half)
    AutoProcessor.from_pretrained(work).save_pretrained(half)
    made_with = versions()
    facts = {
        "command": command,
        "architecture": architecture,
        "seed": seed,
        "settings": vars(settings),
        "seconds": cost.seconds,
        "loss": cost.loss,
        "weights": weights_hash(half),
        "versions": {name: made_with[name] for name in ("hfcomp", "python", "torch", "transformers", "datasets")},
    }
    write_atomically(half / FACTS_FILE, json.dumps(facts, indent=2) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    half.rename(folder)
    shutil.rmtree(work)
    return folder


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of `recipes/sandbox_base.py`."""
    parser = ArgumentParser(description=__doc__, formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="clip", help="which of the two")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder of the model, replaced if it is there")
    parser.add_argument("--seed", type=int, default=0, help="of weights and scenes")
    for name in ("steps", "rows"):
        parser.add_argument(f"--{name}", type=int, help="unset: the shipped base's")
    options = parser.parse_args(arguments)
    given = {name: getattr(options, name) for name in ("steps", "rows") if getattr(options, name) is not None}
    settings = Pretraining(**{**vars(SETTINGS[options.architecture]), **given})
    words = [f"--architecture {options.architecture} --seed {options.seed}", *(f"--{k} {v}" for k, v in given.items())]
    command = " ".join(["python recipes/sandbox_base.py", *words, "--output_dir <folder>"])
    folder = make_base(options.architecture, options.output_dir, seed=options.seed, settings=settings, command=command)
    print(f"written to {folder}: {weights_hash(folder)}")
