"""How embeddings move in training: distances at checkpoints that are kept for it.

The form of AHNPL's Table 5 (Huang et al. 2025, arXiv 2505.15576, section 4.6), which follows two examples from the
zero-shot model to the middle and the end of training. Here a set of held-out rows is followed, and examples from it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from hfcomp import __version__
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.identity import identity
from hfcomp.evaluation.statistics.outcomes import write_table
from hfcomp.experiments.embedding_distances import BASE_STEP, Tables, distances
from hfcomp.experiments.embedding_rows import HeldOutRows
from hfcomp.experiments.outcomes import FOLDER, read_stored
from hfcomp.experiments.plans import EmbeddingPlan
from hfcomp.experiments.session import Session
from hfcomp.experiments.stages import SUMMARY_FILE, Run, StageSummary, read_summary


@dataclass
class EmbeddingPaths:
    """Trains the variants that are followed, scores their checkpoints and removes them.

    Saving changes no weight; until a run has ended its checkpoints lie on disk, each as large as the model. A run that
    is killed while it trains begins anew, for they hold the model only; one that is killed later goes on: a checkpoint
    that is scored is not scored again.

    Attributes:
        plan: whose embeddings are followed.
        rows: whose embeddings they are.
        folder: of the sweep; receives `evaluation/embeddings/`.
        base: the model that all runs start from.
        session: of the run.
        device: to encode on; by default a GPU when there is one.
        tables: `distances` by variant and step, the base among them at step 0; empty but for the main process.
    """

    plan: EmbeddingPlan
    rows: HeldOutRows
    folder: Path
    base: Path | str
    session: Session
    device: str | None = None
    tables: dict[str, Tables] = field(default_factory=dict)

    def train(self, variant: str, run: Run, folder: Path) -> StageSummary:
        """Trains a run as `Run.train` does, and scores the base and its checkpoints.

        Args:
            variant: its name in the plan.
            run: of the variant.
            folder: of the run.
        """
        state = self.session.state
        if state.is_main_process:
            self._scored_base()  # first, so that rows that cannot be embedded cost no training
            if self._must_train_again(variant, folder):
                (folder / SUMMARY_FILE).unlink()
        state.wait_for_everyone()
        kept = {"save_strategy": "steps", "save_steps": self.plan.save_steps, "save_only_model": True}
        arguments = {**run.arguments, **kept, "save_total_limit": None}
        cost = replace(run, arguments=arguments).train(self.base, folder)
        if state.is_main_process:
            self.tables[variant] = self._score(variant, folder, cost.steps)
        state.wait_for_everyone()
        return cost

    def _score(self, variant: str, folder: Path, steps: int) -> Tables:
        tables = {BASE_STEP: self._scored_base()}
        weights = identity(folder)
        for step in self.plan.checkpoint_steps(steps):
            place = folder if step == steps else folder / f"checkpoint-{step}"
            tables[step] = self._scored(place, weights, self._path(variant, step))
            _remove(folder / f"checkpoint-{step}")
        return tables

    def _scored_base(self) -> pd.DataFrame:
        return self._scored(self.base, identity(self.base), self._path(None, BASE_STEP))

    def _scored(self, place: Path | str, weights: str, path: Path) -> pd.DataFrame:
        """Distances of a model, stored ones where there are."""
        tell, told = self.session.tell, []
        found = read_stored(path, self._stamp(weights), tell)
        if found is None:
            found, cut = distances(Embedder(place, device=self.device), self.rows)
            if cut:
                told.append(f"embeddings: {cut} texts are longer than the text tower and were cut")
                tell(told[0])
            write_table(path, found, {**self._stamp(weights), "notes": told})
        return found

    def _must_train_again(self, variant: str, folder: Path) -> bool:
        """Whether a finished run lacks a checkpoint that is not scored: it was asked for other rows since."""
        if not (folder / SUMMARY_FILE).is_file():
            return False
        stamp, steps = self._stamp(identity(folder)), read_summary(folder).steps
        return any(
            not (folder / f"checkpoint-{step}").is_dir()
            and read_stored(self._path(variant, step), stamp, self.session.tell) is None
            for step in self.plan.checkpoint_steps(steps)[:-1]  # the last one is the run's own model
        )

    def _path(self, variant: str | None, step: int) -> Path:
        return self.folder / FOLDER / "embeddings" / (variant or "") / f"{step}.parquet"

    def _stamp(self, weights: str) -> dict[str, Any]:
        return {"weights": weights, "rows": self.rows.digest, "hfcomp_version": __version__}


def _remove(checkpoint: Path) -> None:
    """Renamed first: one of which a killed process left a half would be taken for a checkpoint."""
    scored = checkpoint.with_name("scored")
    shutil.rmtree(scored, ignore_errors=True)
    if checkpoint.is_dir():
        checkpoint.rename(scored)
        shutil.rmtree(scored)
