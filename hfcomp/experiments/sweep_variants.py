"""The recipe of one part of a sweep, also of a variant that trains another objective than the recipe's."""

from __future__ import annotations

from argparse import ArgumentError
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from transformers import HfArgumentParser

from hfcomp.data.columns import nearest
from hfcomp.experiments.recipes import Recipe, overridden_fields, read_recipe, split_options, trainer_class
from hfcomp.trainers.config import CompositionalConfig

# Fields that all trainers have, of the same kind.
COMMON = {f.name for f in fields(CompositionalConfig) if f.init}
# Controls that train the method itself on other rows; the others are variants by their fields or their objective.
ROW_CONTROLS = ("shuffled", "random-spans")


@dataclass(frozen=True)
class Variant:
    """A variant as a sweep's file has it.

    Attributes:
        objective: `module:class` where it is not the recipe's.
        fields: of its trainer's config.
        where: what errors call its place.
        control: what is trained in its place, by name.
        after: the variant whose model it starts from; `None` for the base.
    """

    objective: str | None
    fields: dict[str, Any]
    where: str
    control: str | None = None
    after: str | None = None


def read_variants(found: dict[str, dict[str, Any] | None], *, file: str) -> dict[str, Variant]:
    """The variants of a sweep's file, in its order, which is that of training.

    Args:
        found: name to fields.
        file: of the sweep.

    Raises:
        ValueError: as `read_variant`, and for one that comes after a variant that is not above it.
    """
    variants: dict[str, Variant] = {}
    for name, own in found.items():
        variants[name] = variant = read_variant(own, name=name, file=file)
        above = [other for other in variants if other != name]
        if variant.after is not None and variant.after not in above:
            listed = ", ".join(above) or "none"
            raise ValueError(
                f"{variant.where}: after: found {variant.after!r}, expected a variant above it: {listed}."
            )
    return variants


def read_variant(found: dict[str, Any] | None, *, name: str, file: str) -> Variant:
    """A variant of a sweep's file.

    Args:
        found: its fields, with `objective` where it trains another one, `control` where it is one, and `after` where
            it starts from the model of another.
        name: of the variant.
        file: of the sweep.

    Raises:
        ValueError: for an objective that cannot be imported or is no trainer, and an unknown control.
    """
    own, where = dict(found or {}), f"{file}: variants: {name}"
    control, after = own.pop("control", None), own.pop("after", None)
    if control is not None and control not in ROW_CONTROLS:
        raise ValueError(f"{where}: control: found {control!r}, expected one of {', '.join(ROW_CONTROLS)}.")
    if "objective" not in own:
        return Variant(None, own, where, control, after)
    objective = own.pop("objective")
    if not isinstance(objective, str):
        raise ValueError(f"{where}: objective: found {objective!r}, expected module:class of a trainer.")
    try:
        trainer_class(objective)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return Variant(objective, own, where, control, after)


def read_part(
    name: str, arguments: Sequence[str], shared: dict[str, Any], variant: Variant
) -> tuple[Recipe, list[str]]:
    """The recipe of a variant in one setting with one seed.

    A variant with an objective of its own keeps the fields of the recipe, the setting and the command line that its
    trainer has. The others, which the recipe's trainer has, are dropped.

    Args:
        name: of the recipe, used unless `arguments` holds `--config`.
        arguments: of the command line.
        shared: the fields of the setting, and the seed.
        variant: of the sweep.

    Returns:
        The recipe, and the names of the fields that were dropped.

    Raises:
        ValueError: as `read_recipe`, and for a field that the variant's trainer does not have.
    """
    if variant.objective is None:
        return read_recipe(name, arguments, changes={**shared, **variant.fields}, where=variant.where), []
    own = {key: value for key, value in variant.fields.items() if key not in COMMON}
    common = {key: value for key, value in variant.fields.items() if key in COMMON}
    _check_own(own, variant, arguments)
    recipe = read_recipe(name, arguments, changes={**shared, **common}, where=variant.where)
    return _with_objective(recipe, own, variant)


def _check_own(own: dict[str, Any], variant: Variant, arguments: Sequence[str]) -> None:
    known = {f.name for f in fields(trainer_class(variant.objective).config_class) if f.init}
    overridden = overridden_fields(split_options(arguments)[1])
    for key in own:
        if key not in known:
            raise ValueError(f"{variant.where}: unknown field {key!r} of {variant.objective}.{nearest(key, known)}")
        if key in overridden:
            raise ValueError(f"command line: --{key} is set by {variant.where}. Leave it out, or change it there.")


def _with_objective(recipe: Recipe, own: dict[str, Any], variant: Variant) -> tuple[Recipe, list[str]]:
    found = trainer_class(variant.objective)
    known = {f.name for f in fields(found.config_class) if f.init}
    dropped = [key for key in recipe.trainer_arguments if key not in known]
    kept = {key: value for key, value in recipe.trainer_arguments.items() if key not in dropped}
    arguments = kept | _converted(
        found.config_class, {k: v for k, v in (kept | own).items() if k not in COMMON}, variant
    )
    if recipe.experiment.hard_images and not arguments.get("num_neighbours"):
        raise ValueError(
            f"{variant.where}: hard_images={recipe.experiment.hard_images} finds neighbours that {variant.objective} "
            "does not read: its batches would be smaller than those of the other variants. Leave the variant out."
        )
    given = {key: value for key, value in recipe.given.items() if key not in dropped} | own
    given["objective"] = variant.objective
    return Recipe(replace(recipe.experiment, objective=variant.objective), found, arguments, given), dropped


def _converted(config_class: type, values: dict[str, Any], variant: Variant) -> dict[str, Any]:
    """Values of the kinds that the trainer's config has: YAML reads 2e-3 as a text."""
    parser = HfArgumentParser(config_class, allow_abbrev=False, exit_on_error=False)
    parser.set_defaults(**values)
    try:
        parsed = vars(parser.parse_args([]))
    except ArgumentError as error:
        raise ValueError(f"{variant.where}: {error}") from error
    return {key: parsed[key] for key in values}
