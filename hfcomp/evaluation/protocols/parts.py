"""Outcomes of parts of a benchmark put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hfcomp.metrics.choice import ChoiceOutcome


def concatenated(outcomes: Sequence[ChoiceOutcome]) -> ChoiceOutcome:
    """Outcomes of consecutive rows as one."""
    if not outcomes:
        return ChoiceOutcome(np.zeros(0, dtype=bool), np.zeros(0, dtype=bool))
    return ChoiceOutcome(
        np.concatenate([one.correct for one in outcomes]), np.concatenate([one.tie for one in outcomes])
    )
