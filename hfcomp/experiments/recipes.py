"""A recipe: one flat YAML mapping over our config and the trainer's, with the command line's fields laid over it.

Beside the recipes of a method are the plans of it: sweeps, studies of concepts and searches.
"""

from __future__ import annotations

import importlib
import os
import sys
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_origin, get_type_hints

from pydantic import AfterValidator, Field

from hfcomp.data.known_names import parse_column_names
from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.experiments.origin import Origin, read_origin, train_command
from hfcomp.experiments.recipe_files import find_recipe, study_kind, top_level_keys
from hfcomp.reading import nearest, parse_json, read_yaml
from hfcomp.schemas import convert, members, parse


def _check_steps(steps: int) -> int:
    if steps == 0 or steps < -1:
        raise ValueError(f"found {steps}, expected at least 1, or -1 for the epochs of num_train_epochs.")
    return steps


# Fields of a trainer's config whose type allows values that mean nothing.
LIMITS = {
    **dict.fromkeys(
        ("gradient_accumulation_steps", "mini_batch_size", "max_image_pixels", "shuffle_buffer"), Field(ge=1)
    ),
    **dict.fromkeys(
        ("num_negatives", "num_neighbours", "max_concepts", "dataloader_num_workers", "seed", "learning_rate")
        + ("weight_decay", "num_train_epochs", "warmup_steps", "max_grad_norm"),
        Field(ge=0),
    ),
    "random_crop": Field(gt=0, le=1),
    "max_steps": AfterValidator(_check_steps),
}
# Those that no recipe sets, and what to do instead.
REFUSED = {
    "hub_token": "would be written into the run's files. Log in with `hf auth login` or set HF_TOKEN.",
    "draw_captions": "is captions: drawn in a recipe. Set that instead.",
    "per_device_train_batch_size": (
        "is batch_size, the rows of the contrastive batch over all processes, by their number: set batch_size instead."
    ),
    **dict.fromkeys(
        ("hub_strategy", "hub_always_push"), "has no meaning: a run is pushed once, when it is finished. Leave it out."
    ),
}


# Fields that a command line may write as OURS=YOURS.
COLUMN_NAMES = ("column_names", "replay_column_names")


@dataclass(frozen=True)
class Recipe:
    """A recipe whose values are of their fields' types.

    `given` are all fields that the file, the command line or a plan sets, for `config.yaml`; `experiment` and
    `trainer_arguments` are those of our config and of the trainer's. `left_out` are fields that were given and that
    another objective than the file's does not have. `origin` says where the values come from, for cards. `chosen` are
    fields that the command line or a plan sets.
    """

    experiment: ExperimentConfig
    trainer_class: type
    trainer_arguments: dict[str, Any]
    given: dict[str, Any]
    seed: int  # of rows, training and a base that is made
    seeds: list[int]  # that a run of the recipe trains with
    column_names: Mapping[str, str] | None  # contract name to the data set's own
    device: str | None  # to score on; None for a GPU when there is one
    left_out: tuple[str, ...] = ()
    origin: Origin = Origin()
    chosen: frozenset[str] = frozenset()

    @property
    def folder(self) -> Path:
        """That the recipe asks for."""
        return Path(self.trainer_arguments.get("output_dir") or f"runs/{self.experiment.method}".lower())

    def with_seed(self, seed: int) -> Recipe:
        """The recipe of one of the seeds."""
        return replace(self, seed=seed, trainer_arguments={**self.trainer_arguments, "seed": seed})


@dataclass(frozen=True)
class RecipeFile:
    """A recipe's file and the command line over it, which make a recipe, or that of each part of a plan."""

    path: Path
    trainer_class: type
    values: dict[str, Any]
    overridden: dict[str, Any]
    command: str = ""

    @classmethod
    def read(cls, name: str, arguments: Sequence[str] = ()) -> RecipeFile:
        """Reads a recipe's file, by its name or path or `--config` among the arguments, and the fields among these."""
        options, words = split_options(arguments)
        path, values, trainer = read_file(name, options)
        hints = field_hints(trainer.config_class)
        values, overridden = convert_fields(values, hints, str(path)), _overrides(words, hints)
        return cls(path, trainer, values, overridden, train_command(name, arguments))

    @property
    def hints(self) -> dict[str, Any]:
        """The type of every field, by name."""
        return field_hints(self.trainer_class.config_class)

    def recipe(
        self, changes: Mapping[str, Mapping[str, Any]] | None = None, *, objective: str | None = None, where: str = ""
    ) -> Recipe:
        """The recipe, or that of a part of a plan, which sets fields and may train another objective.

        The `changes` are fields by what errors call their place; `where` is what they call all of them together. With
        an objective the last of the changes are fields of its own trainer, and the file's are left out where that does
        not have them.
        """
        where, changes = where or str(self.path), changes or {}
        trainer = self.trainer_class if objective is None else trainer_class(objective, f"{where}: ")
        hints, values = field_hints(trainer.config_class), dict(self.values)
        for number, (place, changed) in enumerate(changes.items(), start=1):
            self.refuse_overridden(changed, place)
            if objective is not None and number == len(changes):
                values |= convert_fields(changed, hints, f"{place}: {objective}")
            else:
                values |= convert_fields(changed, self.hints, place)
            if "seed" in changed:
                values.pop("seeds", None)  # a plan has seeds of its own
        given = self._override(values)
        left_out = tuple(name for name in given if name not in hints)
        if objective is not None:
            kept = {name: value for name, value in given.items() if name in hints}
            given = convert_fields({**kept, "objective": objective}, hints, where)
        origin = read_origin(self.path, self.command, self.overridden)
        chosen = frozenset(self.overridden).union(*changes.values())
        return replace(_build(trainer, given, where, left_out, origin), chosen=chosen)

    def refuse_overridden(self, names: Iterable[str], where: str) -> None:
        """Refuses fields that a plan sets and the command line too."""
        for name in names:
            if name in self.overridden:
                raise ValueError(f"command line: --{name} is set by {where}. Leave it out, or change it there.")

    def _override(self, values: dict[str, Any]) -> dict[str, Any]:
        """Lays the command line over the fields of the file."""
        beside, overridden = self.path.parent / str(values.get("keyword_table")), self.overridden
        if beside.is_file():
            values["keyword_table"] = str(beside.resolve())  # by the place where it is found from anywhere
        of_sandbox = {"dataset"} if values.get("dataset") == SANDBOX else set()  # whose keywords may be scored too
        if {"evaluation", "evaluation_benchmarks", "keyword_negatives", *of_sandbox} & overridden.keys():
            values.pop("primary", None)  # it is of what the file evaluates
        if "seed" in overridden:
            values.pop("seeds", None)
        if "seeds" in overridden:
            values.pop("seed", None)
        given = overridden.get("model") if "model" not in values and values.get("dataset") == SANDBOX else None
        if given is not None and not _is_sandbox_base(given):
            raise ValueError(
                f"{self.path.stem} holds values for the sandbox's tiny model (learning_rate "
                f"{values.get('learning_rate')}). For a model of your own start from another recipe: --config "
                f"{_for_other_models(self.path)} --dataset <yours>."
            )
        return dict(sorted((values | overridden).items()))


def _is_sandbox_base(model: str) -> bool:
    """Whether a model is a base that `recipes/sandbox_base.py` made."""
    from hfcomp.sandbox.bases import FACTS_FILE

    return (Path(model) / FACTS_FILE).is_file()


def read_recipe(name: str, arguments: Sequence[str] = ()) -> Recipe:
    """Reads a recipe and lays a command line over it, see [`RecipeFile`]."""
    return RecipeFile.read(name, arguments).recipe()


def _build(trainer: type, given: dict[str, Any], where: str, left_out: tuple[str, ...], origin: Origin) -> Recipe:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if given.get("batch_size", 0) % processes:
        raise ValueError(f"{where}: batch_size={given['batch_size']} does not divide by {processes} processes.")
    ours = {key: value for key, value in given.items() if key in ExperimentConfig.model_fields}
    experiment = parse(ExperimentConfig, ours, where)
    if experiment.hard_images and not given.get("num_neighbours"):
        raise ValueError(
            f"{where}: hard_images={experiment.hard_images} finds neighbours that {experiment.objective} does not "
            "read. Set num_neighbours where it has the field, or leave hard_images out."
        )
    theirs = {key: value for key, value in given.items() if key not in ours}
    if experiment.seeds:
        if "seed" in theirs:
            raise ValueError(
                f"{where}: found seed={theirs['seed']} and seeds={experiment.seeds}. Leave one of the two out."
            )
        theirs["seed"] = experiment.seeds[0]
    if experiment.captions == "drawn":
        theirs["draw_captions"] = True
    seed, device = int(theirs.get("seed", 42)), "cpu" if theirs.get("use_cpu") else None
    own = {"seed": seed, "seeds": experiment.seeds or [seed], "device": device}
    own["column_names"] = theirs.get("column_names")
    return Recipe(experiment, trainer, theirs, given, left_out=left_out, origin=origin, **own)


def _for_other_models(recipe: Path) -> str:
    """The name of a recipe beside this one that is not of the sandbox."""
    beside = [path for path in sorted(recipe.parent.glob("*.yaml")) if "objective" in top_level_keys(path)]
    others = [path for path in beside if read_yaml(path).get("dataset") != SANDBOX]
    return f"{recipe.parent.name}/{others[-1].stem}" if others else "slipform/vit_b32_coco"


def trainer_class(objective: str, where: str = "") -> type:
    """The trainer that `module:class` names; a module in the working directory is found too."""
    from hfcomp.trainers.base import CompositionalTrainer

    module, _, name = objective.partition(":")
    try:
        found = getattr(_import(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{where}objective {objective!r}: expected module:class, and {error}.") from error
    if not (isinstance(found, type) and issubclass(found, CompositionalTrainer)):
        raise ValueError(f"{where}objective {objective!r} is not a subclass of CompositionalTrainer.")
    return found


def _import(module: str) -> ModuleType:
    """Imports a module, and looks for one that is not found in the working directory, as a script's path omits it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        sys.path.insert(0, os.getcwd())
        importlib.invalidate_caches()
        try:
            return importlib.import_module(module)
        except ImportError:
            del sys.path[0]
            raise


@cache
def field_hints(config_class: type) -> dict[str, Any]:
    """The type of every field of a recipe, by name: those of our config and of a trainer's."""
    theirs = get_type_hints(config_class, include_extras=True)
    hints = {member.name: theirs[member.name] for member in fields(config_class) if member.init}
    hints |= {name: Annotated[hints[name], limit] for name, limit in LIMITS.items() if name in hints}
    ours = get_type_hints(ExperimentConfig, include_extras=True)
    hints |= {"column_names": dict[str, str] | None}
    return hints | {name: ours[name] for name in ExperimentConfig.model_fields}


def convert_fields(
    values: Mapping[str, Any], hints: Mapping[str, Any], where: str, *, dashes: str = ""
) -> dict[str, Any]:
    """Values of a recipe's fields, of their types; whole numbers stay as written, so that `config.yaml` says 1 too."""
    check_known(values, hints, where)
    found = {name: convert(value, hints[name], f"{where}: {dashes}{name}") for name, value in values.items()}
    whole = {name: value for name, value in values.items() if type(value) is int and type(found[name]) is float}
    return found | whole


def check_known(names: Iterable[str], hints: Mapping[str, Any], where: str) -> None:
    """Refuses fields that there are not, naming the nearest, and those that no recipe sets."""
    for name in names:
        if name not in hints:
            raise ValueError(f"{where}: unknown field {name!r}.{nearest(str(name), hints)}")
        if name in REFUSED:
            raise ValueError(f"{where}: {name} {REFUSED[name]}")


def split_options(arguments: Sequence[str]) -> tuple[Namespace, list[str]]:
    """Takes the options of the command out of a command line, and leaves the words of the fields: `--field value`.

    The options are `config`, `objective`, `report`, `search` (without a name `search`), `dry_run`, `help` and
    `help_all`.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--config", "--objective", "--report"):
        parser.add_argument(name)
    parser.add_argument("--search", nargs="?", const="search")
    parser.add_argument("--dry_run", "--dry-run", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--help-all", "--help_all", action="store_true")
    try:
        return parser.parse_known_args(list(arguments))
    except ArgumentError as error:
        raise ValueError(f"command line: {error}") from error


def read_file(name: str, options: Namespace) -> tuple[Path, dict[str, Any], type]:
    """Path, fields and trainer of a recipe, unchecked but for these; the options' objective replaces the file's."""
    path = find_recipe(name if options.config is None else options.config)
    values = read_yaml(path) or {}
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a mapping of fields, found {type(values).__name__}.")
    if options.objective is not None:
        values["objective"] = options.objective
    if not isinstance(values.get("objective"), str):
        study = study_kind(values)
        alike = (f" {key!r} is unknown.{near}" for key in values if (near := nearest(str(key), ["objective"])))
        hint = f" It is a {study.noun}: --{study.option} {path.stem}." if study else next(alike, "")
        raise ValueError(f"{path}: has no 'objective' (module:class of a trainer).{hint}")
    where = path if options.objective is None else "command line"
    return path, values, trainer_class(values["objective"], f"{where}: ")


def _overrides(arguments: Sequence[str], hints: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a command line sets, as `split_options` leaves them."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in arguments:
        if word.startswith("--"):
            name, joined, value = word[2:].partition("=")
            name = name.replace("-", "_")
            name = "output_dir" if name == "output" else name  # as other commands call it too
            found[name] = [value] if joined else []
        elif not found:
            raise ValueError(f"command line: {word!r} belongs to no field; overrides are --field value.")
        else:
            found[name].append(word)
    check_known(found, hints, "command line")
    values = {name: _spelled(name, words, hints[name]) for name, words in found.items()}
    return convert_fields(values, hints, "command line", dashes="--")


def _bracketed(word: str) -> list[str]:
    """The entries of a list in brackets, as help and YAML show it; another word is a list of its own."""
    if not (word.startswith("[") and word.endswith("]")):
        return [word]
    return [entry.strip().strip("\"'") for entry in word[1:-1].split(",") if entry.strip()]


def _spelled(name: str, words: list[str], hint: Any) -> Any:
    """The value that words of the command line spell: a list where the field takes one alone, a mapping as JSON."""
    kinds = [get_origin(kind) or kind for kind in members(hint)]
    if words and list in kinds and (len(words) > 1 or kinds == [list]):
        return _bracketed(words[0]) if len(words) == 1 else words
    if not words and bool in kinds:
        return True
    if len(words) != 1:
        raise ValueError(f"command line: --{name}: found {words or 'nothing'}, expected one value.")
    if dict not in kinds or (str in kinds and not words[0].startswith("{")):
        return words[0]
    try:
        return parse_column_names(words[0]) if name in COLUMN_NAMES else parse_json(words[0])
    except ValueError as error:
        if name in COLUMN_NAMES:
            raise ValueError(f"command line: {error}") from error
        example = """a JSON object in quotes, as '{"caption": "text"}'"""
        raise ValueError(f"command line: --{name}: found {words[0]!r}, expected {example}: {error}.") from error
