"""Every trainer of `hfcomp.trainers` with the rows and settings of a short run."""

from __future__ import annotations

from typing import Any

from hfcomp import trainers
from hfcomp.trainers.base import CompositionalTrainer

GROUPS = {"groups_per_batch": 2, "pairs_per_group": 4}
NEGATIVES = {"num_negatives": 2}
SETTINGS: dict[str, dict[str, Any]] = {
    "AHNPLTrainer": NEGATIVES,
    "AHNPLReleasedTrainer": NEGATIVES,
    "C2LIPTrainer": {"max_concepts": 2},
    "CEClipTrainer": NEGATIVES,
    "CementTrainer": {},
    "ClearGlassReleasedTrainer": GROUPS,
    "ClearGlassTrainer": GROUPS,
    "DCLTrainer": NEGATIVES,
    "HierarCapsTrainer": {"chain_columns": ["generalized_caption", "caption"]},
    "InfoNCETrainer": {},
    "ReplacedNegativesTrainer": NEGATIVES,
    "TextAlignmentTrainer": {},
    "TripletClipTrainer": {},
}
# Bases of others, which compute no loss of their own.
BASES = {"CompositionalTrainer", "DrawnBatchTrainer", "GroupedTrainer", "ThresholdTrainer"}


def trainer_class(name: str) -> type[CompositionalTrainer]:
    return getattr(trainers, name)
