"""Accuracies of a classification: top-k, and the mean over classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.spec import Measured
from hfcomp.metrics.classification import Scores, top_k


def accuracy_names(top: Sequence[int]) -> tuple[str, ...]:
    """The names of the metrics of `accuracies`.

    Args:
        top: of top-k accuracy.
    """
    names = tuple("accuracy" if k == 1 else f"top-{k} accuracy" for k in top)
    return (*names, *(("mean per class",) if 1 in top else ()))


def accuracies(scores: Scores, label: NDArray[np.integer], classes: int, top: Sequence[int]) -> Iterator[Measured]:
    """The metrics "accuracy", "top-5 accuracy" and "mean per class".

    "Mean per class" has the outcomes of "accuracy", with the classes as strata: it is the mean of their accuracies.

    Args:
        scores: `[n, C]`, or a function that gives some of its rows.
        label: `[n]`, 0 to C - 1.
        classes: C.
        top: of top-k accuracy; any k of C or more is dropped.
    """
    for k in top:
        if k < classes:
            outcome = top_k(scores, label, k)
            yield Measured("accuracy" if k == 1 else f"top-{k} accuracy", outcome.correct, outcome.tie, k / classes)
            if k == 1:
                yield Measured("mean per class", outcome.correct, outcome.tie, k / classes, strata=label)
