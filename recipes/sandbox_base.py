"""Trains the sandbox's bundled base models: contrastive pretraining on alt-text, captions, then a dose of hard pairs.

With the dose, a base is like CLIP on SugarCrepe: right more often than chance, but not by much, if words must be
bound. `PROFILE` defines this in numbers, and the smallest dose inside it is chosen.
"""

from __future__ import annotations

import hashlib
import json
import math
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from huggingface_hub.constants import HF_HOME
from torch import nn
from transformers import CLIPModel, SiglipModel, set_seed

from hfcomp.evaluation.benchmarks.sandbox import AVERAGES, sandbox_benchmarks
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.identity import weights_hash
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.loaded import load_benchmark
from hfcomp.modeling import load_backbone
from hfcomp.sandbox import pretraining_set, sandbox_clip_config, sandbox_processor, training_set
from hfcomp.sandbox.bases import ARCHITECTURES, FACTS_FILE
from hfcomp.sandbox.processor import sandbox_siglip_config, sandbox_siglip_processor
from hfcomp.statistics.results import versions
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.cost import StageSummary
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.stages import train_stage
from hfcomp.writing import replacing_folder, write_text

# Phases in order: words, places of things among others, captions of the grammar, and pairs that differ in one word.
WORDS, PLACES, CAPTIONS, PAIRS = "words", "places", "captions", "pairs"


@dataclass(frozen=True)
class Phase:
    """A phase in the training of a base. All values are our choice, found by trial."""

    kind: str
    rows: int
    steps: int
    learning_rate: float  # peak after the warm-up, followed by a cosine decay to 0
    batch_size: int = 128  # for captions and pairs, half of it are replayed alt-texts
    warmup_steps: int = 50

    @property
    def replays(self) -> bool:
        """Whether half of each batch are alt-texts."""
        return self.kind in (CAPTIONS, PAIRS)

    def arguments(self, seed: int) -> dict[str, Any]:
        """Fields of the trainer's config."""
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
            "replay_fraction": 0.5 if self.replays else 0.0,
            "margin": "none",
        }


# Initial factor on the vision tower's position embeddings, which are otherwise so small that places are learned last.
POSITION_SCALE = 15.0
PHASES = {
    "clip": (
        Phase(WORDS, 40_000, 1500, 1e-3),
        Phase(PLACES, 30_000, 500, 1.5e-3),
        Phase(CAPTIONS, 28_800, 300, 1e-3, batch_size=192),
    ),
    "siglip": (
        Phase(WORDS, 60_000, 2500, 1e-3),
        Phase(PLACES, 30_000, 500, 1.5e-3),
        Phase(CAPTIONS, 28_800, 300, 1e-3, batch_size=192),
    ),
}
DOSES = tuple(Phase(PAIRS, 10_000, steps, 1e-3, batch_size=96, warmup_steps=20) for steps in range(20, 201, 20))
PROFILE: Mapping[str, tuple[float, float]] = {
    "swap_att": (0.59, 0.69),
    "swap_obj": (0.564, 0.664),
    "replace_att": (0.70, 0.90),
    "replace_obj": (0.809, 1.0),
    "replace_rel": (0.642, 0.742),
}
"""Bounds for the caption choice of a base after its dose: within 5 points of CLIP ViT-B/32 on SugarCrepe (Huang et al.
2025, Table 2), or within 10 if words alone suffice. Sizes, textures and numbers belong to replace_att."""
SCORED_SCENES, SCORED_ITEMS = 2, 400
"""Seed and number per kind of the scenes that choose the dose. Reports use seed 0, development 1, the guard 1000."""
OWN_SCENES = 2_000_000
"""Offset added to a base's seed for the scenes of its last two phases, which no other split uses."""
# Initial values for SigLIP, as set by its authors.
SIGLIP_SCALE, SIGLIP_BIAS = 10.0, -10.0


def fresh_model(architecture: str, folder: Path, *, seed: int) -> tuple[nn.Module, Any]:
    """Creates a model with random weights and its processor; SigLIP's SentencePiece model is written to `folder`."""
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


def train_phase(name: str, phase: Phase, model: nn.Module, processor: Any, folder: Path, *, seed: int) -> StageSummary:
    """Trains a phase in `folder`; a phase that is already finished there is kept."""
    if phase.replays:
        rows = training_set(phase.rows, OWN_SCENES + seed)
        replayed = pretraining_set(phase.rows, OWN_SCENES + seed, places=True)
    else:
        rows, replayed = pretraining_set(phase.rows, seed, places=phase.kind == PLACES), None
    return train_stage(
        name,
        CementTrainer if phase.kind == PAIRS else InfoNCETrainer,
        model,
        rows,
        folder,
        phase.arguments(seed),
        batch_size=phase.batch_size // 2 if phase.replays else phase.batch_size,
        resume=True,
        replay_dataset=replayed,
        processor=processor,
    )


def base_profile(folder: Path, items: int) -> dict[str, float]:
    """Caption choice of a model by SugarCrepe subset, 0 to 1, on `items` scenes per kind of the dose selection."""
    kinds = load_benchmark(sandbox_benchmarks(items, SCORED_SCENES)[0])
    table = Evaluator(print, [kinds])(Embedder(folder))
    by_kind = table[table["metric"] == "caption choice"].groupby("subset")["value"].mean()
    groups = {group[0]: list(group) for group in AVERAGES[0].groups or ()}
    return {name: round(float(by_kind[group].mean()), 4) for name, group in groups.items()}


def distance(profile: Mapping[str, float]) -> float:
    """Sum of the distances of a profile from the intervals in `PROFILE`; 0 if it is inside all of them."""
    return round(sum(max(low - profile[name], profile[name] - high, 0.0) for name, (low, high) in PROFILE.items()), 4)


def train_doses(
    architecture: str, start: Path, processor: Any, work: Path, *, seed: int, doses: Sequence[Phase], items: int
) -> Iterator[tuple[Phase, Path, StageSummary, dict[str, float]]]:
    """Trains each dose from the same model, smallest first, and yields it with its scores; stops inside `PROFILE`."""
    for dose in doses:
        folder = work / f"pairs-{dose.steps}"
        name = f"{architecture}, a dose of {dose.steps} steps"
        cost = train_phase(name, dose, load_backbone(start), processor, folder, seed=seed)
        profile = base_profile(folder, items)
        yield dose, folder, cost, profile
        if not distance(profile):
            return


def make_base(
    architecture: str,
    folder: Path,
    *,
    seed: int,
    phases: Sequence[Phase],
    doses: Sequence[Phase],
    items: int,
    command: str,
    work: Path,
) -> Path:
    """Pretrains a base and writes it to `folder` in fp16, together with `base.json`.

    Replaces the content of the folder once the new model is complete. Finished phases in `work` are kept.
    """
    with replacing_folder(folder) as made:
        model, processor = fresh_model(architecture, work / "fresh", seed=seed)
        costs, place = [], work
        for number, phase in enumerate(phases):
            place, name = work / f"phase-{number}", f"{architecture}, phase {number + 1} of {len(phases)}"
            costs.append(train_phase(name, phase, model, processor, place, seed=seed))
            model = load_backbone(place)
        trained = list(train_doses(architecture, place, processor, work, seed=seed, doses=doses, items=items))
        profiles = {dose.steps: profile for dose, _, _, profile in trained}
        if trained:
            chosen, place, cost, _ = min(trained, key=lambda dose: distance(dose[3]))
            phases, costs, model = [*phases, chosen], [*costs, cost], load_backbone(place)
        model.half().save_pretrained(made)
        processor.save_pretrained(made)
        facts = {
            "command": command,
            "architecture": architecture,
            "seed": seed,
            "position_scale": POSITION_SCALE,
            "phases": [vars(phase) for phase in phases],
            "profile": base_profile(made, items),
            "profile_bounds": PROFILE if trained else None,
            "doses": profiles,
            "seconds": sum(cost.seconds for cost in costs),
            "loss": costs[-1].loss,
            "weights": weights_hash(made),
            "versions": {name: versions()[name] for name in ("hfcomp", "python", "torch", "transformers", "datasets")},
        }
        write_text(made / FACTS_FILE, json.dumps(facts, indent=2) + "\n")
    return folder


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains the base that the command line selects."""
    description = "Train a base model of the sandbox: contrastive pretraining on alt-text, captions and hard pairs."
    parser = ArgumentParser(description=description, formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="clip", help="Model architecture")
    parser.add_argument(
        "--output_dir", type=Path, help="Model folder, replaced if it exists. Unset: a folder in the cache"
    )
    parser.add_argument("--seed", type=int, default=0, help="Random seed for weights and scenes")
    parser.add_argument(
        "--no_pairs", action="store_true", help="Skip the dose of hard pairs, which leaves swaps near chance"
    )
    parser.add_argument("--work_dir", type=Path, help="Folder of the phases, to resume a killed run. Unset: none")
    parser.add_argument("--items", type=int, default=SCORED_ITEMS, help="Scored scenes per kind that choose the dose")
    for name in ("steps", "rows"):
        parser.add_argument(f"--{name}", type=int, help=f"Number of {name} per phase. Unset: as in the shipped base")
    options = parser.parse_args(arguments)
    given = {name: getattr(options, name) for name in ("steps", "rows") if getattr(options, name) is not None}
    phases = [replace(phase, **given) for phase in PHASES[options.architecture]]
    doses = [] if options.no_pairs else [replace(dose, **given) for dose in (DOSES[:1] if given else DOSES)]
    words = [f"--architecture {options.architecture} --seed {options.seed}", *(f"--{k} {v}" for k, v in given.items())]
    words += ["--no_pairs"] if options.no_pairs else []
    words += [f"--items {options.items}"] if options.items != SCORED_ITEMS else []
    how = {
        "seed": options.seed,
        "phases": phases,
        "doses": doses,
        "items": options.items,
        "command": " ".join(["python recipes/sandbox_base.py", *words, "--output_dir <folder>"]),
    }
    folder = options.output_dir or cached_folder(how["command"])
    if options.output_dir is None and (folder / FACTS_FILE).is_file():
        print(f"kept in {folder}: {weights_hash(folder)}")
        return
    with TemporaryDirectory() as unused:
        make_base(options.architecture, folder, work=options.work_dir or Path(unused), **how)
    print(f"written to {folder}: {weights_hash(folder)}")


def cached_folder(command: str) -> Path:
    """Folder of a base without --output_dir; there is one for each command and version of this file."""
    digest = hashlib.sha256(Path(__file__).read_bytes() + command.encode()).hexdigest()[:12]
    return Path(HF_HOME) / "hfcomp" / "bases" / digest


if __name__ == "__main__":
    main()
