"""Fine-grained accuracy against retrieval, concept by concept and over checkpoints: the study of Rösch et al. 2024.

The paper's section 5 asks what continued training gains on a concept (object, color, location, size) and what it costs
in retrieval: for the base, plain training and 1 to 3 hard negatives, at every tenth of an epoch (Fig. 4, Tables 3 to
5). A file such as `recipes/hard_negatives/tradeoff.yaml` says which concepts and numbers, and which lines of the
evaluation stand for accuracy and retrieval; the recipe says everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hfcomp.data.columns import nearest
from hfcomp.experiments.program import output_folder
from hfcomp.experiments.recipes import Recipe, overridden_fields, read_recipe, split_options
from hfcomp.experiments.tradeoff_results import LineName, TradeoffPlan
from hfcomp.reading import read_yaml

REQUIRED = ("concepts", "accuracy", "retrieval")
KEYS = (*REQUIRED, "checkpoints_per_epoch", "visual", "further")


@dataclass(frozen=True)
class Tradeoff:
    """A checked study.

    Attributes:
        recipe: of the base, the evaluation and the folder.
        plan: concepts, numbers of negatives, lines.
        parts: the recipe of each concept and number of negatives.
    """

    recipe: Recipe
    plan: TradeoffPlan
    parts: dict[tuple[str, int], Recipe]


def read_tradeoff(name: str, arguments: Sequence[str], path: Path) -> Tradeoff:
    """Reads a study and the recipe that it is of.

    The file holds `concepts` (each with a list of numbers of negatives), `accuracy` and `retrieval`, and where wanted
    `visual` (each `{benchmark: ..., metric: ...}`), `further` (benchmarks that have accuracy's metric too) and
    `checkpoints_per_epoch` (10). A line of a concept is its benchmark's subset of that name.

    Args:
        name: of the recipe, used unless `arguments` holds `--config`.
        arguments: of the command line.
        path: of the file.

    Raises:
        ValueError: for an unknown or missing key, a value of the wrong kind, a recipe that does not train for whole
            epochs, or a field that the study sets and the command line too.
    """
    plan = _plan(read_yaml(path), path)
    _, words = split_options(arguments)
    recipe = read_recipe(name, arguments)
    _check_epochs(recipe.trainer_arguments, path)
    if "output_dir" not in overridden_fields(words):
        recipe.trainer_arguments["output_dir"] = f"{output_folder(recipe)}-{path.stem}"
    recipe.given["report"] = {"path": path.name, **read_yaml(path)}
    parts = {}
    for concept, numbers in plan.concepts.items():
        for number in numbers:
            changes = {"keyword_negatives": [concept], "num_negatives": number}
            parts[concept, number] = read_recipe(name, arguments, changes=changes, where=str(path))
    return Tradeoff(recipe, plan, parts)


def _check_epochs(arguments: dict[str, Any], path: Path) -> None:
    if int(arguments.get("max_steps") or -1) > 0:
        raise ValueError(f"{path}: checkpoints are shares of an epoch; set num_train_epochs and leave max_steps out.")
    epochs = float(arguments.get("num_train_epochs", 1))
    if epochs < 1 or epochs % 1:
        found = f"num_train_epochs={epochs:g}"
        raise ValueError(f"{path}: models are compared at the ends of epochs; {found} is no whole number from 1.")


def _plan(values: Any, path: Path) -> TradeoffPlan:
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a mapping with {', '.join(REQUIRED)}, found {type(values).__name__}.")
    for key in values:
        if key not in KEYS:
            raise ValueError(f"{path}: unknown key {key!r}.{nearest(key, KEYS)} Known: {', '.join(KEYS)}.")
    missing = [key for key in REQUIRED if key not in values]
    if missing:
        raise ValueError(f"{path}: {', '.join(missing)} is missing. A study has {', '.join(REQUIRED)}.")
    concepts = values["concepts"]
    if not isinstance(concepts, dict) or not concepts:
        raise ValueError(f"{path}: concepts: found {concepts!r}, expected names with numbers: object: [1, 2, 3].")
    for concept, numbers in concepts.items():
        if not isinstance(numbers, list) or not numbers or not all(type(n) is int and n > 0 for n in numbers):
            raise ValueError(f"{path}: concepts: {concept}: found {numbers!r}, expected numbers such as [1, 2, 3].")
    per_epoch = values.get("checkpoints_per_epoch", 10)
    if type(per_epoch) is not int or per_epoch < 1:
        raise ValueError(f"{path}: checkpoints_per_epoch: found {per_epoch!r}, expected a whole number from 1.")
    further = values.get("further") or []
    if not isinstance(further, list) or not all(isinstance(name, str) for name in further):
        raise ValueError(f"{path}: further: found {further!r}, expected a list of benchmarks.")
    return TradeoffPlan(
        concepts={concept: sorted(set(numbers)) for concept, numbers in concepts.items()},
        per_epoch=per_epoch,
        accuracy=_line(values["accuracy"], f"{path}: accuracy"),
        retrieval=_line(values["retrieval"], f"{path}: retrieval"),
        visual=_line(values["visual"], f"{path}: visual") if "visual" in values else None,
        further=further,
    )


def _line(value: Any, where: str) -> LineName:
    if not isinstance(value, dict) or set(value) != {"benchmark", "metric"}:
        raise ValueError(f"{where}: found {value!r}, expected {{benchmark: ..., metric: ...}}.")
    return LineName(value["benchmark"], value["metric"])
