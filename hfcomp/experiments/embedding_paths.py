"""How embeddings move in training: distances at checkpoints that are kept for it.

The form of AHNPL's Table 5 (Huang et al. 2025, arXiv 2505.15576, section 4.6), which follows two examples from the
zero-shot model to the middle and the end of training. Here a set of held-out rows is followed, and examples from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from hfcomp import __version__
from hfcomp.analysis.embedding_distances import BASE_STEP, Tables, distances
from hfcomp.analysis.held_out_rows import HeldOutRows
from hfcomp.evaluation.embed import Embedder
from hfcomp.experiments.arm import Arm, Checkpoints
from hfcomp.experiments.outcomes import Scoring
from hfcomp.experiments.plans import EmbeddingPlan
from hfcomp.experiments.session import Session
from hfcomp.experiments.study import Study
from hfcomp.statistics.summary import BASE

FOLDER = "embeddings"


@dataclass(frozen=True)
class EmbeddingPaths:
    """What was found of the variants that are followed.

    Attributes:
        plan: whose embeddings are followed.
        rows: whose embeddings they are.
        folder: of the sweep.
        tables: `distances` by variant and step, the base among them at step 0.
    """

    plan: EmbeddingPlan
    rows: HeldOutRows
    folder: Path
    tables: dict[str, Tables]


def follow(arm: Arm, plan: EmbeddingPlan, rows: HeldOutRows, session: Session) -> Arm:
    """An arm of a sweep with the checkpoints that are followed, where it is one of the plan's.

    Saving changes no weight; until the arm has ended its checkpoints lie on disk, each as large as the model. An arm
    that is killed while it trains begins anew, for they hold the model only; one that is killed later goes on: a
    checkpoint that is scored is not scored again.
    """
    variant = arm.name.rpartition("/")[2]
    if variant not in plan.variants:
        return arm
    scoring = _scoring(rows, session)
    return replace(arm, checkpoints=Checkpoints(plan.save_steps, lambda step: scoring, f"{FOLDER}/{variant}"))


def score_base(study: Study, rows: HeldOutRows) -> pd.DataFrame:
    """Distances of the base; for the main process."""
    return study.score(study.models[BASE], _scoring(rows, study.session), f"{FOLDER}/{BASE_STEP}")


def read_paths(study: Study, plan: EmbeddingPlan, rows: HeldOutRows) -> EmbeddingPaths:
    """What a study has found of its followed arms; for the main process."""
    base = {BASE_STEP: score_base(study, rows)}
    tables = {name.rpartition("/")[2]: base | found for name, found in study.followed.items()}
    return EmbeddingPaths(plan, rows, study.folder, tables)


def _scoring(rows: HeldOutRows, session: Session) -> Scoring:
    def score(embedder: Embedder) -> pd.DataFrame:
        found, cut = distances(embedder, rows)
        if cut:
            session.tell(f"embeddings: {cut} texts are longer than the text tower and were cut")
        return found

    return Scoring(score, {"rows": rows.digest, "hfcomp_version": __version__})
