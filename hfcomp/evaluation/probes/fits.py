"""The two probes: ten epochs of AdamW (LAION's CLIP_benchmark) and L-BFGS (appendix of the CLIP paper)."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:  # the registry of benchmarks imports this module, and listing benchmarks does not need torch
    import torch

EPOCHS = 10
LEARNING_RATE = 0.1
BATCH = 64
DECAYS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Weight decays to choose from. AdamW subtracts `0.1 * decay` of a weight in each step."""


def fit_adamw10(
    features: NDArray[np.floating],
    labels: Labels,
    *,
    classes: int,
    seed: int = 0,
    weight_decay: float | Sequence[float] = 0.0,
    held_out: NDArray[np.bool_] | None = None,
    allow_missing: bool = False,
    batch_size: int = BATCH,
    device: str | torch.device = "cpu",
) -> LinearProbe:
    """Fits a linear probe by ten epochs of AdamW on features at unit length.

    As CLIP_benchmark (commit 48de38c, `metrics/linear_probe.py` and the defaults of its command line): AdamW
    with its usual moments; learning rate 0.1, from the first step along a half cosine to 0 at the end, no warm-up, a
    new rate every step; 10 epochs in a new order each, the last batch smaller; batches of 64; softmax cross-entropy;
    weights and bias drawn uniformly from +-1/sqrt(D); weight decay 0, also on the bias, when no part is held out.

    Our choices: fp32 where theirs is mixed precision; own random numbers, so results agree in distribution only; with
    several weight decays, all are tried on a held-out fifth and the best is fitted to all images (theirs: a search
    over 97 values from 1e-6 to 100, where those above 10 take more than the whole weight in one step); labels `[n, C]`
    by the mean of the binary cross-entropies (theirs knows single labels only).

    Args:
        features: `[n, D]`, vectors of any length. They stay on the CPU, and may be a memory map in half precision.
        labels: `[n]` or `[n, C]` bool.
        classes: Number of classes C.
        seed: Random seed of the initial weights, the orders and the held-out part. Results are bit-identical on the
            same CPU with the same number of threads.
        weight_decay: Weight decay from 0 to 10, which removes the whole weight in the first step; or several to choose
            from, such as `DECAYS`.
        held_out: `[n]` bool, images to choose on; by default a seeded fifth of each class.
        allow_missing: Whether classes may lack examples or counterexamples. Such a class is never right.
        batch_size: Batch size. Changing it changes the protocol, so report it with the result.
        device: Device to train on.
    """
    import torch

    check_training(features, labels, classes, allow_missing)
    decays = check_strengths(weight_decay, "weight_decay", 0.0, 1 / LEARNING_RATE)
    if batch_size < 1:
        raise ValueError(f"batch_size: found {batch_size}, expected 1 or more; the protocol has {BATCH}.")
    place = torch.device(device)
    tried: dict[float, float] = {}
    # With a single strength there is nothing to choose, and no image is held out.
    if len(decays) > 1:
        out = hold_out(labels, seed, held_out)
        for decay in decays:
            # Every trial starts from the same seed, so trials differ only in the decay.
            trial = _train(features, labels, np.flatnonzero(~out), classes, decay, seed, batch_size, place)
            tried[decay] = held_out_score(LinearProbe(*trial, chosen=decay).scores(features[out]), labels[out])
    chosen = best(tried) if tried else decays[0]
    fitted = _train(features, labels, np.arange(len(labels)), classes, chosen, seed, batch_size, place)
    return LinearProbe(*fitted, chosen=chosen, held_out=tried)


def _train(
    features: NDArray[np.floating],
    labels: Labels,
    rows: NDArray[np.intp],
    classes: int,
    decay: float,
    seed: int,
    batch_size: int,
    device: torch.device,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

    generator = torch.Generator().manual_seed(seed)
    # The initialization of `torch.nn.Linear`, from a separate generator: the caller's random state stays.
    edge = features.shape[1] ** -0.5
    shapes = ((classes, features.shape[1]), (classes,))
    weight, bias = (
        ((2 * torch.rand(shape, generator=generator) - 1) * edge).to(device).requires_grad_() for shape in shapes
    )
    optimizer = torch.optim.AdamW([weight, bias], lr=LEARNING_RATE, weight_decay=decay)
    steps = EPOCHS * math.ceil(len(rows) / batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * step / steps)) / 2)
    # The caller may have switched gradients off.
    with torch.enable_grad():
        for _ in range(EPOCHS):
            # Drawn on the CPU for any device, so the order is the same everywhere.
            order = torch.randperm(len(rows), generator=generator).numpy()
            for start in range(0, len(rows), batch_size):
                batch = rows[order[start : start + batch_size]]
                # Batch by batch, because features may be a memory map that is larger than memory.
                image = torch.from_numpy(unit_rows(features[batch]).astype(np.float32)).to(device)
                logits = image @ weight.T + bias
                if labels.ndim == 1:
                    target = torch.from_numpy(labels[batch].astype(np.int64)).to(device)
                    loss = cross_entropy(logits, target)
                else:
                    target = torch.from_numpy(labels[batch].astype(np.float32)).to(device)
                    loss = binary_cross_entropy_with_logits(logits, target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                # Per step and not per epoch, as in CLIP_benchmark.
                schedule.step()
    return without_missing(weight.detach().cpu().numpy(), bias.detach().cpu().numpy(), labels[rows])


logger = logging.getLogger(__name__)

STEPS = 1000
TOLERANCE = 1e-5
"""Fraction of the first gradient at which a solution counts as converged."""

SAME = 1e-9
"""Unit-length features that differ by less count as equal."""

STRENGTHS = (1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6)
"""Values of `C` to try, in rising order: the weight of the summed loss against half the squared weights."""


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
    something only at a known length; the held-out part, a fifth of each class, where a dataset has none of its own;
    each strength starts from the solution of the one before (the problem is convex, so this costs no accuracy beyond
    the tolerance). Labels `[n, C]` are C regressions of one class against the rest, with one strength for all, chosen
    by mAP. Two classes are one regression, as in scikit-learn.

    A solver run that does not converge is used as is, counted in `unconverged` and logged. Time and
    memory grow with `n`, `C` and `D` (float64): 50,000 images of 512 numbers and 100 classes took 110 s of one
    core and 1.1 GB. ImageNet's 1.28 million of 1,000 classes are 256 times that: take `adamw10` there.

    Args:
        features: `[n, D]`, vectors of any length.
        labels: `[n]` or `[n, C]` bool.
        classes: Number of classes C.
        seed: Random seed of the held-out part; the solver itself is deterministic.
        strength: Strength from 1e-9 to 1e9, or several to choose from.
        held_out: `[n]` bool, images to choose on, such as those of `vtab_1k`; by default a seeded fifth.
        allow_missing: Whether classes may lack examples or counterexamples. Such a class is never right.

    Raises:
        ValueError: As for `hfcomp.evaluation.probes.linear.check_training`, or if a strength is out of range.
        ImportError: Without scikit-learn, which `pip install "hfcomp[eval]"` installs.
    """
    check_training(features, labels, classes, allow_missing)
    strengths = check_strengths(strength, "strength", 1e-9, 1e9)
    units = unit_rows(features)
    tried: dict[float, float] = {}
    runs: list[bool] = []
    if len(strengths) > 1:
        out = hold_out(labels, seed, held_out)
        solver = _Solver(units[~out], labels[~out], classes)
        # In rising order, because each run starts from the solution of the one before.
        for value in sorted(strengths):
            probe = LinearProbe(*solver.fit(value), chosen=value)
            tried[value] = held_out_score(probe.scores(features[out]), labels[out])
        runs += solver.converged
    chosen = best(tried) if tried else strengths[0]
    # From here on all images are used, the held-out ones too.
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
    """The regressions of one training set: one for labels `[n]`, one per class for `[n, C]`.

    It solves for features `scale * (units - mean)`, whose entries have a mean square of 1, with the strength divided
    by `scale ** 2`. The bias has no penalty, so this is the same problem. But an image encoder's features lie in a
    narrow cone, where the solver is slow, and their entries are small. With scikit-learn's tolerance, 1e-4 for the
    gradient of the mean loss, the solver would accept the starting point as the solution. The tolerance here is
    relative to the initial gradient, about 1/C.

    Args:
        units: `[n, D]`, overwritten.
        labels: `[n]` or `[n, C]` bool.
        classes: Number of classes C.
    """

    def __init__(self, units: NDArray[np.float64], labels: Labels, classes: int) -> None:
        self.mean = units.mean(axis=0)
        units -= self.mean
        spread = float(np.linalg.norm(units)) / units.size**0.5
        # Features that are all the same have no spread to scale by.
        self.scale = 1 / spread if spread > SAME else 1.0
        units *= self.scale
        self.units = units
        self.classes = classes
        self.converged: list[bool] = []
        self.labels = labels
        self.single = labels.ndim == 1
        self.targets = [labels] if self.single else list(labels.T)
        self.models: list[Any] = [
            # A label that all images have, or none, leaves nothing to fit. `without_missing` sets its bias.
            _regression(classes) if len(np.unique(target)) > 1 else None
            for target in self.targets
        ]

    def fit(self, strength: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns weights `[C, D]` and biases `[C]`, starting at the previous solution."""
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
        # Weights for unscaled features: scale and mean move into weight and bias.
        weight *= self.scale
        return without_missing(weight, bias - weight @ self.mean, self.labels)

    def _run(self, model: Any, target: NDArray[Any], strength: float) -> None:
        from sklearn.exceptions import ConvergenceWarning

        # Weights for scaled features are divided by `scale`. Without this correction the penalty would change with it.
        model.set_params(C=strength / self.scale**2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(self.units, target)
        self.converged.append(not any(issubclass(warning.category, ConvergenceWarning) for warning in caught))
        # Only the warning of the solver is counted here. Other warnings reach the user.
        for warning in caught:
            if not issubclass(warning.category, ConvergenceWarning):
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _regression(classes: int) -> Any:
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise ImportError('The probe lbfgs needs scikit-learn: pip install "hfcomp[eval]".') from error
    return LogisticRegression(solver="lbfgs", max_iter=STEPS, warm_start=True, tol=TOLERANCE / classes)
