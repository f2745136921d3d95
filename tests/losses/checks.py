"""Checks that every loss passes: they take a function of tensors and look at its value and gradients."""

import pytest
import torch
import torch.nn.functional as F

from hfcomp.losses._ops import chunks
from tests import tolerances

# the largest batches of these tests: a scale of 20, cosines of 16 numbers, 30 logits, 3 cross-entropies
SCALE = 20
SIZES = (SCALE, 16, 30)
TERMS = 3


def unit(*shape, seed, dtype=torch.float64):
    """L2-normalized random embeddings that require gradient."""
    generator = torch.Generator().manual_seed(seed)
    return (
        F.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1).to(dtype).requires_grad_()
    )


def scalar(value, dtype=torch.float64):
    return torch.tensor(value, dtype=dtype, requires_grad=True)


def value_and_gradients(loss, tensors):
    gradients = torch.autograd.grad(loss, tensors, allow_unused=True)
    filled = [torch.zeros_like(x) if g is None else g for x, g in zip(tensors, gradients, strict=True)]
    return loss.detach(), filled


def assert_same(first, second, tensors, **tolerance):
    """Both losses have the same value and the same gradients to tensors."""
    torch.testing.assert_close(value_and_gradients(first, tensors), value_and_gradients(second, tensors), **tolerance)


def assert_zero(loss, tensors):
    """The loss is 0 with a graph and a zero gradient."""
    value, gradients = value_and_gradients(loss, tensors)
    assert loss.requires_grad
    assert value == 0
    assert all((g == 0).all() for g in gradients)


def assert_sliced(function, size, tensors):
    """Slices of every partition add up to the whole: value, gradient and metrics."""
    whole, metrics = function(rows=None)
    expected = value_and_gradients(whole, tensors)
    for cuts in ((0, size), (0, 1, size), (0, 2, 3, size), (0, 0, size // 2, size // 2, size)):
        pieces = [function(rows=slice(a, b)) for a, b in zip(cuts, cuts[1:], strict=False)]
        total = sum(piece for piece, _ in pieces)
        torch.testing.assert_close(value_and_gradients(total, tensors), expected)
        for key, value in metrics.items():
            if key in pieces[0][1]:
                torch.testing.assert_close(sum(m[key] for _, m in pieces), value, msg=key, equal_nan=True)
        assert all(set(m) == set(metrics) for _, m in pieces)
    assert_zero(function(rows=slice(1, 1))[0], tensors)


def assert_metrics_detached(metrics, *keys, absent=()):
    """Scalars without gradient, and NaN where nothing is there to measure."""
    assert set(metrics) == set(keys)
    assert all(x.shape == () and not x.requires_grad for x in metrics.values())
    assert {name for name, x in metrics.items() if x.isnan()} == set(absent)
    assert all(x.isfinite() for name, x in metrics.items() if name not in absent)


def assert_chunked(monkeypatch, function, tensors):
    """Small chunks with an uneven last one change nothing (float32)."""
    value, gradients = value_and_gradients(function(), tensors)
    for name, number in {"CPU_ELEMENTS": 30, "TILE_ELEMENTS": 30, "TILE_ROWS": 4, "CPU_KEPT": 30}.items():
        monkeypatch.setattr(chunks, name, number)
    outputs = value_and_gradients(function(), tensors)
    torch.testing.assert_close(outputs[0], value, rtol=0, atol=2 * TERMS * tolerances.log_sum_exp(*SIZES))
    torch.testing.assert_close(
        outputs[1], gradients, rtol=0, atol=tolerances.softmax_gradient(2 * TERMS * SCALE, *SIZES)
    )


def assert_promoted(function, make):
    """Float32 and half types give a float32 loss, that of float64 on the same numbers; autocast changes nothing.

    `make(dtype)` gives the tensors that `function` takes.
    """
    assert function(*make(torch.float64)).dtype == torch.float64
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        tensors = make(dtype)
        loss = function(*tensors)
        assert loss.dtype == torch.float32
        exact = function(*(x.double() for x in tensors))
        torch.testing.assert_close(loss.double(), exact, rtol=0, atol=2 * TERMS * tolerances.log_sum_exp(*SIZES))
        value, gradients = value_and_gradients(loss, tensors)
        assert value.isfinite()
        assert all(g.dtype == dtype and g.isfinite().all() for g in gradients)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = value_and_gradients(function(*tensors), tensors)
        torch.testing.assert_close(inside, (value, gradients), rtol=0, atol=0)


def assert_shape_errors(function, arguments, wrong):
    """Each wrong argument raises a ValueError that names it."""
    for name, tensor in wrong.items():
        with pytest.raises(ValueError, match=rf"^{name} .*expected"):
            function(**{**arguments, name: tensor})
