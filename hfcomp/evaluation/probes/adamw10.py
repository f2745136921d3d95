"""Ten epochs of AdamW, as in LAION's CLIP_benchmark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:  # the registry of benchmarks names this probe, and whoever lists them need not wait for torch
    import torch

EPOCHS = 10
LEARNING_RATE = 0.1
BATCH = 64
DECAYS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Weight decays to pass when one should be chosen; AdamW takes `0.1 * decay` of a weight in each step."""


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
        features: `[n, D]`, of any length; they stay on the CPU, and may be a memory map of half precision.
        labels: `[n]` or `[n, C]` bool.
        classes: C.
        seed: of the first weights, the orders and the held-out part; the same bits again on one CPU with the same
            number of threads.
        weight_decay: from 0 to 10, which takes the whole weight in the first step; several to choose from, such as
            `DECAYS`.
        held_out: `[n]` bool, which images to choose on; by default a seeded fifth of each class.
        allow_missing: whether classes may lack examples, or counterexamples; such a class is never right.
        batch_size: changing it changes the protocol; report it with the result.
        device: where to train.

    Raises:
        ValueError: as `hfcomp.evaluation.probes.linear.check_training`, and for weight decays out of range.
    """
    import torch

    check_training(features, labels, classes, allow_missing)
    decays = check_strengths(weight_decay, "weight_decay", 0.0, 1 / LEARNING_RATE)
    if batch_size < 1:
        raise ValueError(f"batch_size: found {batch_size}, expected 1 or more; the protocol has {BATCH}.")
    place = torch.device(device)
    tried: dict[float, float] = {}
    if len(decays) > 1:
        out = hold_out(labels, seed, held_out)
        for decay in decays:
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
    edge = features.shape[1] ** -0.5
    shapes = ((classes, features.shape[1]), (classes,))
    weight, bias = (
        ((2 * torch.rand(shape, generator=generator) - 1) * edge).to(device).requires_grad_() for shape in shapes
    )
    optimizer = torch.optim.AdamW([weight, bias], lr=LEARNING_RATE, weight_decay=decay)
    steps = EPOCHS * math.ceil(len(rows) / batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * step / steps)) / 2)
    with torch.enable_grad():
        for _ in range(EPOCHS):
            order = torch.randperm(len(rows), generator=generator).numpy()
            for start in range(0, len(rows), batch_size):
                batch = rows[order[start : start + batch_size]]
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
                schedule.step()
    return without_missing(weight.detach().cpu().numpy(), bias.detach().cpu().numpy(), labels[rows])
