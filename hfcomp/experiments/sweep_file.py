"""A sweep: its file and the recipe of each of its parts, also of variants that train another objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from hfcomp.experiments.embedding_rows import check_source
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.plans import EmbeddingPlan, SweepFile, Variant
from hfcomp.experiments.recipe_files import find_report
from hfcomp.experiments.recipes import (
    Recipe,
    convert_fields,
    field_hints,
    overridden_fields,
    read_recipe,
    refuse_overridden,
    split_options,
    trainer_class,
)
from hfcomp.experiments.study import output_folder
from hfcomp.experiments.sweep_results import SweepPlan
from hfcomp.reading import read_yaml
from hfcomp.schemas import parse
from hfcomp.trainers.config import CompositionalConfig

# What all runs of a sweep share, but for a variant's objective.
SHARED_FIELDS = {
    *("objective", "method", "controls", "model", "fresh_model", "clip_vocabulary"),
    *("column_names", "output_dir", "seed"),
}
SHARED_PREFIXES = ("base_", "evaluation")
# What the variants of a setting share, beside the fields of the experiment.
STEP_FIELDS = {
    *("max_steps", "num_train_epochs", "gradient_accumulation_steps", "per_device_train_batch_size"),
    *("dataloader_drop_last", "data_seed"),
}
# Fields that all trainers have, of the same kind.
COMMON = {f.name for f in fields(CompositionalConfig) if f.init}


@dataclass(frozen=True)
class Sweep:
    """A sweep that is read, with the recipe of each part.

    Attributes:
        recipe: of the base, the evaluation and the folder.
        plan: its settings, seeds and variants.
        parts: the recipe of each setting, seed and variant.
        embeddings: whose embeddings are followed through training, where any are.
        notes: which fields a variant with an objective of its own does without.
    """

    recipe: Recipe
    plan: SweepPlan
    parts: dict[tuple[str, int, str], Recipe]
    embeddings: EmbeddingPlan | None = None
    notes: list[str] = field(default_factory=list)

    def first(self, variant: str) -> Recipe:
        """The recipe of a variant in the first setting with the first seed."""
        return self.parts[self.plan.settings[0], self.plan.seeds[0], variant]


def read_sweep(name: str, arguments: Sequence[str]) -> Sweep:
    """Reads the sweep that `--report` names (`SweepFile`) and the recipe that it is of.

    A setting changes what all its variants are trained on or how; a variant changes fields of the trainer only, or
    with `objective` the trainer itself. Fields that another trainer does not have are then dropped, which is noted. A
    variant with `control: random-spans` (or `shuffled`) trains that control of itself. One with `after`, a variant
    above it, starts from the model which that one left under the same setting and seed.

    Args:
        name: of the recipe, used unless `arguments` holds `--config`.
        arguments: of the command line, with `--report name-or-path`.

    Raises:
        ValueError: for an unknown key, a field that the runs of a sweep share, or one that the command line sets too.
        FileNotFoundError: naming the sweeps that exist.
    """
    options, words = split_options(arguments)
    path, overridden = find_report(name, options.report), overridden_fields(words)
    recipe, values = read_recipe(name, arguments), read_yaml(path)
    file = parse(SweepFile, values, str(path))
    hints = field_hints(recipe.trainer_class.config_class)
    refuse_overridden(["seed"], overridden, f"{path}: seeds")
    for setting, changed in file.settings.items():
        where = f"{path}: settings: {setting}"
        _check_shared(changed, where)
        refuse_overridden(convert_fields(changed, hints, where), overridden, where)
    if "output_dir" not in overridden:
        recipe.trainer_arguments["output_dir"] = f"{output_folder(recipe)}-{path.stem}"
    recipe.given["report"] = values
    parts, notes = _parts(name, arguments, file, str(path))
    sweep = Sweep(recipe, _plan(file, recipe.experiment), parts, file.embeddings, notes)
    if file.embeddings is not None:
        check_source(sweep.first(file.reference).experiment, where=f"{path}: embeddings")
    return sweep


def _plan(file: SweepFile, experiment: ExperimentConfig) -> SweepPlan:
    variants = file.variants.items()
    return SweepPlan(
        list(file.settings),
        file.seeds,
        list(file.variants),
        file.reference,
        logged=file.logged,
        benchmarks=file.benchmarks,
        objectives={key: one.objective for key, one in variants if one.objective not in (None, experiment.objective)},
        controls={key: one.control for key, one in variants if one.control},
        after={key: one.after for key, one in variants if one.after},
        contrasts={key: {"with": one.of, "without": one.without} for key, one in file.contrasts.items()},
        primary=experiment.primary,
    )


def _check_shared(names: dict[str, Any], where: str, *, of_variant: bool = False) -> None:
    for key in names:
        if of_variant and key == "column_names":
            continue
        if key in SHARED_FIELDS or key.startswith(SHARED_PREFIXES):
            raise ValueError(f"{where}: {key} is the same for all runs of a sweep. Set it for the recipe.")
        if of_variant and key in STEP_FIELDS | ExperimentConfig.model_fields.keys():
            what = "the steps" if key in STEP_FIELDS else "the rows or batches"
            raise ValueError(f"{where}: {key} changes {what}. Make it a setting.")


def _parts(
    name: str, arguments: Sequence[str], file: SweepFile, path: str
) -> tuple[dict[tuple[str, int, str], Recipe], list[str]]:
    """The recipe of each part, and a line about each variant whose trainer lacks fields."""
    parts, notes = {}, []
    for key, variant in file.variants.items():
        _check_shared(variant.fields, f"{path}: variants: {key}", of_variant=True)
    for setting, of_setting in file.settings.items():
        for seed in file.seeds:
            for key, variant in file.variants.items():
                shared, where = {**of_setting, "seed": seed}, f"{path}: variants: {key}"
                parts[setting, seed, key], dropped = _read_part(name, arguments, shared, variant, where)
                note = f"{key}: {variant.objective} has no {', '.join(dropped)}; left out of its runs"
                if dropped and note not in notes:
                    notes.append(note)
    return parts, notes


def _read_part(
    name: str, arguments: Sequence[str], shared: dict[str, Any], variant: Variant, where: str
) -> tuple[Recipe, list[str]]:
    """The recipe of a variant with the fields of a setting and a seed, and the names of the fields that were dropped.

    A variant with an objective of its own keeps the fields of the recipe, the setting and the command line that its
    trainer has. The others, which the recipe's trainer has, are dropped.
    """
    if variant.objective is None:
        return read_recipe(name, arguments, changes={**shared, **variant.fields}, where=where), []
    try:
        found = trainer_class(variant.objective)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    hints = field_hints(found.config_class)
    own = convert_fields(variant.fields, hints, f"{where}: {variant.objective}")
    refuse_overridden(own, overridden_fields(split_options(arguments)[1]), where)
    common = {key: value for key, value in own.items() if key in COMMON}
    recipe = read_recipe(name, arguments, changes={**shared, **common}, where=where)
    dropped = [key for key in recipe.trainer_arguments if key not in hints]
    kept = {key: value for key, value in recipe.trainer_arguments.items() if key in hints}
    values = convert_fields(kept | own, hints, where)
    if recipe.experiment.hard_images and not values.get("num_neighbours"):
        raise ValueError(
            f"{where}: hard_images={recipe.experiment.hard_images} finds neighbours that {variant.objective} does not "
            "read: its batches would be smaller than those of the other variants. Leave the variant out."
        )
    given = {key: value for key, value in recipe.given.items() if key not in dropped} | own
    given["objective"] = variant.objective
    experiment = recipe.experiment.model_copy(update={"objective": variant.objective})
    return replace(recipe, experiment=experiment, trainer_class=found, trainer_arguments=values, given=given), dropped
