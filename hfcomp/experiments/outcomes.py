"""Outcomes of each model, stored as soon as they are there, and used again while model and evaluation are the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hfcomp import __version__
from hfcomp.evaluation.cache import EmbeddingCache
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.identity import identity
from hfcomp.evaluation.statistics.outcomes import read_table, write_table
from hfcomp.experiments.evaluate import Evaluation
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.session import Session

FOLDER = "evaluation"
# Fields that say which items are scored, beside those that begin with "evaluation".
FIELDS = ("dataset", "dataset_config")


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of several models.

    Attributes:
        items: of all models, as `hfcomp.evaluation.engine.Report` has them, and `arm`.
        weights: by name of the model, its `identity`.
    """

    items: pd.DataFrame
    weights: dict[str, str]


def evaluate_models(
    recipe: Recipe, folder: Path, models: dict[str, Path | str], evaluate: Evaluation, session: Session
) -> Outcomes:
    """Evaluates each model once and stores what comes out, so that a killed run loses one model's evaluation at most.

    Args:
        recipe: says the evaluation and the device.
        folder: of the run; receives `evaluation/<name>.parquet`.
        models: by name, a folder or Hub id.
        evaluate: of `prepare_evaluation`.
        session: is told again what was told when a stored model was evaluated.
    """
    device = "cpu" if recipe.trainer_arguments.get("use_cpu") else None
    settings = evaluation_settings(recipe)
    tables, weights = [], {}
    for name, place in models.items():
        weights[name] = identity(place)
        path = folder / FOLDER / f"{name}.parquet"
        stamp = {"weights": weights[name], **settings}
        table = read_stored(path, stamp, session.tell)
        if table is None:
            told = len(session.notes)
            table = evaluate(Embedder(place, device=device, cache=EmbeddingCache()))
            write_table(path, table, {**stamp, "notes": session.notes[told:]})
        tables.append(table.assign(arm=name))
    return Outcomes(pd.concat(tables, ignore_index=True), weights)


def evaluation_settings(recipe: Recipe) -> dict[str, Any]:
    """What stored outcomes are of, beside the weights: another evaluation or version scores anew."""
    fields = recipe.experiment.model_dump()
    chosen = {name: value for name, value in fields.items() if name in FIELDS or name.startswith("evaluation")}
    return {**chosen, "column_names": recipe.trainer_arguments.get("column_names"), "hfcomp_version": __version__}


def read_stored(path: Path, stamp: dict[str, Any], tell: Callable[[str], None]) -> pd.DataFrame | None:
    """The outcomes in a file, if they are of these weights and this evaluation.

    A file that is damaged is reported and scored anew, as if it were not there.
    """
    if not path.is_file():
        return None
    try:
        table, found = read_table(path)
    except ValueError:
        tell(f"{path} is damaged: its outcomes are scored again")
        return None
    notes = found.pop("notes", [])
    if found != stamp:
        return None
    for note in notes:
        tell(note)
    return table
