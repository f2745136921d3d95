"""How far apart two right results may lie: every tolerance of a test that compares two orders of summation.

The order in which a sum is taken depends on what a user does not choose (the vectors of the CPU, its BLAS, threads)
and on what the tests vary (chunks, mini-batches, padding, processes). No order is the right one, so a bound is derived
from the arithmetic instead of being tuned to a machine.

Every operation returns its exact result times 1 + d, where |d| is at most the unit roundoff u, half of `eps` (Higham,
Accuracy and Stability of Numerical Algorithms, 2nd ed., section 2.2). A result that n roundings lead to is off by at
most n u times the sum of the magnitudes of its terms (section 4.2). That bound needs all of them to point one way.
Roundings of either sign, spread evenly over [-u, u], have a variance of u^2 / 3 each, so that n of them have a
standard deviation of u sqrt(n / 3), and 3 sqrt(n) u is 5.2 of those (the law of sqrt(n) u: Higham and Mary, A new
approach to probabilistic rounding error analysis, 2019). Each bound here is the smaller one of the two.

First order only: products of roundings are left out, as u is 6e-8. Functions that take no sizes describe the models of
`tests/tiny.py`. What they give is 5 to 100 times what was measured, and the errors that the tests are to find (a
factor of the number of processes, a wrong divisor, a row too few among eight) are a tenth of the value or more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

HIDDEN, INNER, LAYERS, HEAD, TOKENS, PATCH, PROJECTION = 32, 64, 2, 16, 24, 3 * 16 * 16, 16
# of openai/clip-vit-base-patch32; SigLIP's 10 is below it
SCALE = 14.3
BATCH = 8


def unit_roundoff(dtype: torch.dtype = torch.float32) -> float:
    """Largest relative error of one operation."""
    return torch.finfo(dtype).eps / 2


def rounding(count: int, dtype: torch.dtype = torch.float32) -> float:
    """Difference of two results with `count` roundings each, relative to the sum of the magnitudes of the terms.

    For a sum of n terms, `count` is n; for a dot product too, with fused multiply-add or without (its products are
    rounded once each, which the n - 1 additions leave room for but for one).
    """
    return min(2 * count, 3 * math.sqrt(2 * count)) * unit_roundoff(dtype)


# Losses


def logit(scale: float, width: int, dtype: torch.dtype = torch.float32) -> float:
    """Scale times the cosine of two given unit vectors, absolute.

    The magnitudes of the terms of a dot product of unit vectors add up to at most 1 (Cauchy-Schwarz); the scale, up to
    100 in CLIP, multiplies the error with the cosine and rounds once more.
    """
    return scale * rounding(width + 1, dtype)


def log_sum_exp(scale: float, width: int, length: int, dtype: torch.dtype = torch.float32) -> float:
    """log sum exp over `length` logits, absolute; so too a cross-entropy, which is one minus a logit.

    It changes by at most the largest change of a logit (its gradient, a softmax, adds up to 1). A relative error of
    the sum, `length` additions and an exp and a log, is an absolute one of its logarithm. The largest logit is
    subtracted and added again: two roundings of numbers as large as the scale and the logarithm of the length.
    """
    own = rounding(length + 2, dtype) + (2 * scale + math.log(length)) * rounding(2, dtype)
    return logit(scale, width, dtype) + own


def softmax(scale: float, width: int, length: int, dtype: torch.dtype = torch.float32) -> float:
    """A softmax over `length` logits, relative: exp(logit - log_sum_exp), so the sum of both absolute errors."""
    return logit(scale, width, dtype) + log_sum_exp(scale, width, length, dtype) + rounding(2, dtype)


def softmax_gradient(terms: float, scale: float, width: int, length: int, dtype: torch.dtype = torch.float32) -> float:
    """A sum of up to `length` products with a softmax whose magnitudes add up to at most `terms`, absolute."""
    return terms * (softmax(scale, width, length, dtype) + rounding(length + 1, dtype))


def normalized_pixels() -> float:
    """A pixel of 0 to 255, rescaled, less a mean and over a standard deviation, absolute.

    Both the pixel and the mean are up to 1 before the division; a standard deviation is 0.25 or more.
    """
    return (1 + 1) / 0.25 * rounding(4)


# Networks


def _roundings(
    *,
    hidden: int = HIDDEN,
    inner: int = INNER,
    layers: int = LAYERS,
    head: int = HEAD,
    tokens: int = TOKENS,
    patch: int = PATCH,
    projection: int = PROJECTION,
) -> int:
    """Roundings on the way from the pixels or tokens to an embedding, as lengths of sums: each operation adds its own.

    Every norm, attention and residual sum hands on a relative error about as it is (their condition is near 1), so
    that the errors of the operations add up.
    """
    norm = 2 * hidden
    attention = 2 * hidden + head + 2 * tokens  # queries or keys, their products, the softmax, its sum of values ...
    layer = 2 * norm + attention + hidden + inner + hidden + 8  # ... the projection, both layers of the MLP, the rest
    # the pooling head of SigLIP is a layer more
    return patch + (layers + 1) * layer + 2 * norm + hidden + projection


def network(dtype: torch.dtype = torch.float32, **sizes: int) -> float:
    """What a network puts out, as a vector: the length of its error, relative to its own."""
    return rounding(_roundings(**sizes), dtype)


def embedding(dtype: torch.dtype = torch.float32, **sizes: int) -> float:
    """An entry of an embedding of length 1, absolute.

    The error of `network` points nowhere in particular: an entry holds 1 / sqrt(width) of it. So does the cosine with
    a fixed unit vector.
    """
    return network(dtype, **sizes) / math.sqrt(sizes.get("projection", PROJECTION))


def cosine(dtype: torch.dtype = torch.float32) -> float:
    """The cosine of two embeddings, absolute: both are off, each by `embedding` along the other."""
    return math.sqrt(2) * embedding(dtype) + rounding(PROJECTION, dtype)


def angle(dtype: torch.dtype = torch.float32) -> float:
    """The angle of two embeddings, absolute, where it is between 30 and 150 degrees: arccos is no steeper than 2."""
    return 2 * cosine(dtype)


def loss(scale: float = SCALE, dtype: torch.dtype = torch.float32) -> float:
    """A contrastive loss of a model, or a part of it, absolute: its logits and its log-sum-exps are off.

    After steps of training it is off by `gradient` of itself besides, as in `trained_embedding`.
    """
    return 2 * scale * cosine(dtype)


def gradient(scale: float = SCALE, dtype: torch.dtype = torch.float32) -> float:
    """The gradient of a weight, relative to the largest entry of its tensor.

    The softmax that it starts from is off by twice the error of a logit, relative. Then the backward pass has two
    products for each one of the forward pass, and the last of them is a sum over the batch's tokens.
    """
    return 2 * scale * cosine(dtype) + rounding(3 * _roundings() + BATCH * TOKENS, dtype)


def gradients(expected: Mapping[str, torch.Tensor], scale: float = SCALE) -> dict[str, float]:
    """Each gradient of a model by its name, absolute: `gradient` of its largest entry, and what `cancelled` leaves."""
    largest = {name: x.detach().abs().max().item() if x.numel() else 0.0 for name, x in expected.items()}
    of_all = max(largest.values())
    return {
        name: gradient(scale, expected[name].dtype) * own + cancellation(expected[name].dtype) * of_all
        for name, own in largest.items()
    }


def cancellation(dtype: torch.dtype = torch.float32) -> float:
    """The gradient of a weight whose terms cancel, relative to the largest gradient of the model.

    A bias of keys changes no attention: its gradient is 0 but for the rounding of a sum over the batch's tokens, whose
    terms are no larger than the model's largest gradient.
    """
    return rounding(BATCH * TOKENS, dtype)


def adam(
    gradient_error: float,
    weight: float,
    *,
    steps: int,
    rate: float,
    epsilon: float,
    dtype: torch.dtype = torch.float32,
) -> float:
    """A weight after some steps of Adam, absolute.

    A step is rate * m / (sqrt(v) + epsilon), with m a mean of gradients and v one of their squares. An error e of the
    gradient changes m by at most e, and sqrt(v), a Euclidean length, by at most e. Where the gradient is near 0
    nothing but epsilon is left in the denominator: the step changes by up to rate * 2 e / epsilon, and never by more
    than twice its own length, the rate. (With epsilon = 1e-8, an e of 1e-8 that is nothing but rounding does that:
    runs whose weights are to be compared need an epsilon well above the rounding of their gradients.) Each step also
    rounds the weight, `weight` in magnitude. What changed weights change in later gradients is left out: it is of
    second order.
    """
    step = rate * min(2.0, 2 * gradient_error / epsilon)
    return steps * step + weight * rounding(steps, dtype)


def trained_embedding(scale: float = SCALE, dtype: torch.dtype = torch.float32) -> float:
    """An entry of an embedding of length 1 after some steps of training, absolute.

    Steps move it by 1 at most, by the sum of the moves of all weights. Single weights near a gradient of 0 are off by
    more of their step than the gradient is of itself, but with either sign, which a sum over thousands of weights
    averages out: the sum is off by no larger a part than the gradient is.
    """
    return embedding(dtype) + gradient(scale, dtype)
