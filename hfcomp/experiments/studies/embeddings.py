"""How embeddings move in training: distances on held-out rows, at checkpoints that are kept for it.

The form of AHNPL's Table 5 (Huang et al. 2025, arXiv 2505.15576, section 4.6), which follows two examples from the
zero-shot model to the middle and the end of training. Here a set of held-out rows is followed, and examples from it.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from datasets import Dataset

from hfcomp import __version__
from hfcomp.analysis.embedding_distances import BASE_STEP, HeldOutRows, Tables, distances, select_rows
from hfcomp.data.columns import require_columns
from hfcomp.data.loading import load_training_set
from hfcomp.data.pair_table import choose_captions
from hfcomp.distributed import first_process_first
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.experiments.arm import Arm, Checkpoints, Scoring
from hfcomp.experiments.data import Log, training_rows
from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.session import Session
from hfcomp.experiments.studies.plans import EmbeddingPlan
from hfcomp.experiments.study import Study
from hfcomp.statistics.summary import BASE

FOLDER = "embeddings"


def check_source(config: ExperimentConfig, *, where: str) -> None:
    """Refuses an experiment that has no held-out rows with negatives; `where` names the place that asks for them."""
    if config.dataset != SANDBOX and config.evaluation != "own":
        raise ValueError(
            f"{where}: evaluation={config.evaluation!r} of {config.dataset} brings no held-out rows with negative "
            "captions. Set evaluation: own with evaluation_split (and evaluation_dataset) of a set that has them, or "
            "leave embeddings out."
        )


def held_out_rows(recipe: Recipe, wanted: int, *, seed: int, num_negatives: int, session: Session) -> HeldOutRows:
    """Rows like those of training that are not among them, at most `wanted`.

    Of the sandbox: other scenes with the same kinds and number of negatives, without the noise of training, so that
    every caption is true and every negative false; `seed` is one that no run trains on. Else the first rows with an
    image and a negative of the set that `evaluation: own` scores.
    """

    def log(note: str) -> None:
        session.log(f"embeddings: {note}")

    config = recipe.experiment
    with first_process_first():  # the others find what it cached
        if config.dataset == SANDBOX:
            clean = {"edit_noise": 0.0, "caption_noise": 0.0, "false_negatives": 0.0}
            clean |= {"ratings": "bands", "concreteness_ratings": None}  # not read
            config = config.model_copy(update={"dataset_rows": wanted, **clean})
            rows = training_rows(config, seed=seed, log=log, num_negatives=num_negatives)
            source = f"the sandbox (seed {seed})"
        else:
            rows = _own_rows(recipe, log)
            source = f"{config.evaluation_dataset or config.dataset} ({config.evaluation_split})"
        found = select_rows(rows, wanted, source)
    log(f"{len(found):,} rows of {source}, with {sum(map(len, found.negatives)):,} negatives")
    return found


def _own_rows(recipe: Recipe, log: Log) -> Dataset:
    config = recipe.experiment
    source = config.evaluation_dataset or config.dataset
    part = {"split": config.evaluation_split, "config": config.dataset_config}
    rows = load_training_set(source, **part, column_names=recipe.column_names)
    require_columns(rows, ("image", "caption", "negative_captions"), needed_by=f"embeddings, of {source},")
    return choose_captions(rows, "longest", log)


def follow(arm: Arm, plan: EmbeddingPlan, rows: HeldOutRows, session: Session) -> Arm:
    """An arm of a sweep with the checkpoints that are followed, where it is one of the plan's.

    Saving changes no weight; until the arm has ended its checkpoints are on disk, each as large as the model. An arm
    that is killed while it trains begins anew, for they hold the model only; one that is killed later resumes: a
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


def read_paths(study: Study, rows: HeldOutRows) -> dict[str, Tables]:
    """`distances` by variant and step, the base among them at step 0; for the main process."""
    base = {BASE_STEP: score_base(study, rows)}
    return {name.rpartition("/")[2]: base | found for name, found in study.followed.items()}


def _scoring(rows: HeldOutRows, session: Session) -> Scoring:
    def score(embedder: Embedder) -> pd.DataFrame:
        found, cut = distances(embedder, rows)
        if cut:
            session.log(f"embeddings: {cut} texts are longer than the text tower and were cut")
        return found

    return Scoring(score, {"rows": rows.digest, "hfcomp_version": __version__})
