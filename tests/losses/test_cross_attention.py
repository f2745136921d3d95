"""The attended cosines against vectors that are really formed: limits of the attention, chunks, vanishing sums."""

import pytest
import torch
import torch.nn.functional as F

from hfcomp.losses._ops.cross_attention import attended_cosines
from tests.losses.checks import assert_same, unit


def inputs(dtype=torch.float64, images=4):
    return unit(images, 6, 5, seed=1, dtype=dtype), unit(3, 5, seed=2, dtype=dtype)


def formed_cosines(tokens, concepts, temperature):
    """The same with a vector for every image and concept, which the package never makes."""
    weights = (torch.einsum("rpd,cd->rcp", tokens, concepts) / temperature).softmax(2)
    vectors = torch.einsum("rcp,rpd->rcd", weights, tokens)
    return (vectors * concepts).sum(2) / vectors.norm(dim=2)


def weighted_sum(cosines):
    """A loss that weighs every cosine differently."""
    return (cosines * torch.arange(1.0, 1 + cosines.numel()).view_as(cosines).cos().to(cosines.dtype)).sum()


@pytest.mark.parametrize("temperature", [0.05, 1.0, 3.0])
@pytest.mark.parametrize("chunk_size", [None, 1, 3])
def test_equals_formed_vectors(temperature, chunk_size):
    tensors = inputs()
    actual, expected = (
        attended_cosines(*tensors, temperature, chunk_size=chunk_size),
        formed_cosines(*tensors, temperature),
    )
    torch.testing.assert_close(actual, expected)
    assert_same(weighted_sum(actual), weighted_sum(expected), tensors)


def test_gradcheck():
    for temperature, chunk_size in ((1.0, None), (0.2, 3)):
        assert torch.autograd.gradcheck(
            lambda t, c, temperature=temperature, chunk=chunk_size: attended_cosines(
                t, c, temperature, chunk_size=chunk
            ),
            inputs(),
            fast_mode=True,
        )


def test_a_cold_attention_takes_the_best_token():
    tokens, concepts = inputs()
    best = torch.einsum("rpd,cd->rcp", tokens, concepts).amax(2)
    torch.testing.assert_close(attended_cosines(tokens, concepts, 1e-4), best)


def test_a_hot_attention_takes_the_mean():
    tokens, concepts = inputs()
    expected = F.normalize(tokens.mean(1), dim=1) @ concepts.T
    torch.testing.assert_close(attended_cosines(tokens, concepts, 1e9), expected)


def test_one_token_is_the_vector():
    tokens, concepts = tensors = inputs()
    token = tokens[:, 0]
    expected = weighted_sum(F.normalize(token, dim=1) @ concepts.T)
    assert_same(weighted_sum(attended_cosines(token.unsqueeze(1), concepts)), expected, tensors)


def test_cold_attention_is_finite_in_float32():
    # scores of +-1 / 0.001 overflow an exponential
    tokens, concepts = tensors = inputs(torch.float32)
    cosines = attended_cosines(torch.cat([tokens, concepts.detach().expand(4, 3, 5)], 1), concepts, 1e-3)
    torch.testing.assert_close(cosines, torch.ones(4, 3))
    assert all(g.isfinite().all() for g in torch.autograd.grad(weighted_sum(cosines), tensors))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tokens_that_cancel_have_no_direction(dtype):
    tokens, concepts = inputs(dtype)
    # at right angles to the concept all tokens weigh the same, and they add up to nothing
    flat = F.normalize(tokens[:, :1] - (tokens[:, :1] @ concepts[0])[..., None] * concepts[0], dim=2).detach()
    cancelled = torch.cat([flat, -flat], 1)[:2]
    both = torch.cat([cancelled, tokens[2:, :2].detach()]).requires_grad_()
    cosines = attended_cosines(both, concepts[:1].detach().requires_grad_())
    assert (cosines[:2] == 0).all() and (cosines[2:] != 0).all()
    (gradient,) = torch.autograd.grad(cosines.sum(), both)
    assert gradient.isfinite().all() and (gradient[:2] == 0).all() and (gradient[2:] != 0).any()


def test_views_and_a_second_backward():
    tokens, concepts = inputs()
    view = tokens.transpose(0, 1)
    cosines = weighted_sum(attended_cosines(view, concepts, chunk_size=4))
    first = torch.autograd.grad(cosines, (tokens, concepts), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(cosines, (tokens, concepts)), first, rtol=0, atol=0)
    expected = torch.autograd.grad(weighted_sum(formed_cosines(view, concepts, 1.0)), (tokens, concepts))
    torch.testing.assert_close(first, expected)


def test_backward_inside_autocast():
    tensors = inputs(torch.float32)
    cosines = weighted_sum(attended_cosines(*tensors))
    first = torch.autograd.grad(cosines, tensors, retain_graph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        second = torch.autograd.grad(cosines, tensors)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_no_images_or_no_concepts():
    tokens, concepts = inputs()
    assert attended_cosines(tokens[:0], concepts).shape == (0, 3)
    nothing = attended_cosines(tokens, concepts[:0])
    assert nothing.shape == (4, 0)
    assert all((g == 0).all() for g in torch.autograd.grad(nothing.sum(), (tokens, concepts)))


def test_wrong_input_is_named():
    tokens, concepts = inputs()
    with pytest.raises(ValueError, match=r"^concepts .*\[3, 4\], .*\[C, D=5\]"):
        attended_cosines(tokens, concepts[:, :4])
    with pytest.raises(ValueError, match=r"^tokens .*\[4, 0, 5\], "):
        attended_cosines(tokens[:, :0], concepts)
    for temperature in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"^attention_temperature: .*above 0"):
            attended_cosines(tokens, concepts, temperature)
