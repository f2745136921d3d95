"""The bounds hold for sums in other orders, and are not much above what they bound."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests import tolerances

ORDERS = 200


def shuffle(x):
    """The entries of the last dimension in many orders."""
    orders = torch.stack([torch.randperm(x.shape[-1]) for _ in range(ORDERS)])
    return x[..., orders]


def one_by_one(x):
    """The sum in the worst way, with a rounding for every term."""
    total = torch.zeros_like(x[..., 0])
    for index in range(x.shape[-1]):
        total = total + x[..., index]
    return total


def spread(x):
    """The largest difference of two orders."""
    return (x.max(-1).values - x.min(-1).values).max().item()


@pytest.mark.parametrize("length", [3, 16, 200, 2000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_orders_of_a_sum(length, dtype):
    torch.manual_seed(0)
    terms = torch.randn(20, length, dtype=dtype)
    terms = terms / terms.abs().sum(-1, keepdim=True)
    bound = tolerances.rounding(length, dtype)
    assert bound / 100 < spread(one_by_one(shuffle(terms))) <= bound


@pytest.mark.parametrize("scale", [1.0, 14.3, 100.0])
def test_float32_against_float64_at_any_scale(scale):
    torch.manual_seed(0)
    image, text = (F.normalize(torch.randn(64, 32, dtype=torch.float64), dim=-1).float() for _ in range(2))

    def compute(dtype):
        logits = scale * image.to(dtype) @ text.to(dtype).T
        return logits.double(), logits.logsumexp(-1).double(), logits.softmax(-1).double()

    sizes = (scale, 32, 64)
    (logits, totals, shares), exact = compute(torch.float32), compute(torch.float64)
    bounds = (tolerances.logit(scale, 32), tolerances.log_sum_exp(*sizes))
    for value, other, bound in zip((logits, totals), exact, bounds, strict=False):
        assert bound / 100 < (value - other).abs().max() <= bound
    # below the normal numbers of float32 there are fewer bits
    allowed = exact[2] * tolerances.softmax(*sizes) + torch.finfo(torch.float32).tiny
    assert ((shares - exact[2]).abs() <= allowed).all()
    gradients = shares @ text.double(), exact[2] @ text.double()
    assert (gradients[0] - gradients[1]).abs().max() <= tolerances.softmax_gradient(1.0, *sizes)


@pytest.mark.parametrize("epsilon", [1e-2, 1e-3, 1e-8])
def test_adam_enlarges_an_error_of_gradients_near_zero(epsilon):
    torch.manual_seed(0)
    steps, rate, error = 4, 1e-3, 1e-5
    sizes = torch.logspace(-8, 1, 1000)
    gradients = [torch.randn(1000) * sizes for _ in range(steps)]

    def train_weight(off):
        weight = torch.full((1000,), 0.08, requires_grad=True)
        optimizer = torch.optim.Adam([weight], lr=rate, eps=epsilon)
        for gradient in gradients:
            weight.grad = gradient + off * error * (2 * torch.rand(1000) - 1)
            optimizer.step()
        return weight.detach()

    bound = tolerances.adam(error, 0.08, steps=steps, rate=rate, epsilon=epsilon)
    difference = (train_weight(1) - train_weight(0)).abs().max().item()
    assert bound / 20 < difference <= bound
    # with a tiny epsilon no bound is left but that of the steps' length
    assert math.isclose(bound, 2 * steps * rate, rel_tol=1e-3) == (epsilon == 1e-8)


def test_what_is_allowed_is_far_below_what_an_error_does():
    """An error of the kind the tests look for changes a value by a tenth or more: here a thousandth at most."""
    assert tolerances.gradient() < 1e-3 and tolerances.trained_embedding() < 1e-3
    assert tolerances.loss() < 1e-3 * math.log(tolerances.BATCH)
    assert tolerances.cancellation() < 1e-5 and tolerances.embedding() < 1e-5 and tolerances.cosine() < 1e-5
    (allowed,) = tolerances.gradients({"weight": torch.tensor([0.1, -0.2])}).values()
    assert allowed == pytest.approx(0.2 * (tolerances.gradient() + tolerances.cancellation()))
