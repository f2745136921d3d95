"""Shares over batches: against the loss's own metrics, the interval, and what a pair without an image counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import t as students_t

from hfcomp.analysis.probe.options import ProbeOptions
from hfcomp.analysis.probe.shares import ADAPTIVE, BOTH, EncodedPairs, gradient_shares
from hfcomp.losses import cement_loss
from tests.losses.checks import unit

NAMES = ("image", "text", "negative_image", "negative_text")
N = 24


def make_pairs(number=N, **more):
    tensors = {name: unit(number, 6, seed=seed).detach() for seed, name in enumerate(NAMES)}
    adaptive = torch.linspace(-2, 2, number, dtype=torch.float64)
    return EncodedPairs(
        tensors | more, torch.tensor(8.0, dtype=torch.float64), {0.0: 0.0, 2.0: 2.0, ADAPTIVE: adaptive}
    )


def loss_magnitudes(pairs, rows, margin):
    """Magnitudes of a batch as `cement_loss` logs them: hard and easy, means over anchors and directions."""
    batch = {name: values[rows] for name, values in pairs.tensors.items()}
    given = torch.as_tensor(pairs.margins[margin]).double().expand(len(pairs))[rows]
    metrics = cement_loss(logit_scale=pairs.scale, margin=given, **batch)[1]
    return [float(metrics[name]) for name in ("gradient_hard_negative", "gradient_easy_negatives")]


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("size", [5, 24])
def test_equals_the_metrics_of_training(size, ids):
    texts = {"text_id": torch.arange(N) // 2, "negative_text_id": torch.arange(100, 100 + N)} if ids else {}
    pairs = make_pairs(**texts)
    batches = [slice(start, start + size) for start in range(0, N - size + 1, size)]
    for share in (share for share in gradient_shares(pairs, size) if share["direction"] == BOTH):
        hard, easy = np.array([loss_magnitudes(pairs, rows, share["margin"]) for rows in batches]).T
        assert share["batches"] == len(batches) and share["anchors"] == 4 * size * len(batches)
        assert share["value"] == pytest.approx(hard.sum() / (hard + easy).sum())
        assert (share["hard"], share["easy"]) == pytest.approx((hard.mean(), easy.mean()))
        if len(batches) == 1:
            assert math.isnan(share["low"]) and math.isnan(share["high"])
            continue
        whole = hard + easy
        spread = (hard - share["value"] * whole).std(ddof=1) / whole.mean() / math.sqrt(len(batches))
        half = students_t.ppf(0.975, len(batches) - 1) * spread
        expected = max(0, share["value"] - half), min(1, share["value"] + half)
        assert (share["low"], share["high"]) == pytest.approx(expected, abs=1e-5)


def test_a_margin_raises_the_share_and_a_batch_lowers_it():
    pairs = make_pairs(96)
    share = {
        (size, line["margin"]): line["value"]
        for size in (4, 16, 96)
        for line in gradient_shares(pairs, size, [0.0, 2.0])
        if line["direction"] == BOTH
    }
    assert share[4, 0.0] > share[16, 0.0] > share[96, 0.0]
    for size in (4, 16, 96):
        assert share[size, 0.0] < share[size, 2.0]


def test_without_negative_images_there_is_one_direction():
    pairs = make_pairs(negative_image_mask=torch.zeros(N, dtype=torch.bool))
    shares = gradient_shares(pairs, 8, [0.0])
    assert [share["direction"] for share in shares] == [BOTH, "image to text"]
    assert shares[0]["value"] == shares[1]["value"] and shares[0]["anchors"] == N


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_sizes": ()}, r"batch_sizes: found \(\)"),
        ({"batch_sizes": (1, 8)}, "batch_sizes: entry 1: found 1,.* 2"),
        ({"margins": (0.0, math.nan)}, "margins: entry .: found nan, expected at .* 50"),
        ({"margins": (1000.0,)}, "margins: entry 1: found 1000.0,.* 50"),
        ({"rows": 1}, "rows: found 1,.* 2"),
        ({"seed": -1}, "seed: found -1,.* 0"),
    ],
)
def test_options_that_do_not_fit(given, message):
    with pytest.raises(ValueError, match=message):
        ProbeOptions(**given)
