"""Logistic regression by L-BFGS, as in the appendix of the CLIP paper."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.probes.linear import (
    Labels,
    LinearProbe,
    best,
    check_strengths,
    check_training,
    held_out_score,
    hold_out,
    unit_rows,
    without_missing,
)

logger = logging.getLogger(__name__)

STEPS = 1000
TOLERANCE = 1e-5
"""Share of the first gradient at which a solution is one."""

SAME = 1e-9
"""Features at unit length that differ by less are all the same."""

STRENGTHS = (1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6)
"""Values of `C` that are tried, in rising order: the weight of the summed loss against half the squared weights."""


def fit_lbfgs(
    features: NDArray[np.floating],
    labels: Labels,
    *,
    classes: int,
    seed: int = 0,
    strength: float | Sequence[float] = STRENGTHS,
    held_out: NDArray[np.bool_] | None = None,
    allow_missing: bool = False,
) -> LinearProbe:
    """Fits logistic regression with a squared penalty on the weights, by scikit-learn's L-BFGS.

    As the CLIP paper (Radford et al. 2021, appendix A.3): L-BFGS with at most 1,000 steps, the penalty chosen on a
    held-out part, then a fit to all training images.

    Our choices: 7 strengths, the powers of ten from 1 to 1e6, where the paper searches 96 from 1e-6 to 1e6;
    features at unit length, where the paper takes them as they are, before the projection: a grid of strengths means
    something only at a known length; the held-out part, a fifth of each class, where a data set has none of its own;
    each strength starts from the solution of the one before (the problem is convex, so this costs no accuracy beyond
    the tolerance). Labels `[n, C]` are C regressions of one class against the rest, with one strength for all, chosen
    by mAP. Two classes are one regression, as in scikit-learn.

    A solver run that does not converge is used as is, counted in `unconverged` and logged. Time and
    memory grow with `n`, `C` and `D` (float64): 50,000 images of 512 numbers and 100 classes took 110 s of one
    core and 1.1 GB. ImageNet's 1.28 million of 1,000 classes are 256 times that: take `adamw10` there.

    Args:
        features: `[n, D]`, of any length.
        labels: `[n]` or `[n, C]` bool.
        classes: C.
        seed: of the held-out part; the solver itself draws nothing.
        strength: from 1e-9 to 1e9; several to choose from.
        held_out: `[n]` bool, which images to choose on, such as those of `vtab_1k`; by default a seeded fifth.
        allow_missing: whether classes may lack examples, or counterexamples; such a class is never right.

    Raises:
        ValueError: as `hfcomp.evaluation.probes.linear.check_training`, and for strengths out of range.
        ImportError: without scikit-learn, which comes with `pip install "hfcomp[eval]"`.
    """
    check_training(features, labels, classes, allow_missing)
    strengths = check_strengths(strength, "strength", 1e-9, 1e9)
    units = unit_rows(features)
    tried: dict[float, float] = {}
    runs: list[bool] = []
    if len(strengths) > 1:
        out = hold_out(labels, seed, held_out)
        solver = _Solver(units[~out], labels[~out], classes)
        for value in sorted(strengths):
            probe = LinearProbe(*solver.fit(value), chosen=value)
            tried[value] = held_out_score(probe.scores(features[out]), labels[out])
        runs += solver.converged
    chosen = best(tried) if tried else strengths[0]
    solver = _Solver(units, labels, classes)
    weight, bias = solver.fit(chosen)
    runs += solver.converged
    unconverged = len(runs) - sum(runs)
    if unconverged:
        logger.warning(
            f"lbfgs: {unconverged} of {len(runs)} solver runs did not converge within {STEPS:,} steps, "
            f"{solver.converged.count(False)} of them of the final fit."
        )
    return LinearProbe(weight, bias, chosen=chosen, held_out=tried, solver_runs=len(runs), unconverged=unconverged)


class _Solver:
    """The regressions of one training set: one for labels `[n]`, one a class for `[n, C]`.

    It solves for features `scale * (units - mean)`, whose entries have a mean square of 1, with the strength divided
    by `scale ** 2`. The bias has no penalty, so that is the same problem; but an image encoder's features lie in a
    narrow cone, where the solver is slow, and their entries are small, so that scikit-learn's tolerance, 1e-4 for the
    gradient of the mean loss, takes the start for the solution. The tolerance is relative to what a gradient is at
    first, about 1/C.

    Args:
        units: `[n, D]`, overwritten.
        labels: `[n]` or `[n, C]`.
        classes: C.
    """

    def __init__(self, units: NDArray[np.float64], labels: Labels, classes: int) -> None:
        self.mean = units.mean(axis=0)
        units -= self.mean
        spread = float(np.linalg.norm(units)) / units.size**0.5
        self.scale = 1 / spread if spread > SAME else 1.0
        units *= self.scale
        self.units = units
        self.classes = classes
        self.converged: list[bool] = []
        self.labels = labels
        self.single = labels.ndim == 1
        self.targets = [labels] if self.single else list(labels.T)
        self.models: list[Any] = [
            _regression(classes) if len(np.unique(target)) > 1 else None for target in self.targets
        ]

    def fit(self, strength: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Weights `[C, D]` and biases `[C]`, from where the fit before ended."""
        weight = np.zeros((self.classes, self.units.shape[1]))
        bias = np.zeros(self.classes)
        for column, (model, target) in enumerate(zip(self.models, self.targets, strict=True)):
            if model is None:
                continue
            self._run(model, target, strength)
            if self.single:
                coefficients, own = model.coef_, model.intercept_
                if len(own) == 1:  # two classes: one row of weights, for the second against the first
                    coefficients, own = np.concatenate([-coefficients, coefficients]) / 2, np.array([-0.5, 0.5]) * own
                weight[model.classes_], bias[model.classes_] = coefficients, own
            else:
                weight[column], bias[column] = model.coef_[0], model.intercept_[0]
        weight *= self.scale
        return without_missing(weight, bias - weight @ self.mean, self.labels)

    def _run(self, model: Any, target: NDArray[Any], strength: float) -> None:
        from sklearn.exceptions import ConvergenceWarning

        model.set_params(C=strength / self.scale**2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(self.units, target)
        self.converged.append(not any(issubclass(one.category, ConvergenceWarning) for one in caught))
        for one in caught:
            if not issubclass(one.category, ConvergenceWarning):
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def _regression(classes: int) -> Any:
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise ImportError('The probe lbfgs needs scikit-learn: pip install "hfcomp[eval]".') from error
    return LogisticRegression(solver="lbfgs", max_iter=STEPS, warm_start=True, tol=TOLERANCE / classes)
