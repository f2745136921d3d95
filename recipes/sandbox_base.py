"""Trains the sandbox's bundled base models: plain contrastive pretraining on alt-text, until words are known."""

from __future__ import annotations

import json
import math
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import CLIPModel, SiglipModel, set_seed

from hfcomp.evaluation.encoding.identity import weights_hash
from hfcomp.modeling import load_backbone
from hfcomp.sandbox import pretraining_set, sandbox_clip_config, sandbox_processor
from hfcomp.sandbox.bases import ARCHITECTURES, FACTS_FILE
from hfcomp.sandbox.processor import sandbox_siglip_config, sandbox_siglip_processor
from hfcomp.statistics.results import versions
from hfcomp.trainers.cost import StageSummary
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.stages import train_stage
from hfcomp.writing import replacing_folder, write_text


@dataclass(frozen=True)
class Phase:
    """A part of the training of a base; all values are our choice, found by trial."""

    rows: int
    steps: int
    learning_rate: float  # at its height, after 50 steps of warm-up; then a cosine to 0
    places: bool = False  # whether captions mostly name one of several things and its place

    def arguments(self, seed: int) -> dict[str, Any]:
        """Fields of the trainer's config."""
        return {
            "max_steps": self.steps,
            "learning_rate": self.learning_rate,
            "warmup_steps": 50,
            "lr_scheduler_type": "cosine",
            "weight_decay": 0.05,
            "adam_beta2": 0.98,
            "max_grad_norm": 1.0,
            "logging_steps": 50,
            "save_strategy": "no",
            "seed": seed,
        }


BATCH_SIZE = 128
# Factor on the vision tower's position embeddings at the start: they begin so small that places are learned last.
POSITION_SCALE = 15.0
# First words, then where things are among others.
PHASES = {
    "clip": (Phase(40_000, 1500, 1e-3), Phase(30_000, 500, 1.5e-3, places=True)),
    "siglip": (Phase(60_000, 2500, 1e-3), Phase(30_000, 500, 1.5e-3, places=True)),
}
# Of SigLIP at the start, as its authors have them.
SIGLIP_SCALE, SIGLIP_BIAS = 10.0, -10.0


def fresh_model(architecture: str, folder: Path, *, seed: int) -> tuple[nn.Module, Any]:
    """A model with random weights and its processor; `folder` receives SigLIP's SentencePiece model."""
    set_seed(seed)
    if architecture == "clip":
        model, processor = CLIPModel(sandbox_clip_config()), sandbox_processor()
    else:
        processor = sandbox_siglip_processor(folder)
        model = SiglipModel(sandbox_siglip_config(processor.tokenizer))
    with torch.no_grad():
        model.vision_model.embeddings.position_embedding.weight.mul_(POSITION_SCALE)
        if architecture == "siglip":
            model.logit_scale.fill_(math.log(SIGLIP_SCALE))
            model.logit_bias.fill_(SIGLIP_BIAS)
    return model, processor


def make_base(architecture: str, folder: Path, *, seed: int, phases: Sequence[Phase], command: str) -> Path:
    """Pretrains a base and writes it in fp16 to `folder`, with `base.json` beside it.

    What is in the folder is replaced once the new model is complete.
    """
    with replacing_folder(folder) as made, TemporaryDirectory() as work:
        model, processor = fresh_model(architecture, Path(work) / "fresh", seed=seed)
        costs = []
        for number, phase in enumerate(phases):
            rows = pretraining_set(phase.rows, seed, places=phase.places)
            place, name = Path(work) / f"phase-{number}", f"{architecture}, phase {number + 1} of {len(phases)}"
            costs.append(_train(name, model, processor, rows, place, phase.arguments(seed)))
            model = load_backbone(place)
        model.half().save_pretrained(made)
        processor.save_pretrained(made)
        facts = {
            "command": command,
            "architecture": architecture,
            "seed": seed,
            "batch_size": BATCH_SIZE,
            "position_scale": POSITION_SCALE,
            "phases": [vars(phase) for phase in phases],
            "seconds": sum(cost.seconds for cost in costs),
            "loss": costs[-1].loss,
            "weights": weights_hash(made),
            "versions": {name: versions()[name] for name in ("hfcomp", "python", "torch", "transformers", "datasets")},
        }
        write_text(made / FACTS_FILE, json.dumps(facts, indent=2) + "\n")
    return folder


def _train(
    name: str, model: nn.Module, processor: Any, rows: Dataset, folder: Path, arguments: dict[str, Any]
) -> StageSummary:
    return train_stage(
        name,
        InfoNCETrainer,
        lambda: (model, processor, rows),
        folder,
        arguments,
        batch_size=BATCH_SIZE,
        resume=False,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains the base that the command line names."""
    description = "Trains a base model of the sandbox: plain contrastive pretraining on alt-text."
    parser = ArgumentParser(description=description, formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="clip", help="which of the two")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder of the model, replaced if it is there")
    parser.add_argument("--seed", type=int, default=0, help="of weights and scenes")
    for name in ("steps", "rows"):
        parser.add_argument(f"--{name}", type=int, help="of each phase; unset: the shipped base's")
    options = parser.parse_args(arguments)
    given = {name: getattr(options, name) for name in ("steps", "rows") if getattr(options, name) is not None}
    phases = [replace(phase, **given) for phase in PHASES[options.architecture]]
    words = [f"--architecture {options.architecture} --seed {options.seed}", *(f"--{k} {v}" for k, v in given.items())]
    command = " ".join(["python recipes/sandbox_base.py", *words, "--output_dir <folder>"])
    folder = make_base(options.architecture, options.output_dir, seed=options.seed, phases=phases, command=command)
    print(f"written to {folder}: {weights_hash(folder)}")


if __name__ == "__main__":
    main()
