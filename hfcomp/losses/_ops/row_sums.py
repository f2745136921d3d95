"""Sums the loss terms of logit rows with any number of own pairs, a chunk of rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hfcomp.losses._ops.chunks import ChunkSums, check_first_derivative, chunk_rows, parts
from hfcomp.losses._ops.contrast import log_sum_exp
from hfcomp.losses._ops.cross_attention import attended_cosines

_Terms = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]
_Masks = Callable[[slice], tuple[Tensor, Tensor]]
_Logits = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # of rows, columns, scale and bias


def sigmoid_terms(logits: Tensor, own: Tensor, negative: Tensor) -> tuple[Tensor, ...]:
    """Sums over the pairs of [r, M] logits: -log sigmoid(+-logit), its positive part, number of own logits above 0."""
    signed = torch.where(own, -logits, logits)
    terms = F.softplus(signed, threshold=40).masked_fill(~(own | negative), 0)
    return terms.sum(), torch.where(own, terms.detach(), 0).sum(), (own & (logits > 0)).sum()


def softmax_terms(logits: Tensor, own: Tensor, negative: Tensor) -> tuple[Tensor, ...]:
    """Sums over the own pairs of [r, M] logits: -log p against the row's negatives, and hits above all negatives.

    Own pairs are not in each other's denominator, so each can reach p = 1.
    """
    others = logits.masked_fill(~negative, -torch.inf)
    terms = F.softplus(log_sum_exp(others).unsqueeze(1) - logits, threshold=40)
    # An extra column, because a row without columns has no highest entry
    highest = F.pad(others.detach(), (0, 1), value=-torch.inf).amax(1, keepdim=True)
    return torch.where(own, terms, 0).sum(), (own & (logits > highest)).sum()


def sum_rows(
    query: Tensor, keys: Tensor, scale: Tensor, bias: Tensor | None, *, masks: _Masks, terms: _Terms
) -> tuple[Tensor, ...]:
    """Sums the terms of `scale * query @ keys.T + bias`, a chunk of rows at a time.

    Args:
        query: [Q, D].
        keys: [M, D].
        scale: [].
        bias: [], or None.
        masks: Function from a slice of Q to its own pairs and its negatives, [q, M] bool each.
        terms: Function from logits and masks to scalar sums. The gradient flows from the first.
    """

    def logits(rows: Tensor, columns: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        return torch.mm(rows * scale, columns.T).add_(bias)

    return _sum(logits, query, keys, scale, bias, masks, terms)


def sum_attended(
    tokens: Tensor,
    concepts: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    temperature: float,
    *,
    masks: _Masks,
    terms: _Terms,
) -> tuple[Tensor, ...]:
    """Sums the terms of `scale * attended_cosines(tokens, concepts, temperature) + bias`, a chunk of images at a time.

    Arguments and return value are those of `sum_rows`; the rows are the images of tokens [R, P, D].
    """

    def logits(rows: Tensor, columns: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        return scale * attended_cosines(rows, columns, temperature) + bias

    return _sum(logits, tokens, concepts, scale, bias, masks, terms)


def _sum(
    logits: _Logits, rows: Tensor, columns: Tensor, scale: Tensor, bias: Tensor | None, masks: _Masks, terms: _Terms
) -> tuple[Tensor, ...]:
    inputs = rows, columns, scale, torch.zeros_like(scale) if bias is None else bias
    # Checked here because gradients are always off inside a Function's forward
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    sums: tuple[Tensor, ...] = _RowSums.apply(*inputs, logits, masks, terms, wanted)
    return sums


class _RowSums(torch.autograd.Function):
    """The first output is a scalar, so the gradient is accumulated in the same pass and nothing is computed twice."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        columns: Tensor,
        scale: Tensor,
        bias: Tensor,
        logits: _Logits,
        masks: _Masks,
        terms: _Terms,
        wanted: bool,
    ) -> tuple[Tensor, ...]:
        gradients = [torch.zeros_like(x) if wanted else x.new_empty(0) for x in (rows, columns, scale, bias)]
        # Separate leaves: each chunk builds a small graph over them and frees it with `autograd.grad`, so memory holds
        # the matrices of only one chunk, and the loss's terms need no hand-written derivative.
        others = [x.detach().requires_grad_(wanted) for x in (columns, scale, bias)]
        # Masks and terms create about eight matrices.
        chunks = list(parts(len(rows), chunk_rows(rows, 8 * len(columns)))) or [slice(0, 0)]
        sums = ChunkSums(len(chunks))
        for part in chunks:
            some = rows[part].detach().requires_grad_(wanted)
            with torch.set_grad_enabled(wanted):
                of_part = terms(logits(some, *others), *masks(part))
            if wanted:
                of_rows, *of_others = torch.autograd.grad(of_part[0], [some, *others])
                gradients[0][part] = of_rows
                for gathered, gradient in zip(gradients[1:], of_others, strict=True):
                    gathered += gradient
            sums.add(*of_part)
        ctx.save_for_backward(*gradients)
        total, *more = sums.totals()
        ctx.mark_non_differentiable(*more)
        return total, *more

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        check_first_derivative()
        return *(gradients[0] * gradient for gradient in ctx.saved_tensors), None, None, None, None
