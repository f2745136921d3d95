"""Dry run without data, models, a network or a GPU: what a study takes if it trains on a given number of rows.

Each kind of arm takes one step with its own batch, on scenes of the sandbox and with a tiny model in place of the
dataset and the base. The number of rows gives the steps, and the size of the recipe's base gives the hours.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TextIO

import torch
from transformers import AutoConfig, AutoModel, CLIPConfig, PreTrainedModel, SiglipConfig

from hfcomp.data.columns import COLUMNS
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.experiments.arm import Arm
from hfcomp.experiments.dry_run import BYTES, DryRun, Timing, to_gib
from hfcomp.experiments.experiment_config import SANDBOX, SANDBOX_MODELS, ExperimentConfig
from hfcomp.experiments.prepare import NOTHING
from hfcomp.experiments.recipes import Recipe
from hfcomp.families import TEXT_PARTS, embedding_width, family_of
from hfcomp.modeling.embedding import vision_config
from hfcomp.modeling.random_clip import RANDOM_CLIPS
from hfcomp.reporting.report import Report, Section, Table
from hfcomp.sandbox.bases import base_folder
from hfcomp.trainers.progress import format_duration

SCENES = 1024  # least number of drawn rows, which leaves groups and tenths of an epoch whole
SPEED = 1e14  # operations per second, a third of the bf16 peak of an A100
# Fields of an experiment without effect on the number or size of the steps, or that name data.
RESET = {
    **{"dataset": SANDBOX, "model": None, "evaluation": NOTHING, "captions": "longest", "evaluation_data": []},
    **dict.fromkeys(("captions_file", "keyword_negatives", "concreteness_ratings", "concept_parser")),
    **dict.fromkeys(("primary", "evaluation_dataset")),
    **dict.fromkeys(("streaming", "keyword_captions_only", "forgetting_guard"), False),
}
# Trainer arguments that the drawn rows or this machine cannot have.
DROPPED = ("bf16", "fp16", "draw_captions", "dataloader_num_workers", "pixel_cache")
HEADER = ["run", "images per step", "texts per step", "steps", "time", "disk"]


@dataclass(frozen=True)
class Architecture:
    """Size of a dual encoder; `image` and `text` are the operations of one forward pass."""

    summary: str
    weights: int
    image: int
    text: int
    sandbox_model: str  # tiny base of the same family

    @classmethod
    def from_recipe(cls, config: ExperimentConfig) -> Architecture:
        """Reads a recipe's base from this machine. A base that is elsewhere, or no ViT, counts as a ViT-B."""
        name, assumed = config.model or config.fresh_model, ""
        if config.model is None and name in RANDOM_CLIPS:
            model_config: Any = RANDOM_CLIPS[name]()
        else:
            place = config.model or base_folder(SANDBOX_MODELS[name])
            try:
                model_config = AutoConfig.from_pretrained(place, local_files_only=True, trust_remote_code=False)
                if not all(hasattr(vision_config(model_config), size) for size in ("image_size", "patch_size")):
                    assumed = " (not a ViT for one image size: counted as a ViT-B)"
            except (OSError, ValueError):
                assumed = " (not on this machine: counted as a ViT-B of its family)"
            if assumed:
                model_config = SiglipConfig() if "siglip" in str(name).lower() else CLIPConfig()
        vision, text = vision_config(model_config), model_config.text_config
        with torch.device("meta"):
            model = AutoModel.from_config(model_config)
        patches = (vision.image_size // vision.patch_size) ** 2
        weights = sum(parameter.numel() for parameter in model.parameters())
        summary = (
            f"{name}{assumed}: images of 3 x "
            f"{vision.image_size} x {vision.image_size} in {patches} patches, texts of {text.max_position_embeddings} "
            f"tokens, embeddings of {embedding_width(model_config)}, {weights / 1e6:.1f} million weights"
        )
        operations = (
            _operations(model, family_of(model_config).image_parts[0], patches),
            _operations(model, TEXT_PARTS[0], text.max_position_embeddings),
        )
        siglip = model_config.model_type.startswith("siglip")
        return cls(summary, weights, *operations, "sandbox-siglip" if siglip else SANDBOX)


def _operations(model: PreTrainedModel, tower: str, tokens: int) -> int:
    """Operations of a tower's forward pass: two per token and weight, without embedding tables and attention."""
    weights = [weight for name, weight in getattr(model, tower).named_parameters() if "embed" not in name]
    return 2 * tokens * sum(weight.numel() for weight in weights)


class WithoutData(DryRun):
    """A dry run whose rows are counted and not read. `without_data` sets what the classes have in common."""

    rows: ClassVar[int]
    base: ClassVar[Architecture]
    benchmarks: ClassVar[list[str]]
    output: ClassVar[TextIO]
    steps: ClassVar[int] = 1

    def batches(self, arm: Arm, measured: int) -> int:
        if self.rows < arm.batch_size:
            raise ValueError(
                f"{arm.name}: --rows: found {self.rows}, expected at least one batch of {arm.batch_size}."
            )
        if measured == len(arm.rows) // arm.batch_size:
            return self.rows // arm.batch_size
        return measured * self.rows // len(arm.rows)  # batches of groups

    def _time(self, arm: Arm) -> Timing:
        if arm.checkpoints is not None and arm.checkpoints.every >= 1:
            every = max(1, int(arm.checkpoints.every * self.rows / len(arm.rows)))
            arm = replace(arm, checkpoints=replace(arm.checkpoints, every=every))
        timing = super()._time(arm)
        # The backward pass takes twice the forward pass, and mini-batches repeat the forward pass.
        passes = 4 if arm.arguments.get("mini_batch_size") else 3
        operations = timing.cost.images * self.base.image + timing.cost.texts * self.base.text
        cost = replace(timing.cost, seconds=passes * operations / SPEED)
        return replace(timing, cost=cost, disk=timing.disk * BYTES * self.base.weights // timing.weights)

    def _print(self) -> None:
        with redirect_stdout(self.output):
            super()._print()

    def _report(self) -> tuple[Report, str]:
        timings = list(self.timings.values())
        seconds = sum(timing.cost.seconds * len(timing.names) for timing in timings)
        disk = sum(timing.disk * len(timing.names) for timing in timings)
        scored = f"{', '.join(self.benchmarks) or 'none'}; scoring is not counted"
        skipped = [note for note in self.session.notes if note.startswith("control ")]
        report = Report(
            f"{self.experiment.method}: dry run without data, {self.rows:,} rows",
            verdict=[
                f"{len(self.costs)} runs, about {format_duration(seconds)} of training on a GPU with "
                f"{SPEED / 1e12:.0f} TFLOP/s, {to_gib(disk)} of disk space."
            ],
            sections=[Section("Runs", [Table("", HEADER, [_row(timing) for timing in timings])])],
            legend=[
                "The steps ran with their own batches, on drawn scenes and a tiny model. Times are lower bounds: "
                "operations of the towers only, with texts of full length. Disk space is an upper bound. Nothing was "
                "written."
            ],
            notes=[self.base.summary, f"benchmarks: {scored}", *skipped],
            closing={"would be written to": str(self.wanted)},
        )
        return report, ""


def _row(timing: Timing) -> list[str]:
    cost, number = timing.cost, len(timing.names)
    name = timing.names[0] + (f" and {number - 1} more" if number > 1 else "")
    per_step = [f"{count // max(1, cost.steps):,}" for count in (cost.images, cost.texts)]
    return [name, *per_step, f"{cost.steps:,}", format_duration(cost.seconds), to_gib(timing.disk)]


def without_data(plan: Any, rows: int) -> tuple[Any, type[WithoutData]]:
    """Returns a recipe or plan on drawn scenes, and the kind of study that counts `rows` rows.

    Raises:
        ValueError: If `rows` is not positive, the recipe names an unknown benchmark, or a plan lists no recipes.
    """
    if rows < 1:
        raise ValueError(f"command line: --rows: found {rows}, expected a positive number.")
    if not isinstance(plan, Recipe) and not hasattr(plan, "parts"):
        raise ValueError(
            f"command line: --rows: found a {type(plan).__name__}, expected a plan that lists its `parts`."
        )
    recipes = [plan] if isinstance(plan, Recipe) else [plan.recipe, *plan.parts.values()]
    config = recipes[0].experiment
    base = Architecture.from_recipe(config)
    names = config.evaluation_benchmarks if config.evaluation.endswith("benchmarks") else []
    titles = [benchmark.title for benchmark in find_benchmarks(names)] if names else []
    facts = {"rows": rows, "base": base, "benchmarks": titles, "output": sys.stdout}
    # Two of the largest batches, because a control doubles its batch.
    number = max(SCENES, *(2 * recipe.experiment.batch_size for recipe in recipes))
    scenes = RESET | {"fresh_model": base.sandbox_model, "dataset_rows": number}
    if isinstance(plan, Recipe):
        plan = _replace_data(plan, scenes)
    else:
        parts = {key: _replace_data(part, scenes) for key, part in plan.parts.items()}
        plan = replace(plan, recipe=_replace_data(plan.recipe, scenes), parts=parts)
    return plan, type(WithoutData.__name__, (WithoutData,), facts)


@contextmanager
def only_the_report() -> Iterator[None]:
    """Hides messages and warnings, which describe the drawn scenes and the single step."""
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _replace_data(recipe: Recipe, scenes: dict[str, Any]) -> Recipe:
    """A copy of a recipe that trains on drawn scenes and scores nothing."""
    config, arguments = recipe.experiment, recipe.trainer_arguments
    changes = {**scenes, "replay_dataset": SANDBOX if config.replay_dataset else None}
    changes |= {"hard_images": config.hard_images or int(arguments.get("num_neighbors") or 0)}
    names = {ours: theirs for ours, theirs in (recipe.column_names or {}).items() if theirs in COLUMNS}
    kept = {name: value for name, value in arguments.items() if name not in (*DROPPED, "column_names")}
    kept |= {"column_names": names} if names else {}
    return replace(
        recipe,
        experiment=config.model_copy(update=changes),
        trainer_arguments=kept,
        column_names=names or None,
        batch=recipe.batch._replace(fraction=None),
    )
