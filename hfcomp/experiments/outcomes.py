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
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.session import Session
from hfcomp.statistics.outcomes import read_table, write_table

# Fields that say which items are scored, beside those that begin with "evaluation".
FIELDS = ("dataset", "dataset_config")


@dataclass(frozen=True)
class Scoring:
    """How a model is scored.

    Attributes:
        score: from an embedder to one row per item and metric.
        stamp: what stored outcomes are of, beside the weights.
    """

    score: Callable[[Embedder], pd.DataFrame]
    stamp: dict[str, Any]


def score_model(
    place: Path | str, weights: str, path: Path, scoring: Scoring, session: Session, device: str | None
) -> pd.DataFrame:
    """Outcomes of a model: those that are stored, or new ones, which then are.

    Args:
        place: of the model, a folder or Hub id.
        weights: of the model, or of the run that it is a checkpoint of.
        path: of the stored outcomes.
        scoring: of the model.
        session: logs again what was logged when stored outcomes were scored.
        device: to encode on; by default a GPU when there is one.
    """
    stamp = {"weights": weights, **scoring.stamp}
    table = read_stored(path, stamp, session.tell)
    if table is None:
        before = len(session.notes)
        table = scoring.score(Embedder(place, device=device, cache=EmbeddingCache()))
        write_table(path, table, {**stamp, "notes": session.notes[before:]})
    return table


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
