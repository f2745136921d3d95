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

from hfcomp.experiments.plans import TradeoffPlan
from hfcomp.experiments.recipes import Recipe, overridden_fields, read_recipe, split_options
from hfcomp.experiments.study import output_folder
from hfcomp.reading import read_yaml
from hfcomp.schemas import parse


@dataclass(frozen=True)
class Tradeoff:
    """A study that is read, with the recipe of each part.

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

    Args:
        name: of the recipe, used unless `arguments` holds `--config`.
        arguments: of the command line.
        path: of the file, a `TradeoffPlan`.

    Raises:
        ValueError: for an unknown or missing key, a value of the wrong kind, a recipe that does not train for whole
            epochs, or a field that the study sets and the command line too.
    """
    values = read_yaml(path)
    plan = parse(TradeoffPlan, values, str(path))
    _, words = split_options(arguments)
    recipe = read_recipe(name, arguments)
    _check_epochs(recipe.trainer_arguments, path)
    if "output_dir" not in overridden_fields(words):
        recipe.trainer_arguments["output_dir"] = f"{output_folder(recipe)}-{path.stem}"
    recipe.given["report"] = {"path": path.name, **values}
    parts = {}
    for concept, numbers in plan.concepts.items():
        for number in numbers:
            changes = {"keyword_negatives": [concept], "num_negatives": number}
            parts[concept, number] = read_recipe(name, arguments, changes=changes, where=str(path))
    return Tradeoff(recipe, plan, parts)


def _check_epochs(arguments: dict[str, Any], path: Path) -> None:
    if arguments.get("max_steps", -1) > 0:
        raise ValueError(f"{path}: checkpoints are shares of an epoch; set num_train_epochs and leave max_steps out.")
    epochs = arguments.get("num_train_epochs", 1)
    if epochs < 1 or epochs % 1:
        found = f"num_train_epochs={epochs:g}"
        raise ValueError(f"{path}: models are compared at the ends of epochs; {found} is not a whole number from 1.")
