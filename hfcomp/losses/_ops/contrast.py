"""The one primitive under all softmax losses: row and column log-sum-exp of a similarity matrix, never held whole.

A large matrix is visited in chunks of rows, and its logits are computed a second time in the backward pass; a matrix
that fits in one chunk is kept instead. Peak memory besides the gradients is two chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hfcomp.losses._ops.chunks import check_first_derivative, chunk_rows, parts
from hfcomp.losses._ops.shapes import check_mask, check_shape

_Masks = Sequence[Tensor | None]


class Contrast(NamedTuple):
    """What one pass over the logits gives; an empty row or column has log-sum-exp and top -inf."""

    row: Tensor  # [Q] log-sum-exp over the keys, additions included
    column: Tensor  # [M] log-sum-exp over the queries, additions included; [0] without columns
    row_top: Tensor  # [Q] highest logit at no given position, without gradient
    column_top: Tensor  # [M] the same over the queries; [0] without columns
    entries: Tensor  # [Q, A] the plain logits at the given positions: without additions and masks


def contrast(
    query: Tensor,
    keys: Tensor,
    scale: Tensor,
    *,
    positions: Tensor | None = None,
    additions: Tensor | None = None,
    query_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    query_group: Tensor | None = None,
    key_group: Tensor | None = None,
    columns: bool = True,
    chunk_size: int | None = None,
) -> Contrast:
    """Compute row and column log-sum-exp of `scale * query @ keys.T` plus sparse additions.

    Gradients reach query, keys, scale and additions. Embeddings of masked queries and keys must be finite.

    Args:
        query: [Q, D].
        keys: [M, D].
        scale: [], multiplies every product.
        positions: [Q, A] long: the columns in each row at which something is added; equal columns add up.
        additions: [Q, A] in logit units, may carry gradient; -inf takes the entry out, 0 leaves it (as padding).
        query_mask: [Q] bool; a masked query is in no column and its own row is empty.
        key_mask: [M] bool; a masked key is in no row and its own column is empty.
        query_group: [Q] whole numbers, given together with key_group: a query and a key with equal numbers are not
            contrasted, their entry is in no row and no column, whatever is added to it.
        key_group: [M] likewise.
        columns: whether the column results are wanted at all.
        chunk_size: rows visited at a time; None chooses by device and M.

    Returns:
        A `Contrast`.

    Raises:
        ValueError: if a shape does not fit.
    """
    check_shape("query", query, Q=None, D=None)
    rows, width = query.shape
    check_shape("keys", keys, M=None, D=width)
    if positions is None or additions is None:
        if positions is not additions:
            raise ValueError("positions and additions must be given together, found only one")
        positions, additions = query.new_empty((rows, 0), dtype=torch.long), query.new_empty((rows, 0))
    check_shape("positions", positions, Q=rows, A=None)
    check_shape("additions", additions, Q=rows, A=positions.shape[1])
    if query_mask is not None:
        check_mask("query_mask", query_mask, Q=rows)
    if key_mask is not None:
        check_mask("key_mask", key_mask, M=keys.shape[0])
    if (query_group is None) != (key_group is None):
        raise ValueError("query_group and key_group must be given together, found only one")
    if query_group is not None and key_group is not None:
        check_shape("query_group", query_group, Q=rows)
        check_shape("key_group", key_group, M=keys.shape[0])
    chunk = chunk_size or chunk_rows(query, len(keys))
    masks = (query_mask, key_mask, query_group, key_group)
    return Contrast(*_Contrast.apply(query, keys, scale, additions, positions, masks, columns, chunk))


def log_sum_exp(logits: Tensor) -> Tensor:
    """Log-sum-exp over the last dimension; entries of -inf are absent and get gradient 0, also where all are."""
    empty = (logits == -torch.inf).all(-1)
    return logits.masked_fill(empty.unsqueeze(-1), 0).logsumexp(-1).masked_fill(empty, -torch.inf)


class _Contrast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor,
        scale: Tensor,
        additions: Tensor,
        positions: Tensor,
        masks: _Masks,
        columns: bool,
        chunk: int,
    ) -> tuple[Tensor, ...]:
        logits, work = (query.new_empty((min(chunk, len(query)), len(keys))) for _ in range(2))
        row, row_top = query.new_empty(len(query)), query.new_empty(len(query))
        column_top = query.new_full((len(keys) if columns else 0,), -torch.inf)
        column_max, column_sum = column_top.clone(), torch.zeros_like(column_top)
        entries = torch.empty_like(additions)
        for part in parts(len(query), chunk):
            s, e, at = logits[: part.stop - part.start], work[: part.stop - part.start], positions[part]
            torch.mm(query[part] * scale, keys.T, out=s)
            entries[part] = s.gather(1, at)
            kept = _mask(s, masks, part).gather(1, at)
            s.scatter_(1, at, -torch.inf)
            row_top[part] = s.amax(1)
            top = s.amax(0) if columns else column_top
            raised = s.scatter_(1, at, kept).scatter_add_(1, at, additions[part]).gather(1, at)
            row_max = torch.cat([row_top[part, None], raised], 1).amax(1)
            row[part] = _exp_difference(s, row_max[:, None], e).sum(1).log_().add_(row_max)
            if columns:
                torch.maximum(column_top, top, out=column_top)
                highest = torch.maximum(column_max, top).scatter_reduce_(0, at.flatten(), raised.flatten(), "amax")
                column_sum.mul_(_exp_difference(column_max, highest)).add_(_exp_difference(s, highest, e).sum(0))
                column_max = highest
        column = column_sum.log_().add_(column_max)
        ctx.save_for_backward(query, keys, scale, additions, positions, row, column, *masks)
        ctx.columns, ctx.chunk, ctx.kept = columns, chunk, logits if chunk >= len(query) else None
        ctx.mark_non_differentiable(row_top, column_top)
        return row, column, row_top, column_top, entries

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        check_first_derivative()
        query, keys, scale, additions, positions, row, column, *masks = ctx.saved_tensors
        grad_row, grad_column, _, _, grad_entries = gradients
        logits, work = (query.new_empty((min(ctx.chunk, len(query)), len(keys))) for _ in range(2))
        grad_query, grad_keys = torch.empty_like(query), torch.zeros_like(keys)
        grad_scale, grad_additions = torch.zeros_like(scale), torch.empty_like(additions)
        with torch.autocast(query.device.type, enabled=False):
            for part in parts(len(query), ctx.chunk):
                s, e, at = logits[: part.stop - part.start], work[: part.stop - part.start], positions[part]
                if ctx.kept is None:
                    torch.mm(query[part] * scale, keys.T, out=s)
                    _mask(s, masks, part).scatter_add_(1, at, additions[part])
                else:
                    s.copy_(ctx.kept)
                if ctx.columns:
                    _exp_difference(s, column, e)
                _exp_difference(s, row[part, None], s).mul_(grad_row[part, None])
                if ctx.columns:
                    s.addcmul_(e, grad_column)
                grad_additions[part] = s.gather(1, at)
                s.scatter_add_(1, at, grad_entries[part])
                weighted = s @ keys
                grad_scale += (weighted * query[part]).sum()
                grad_query[part] = weighted.mul_(scale)
                if ctx.needs_input_grad[1]:
                    grad_keys.addmm_(s.T, query[part] * scale)
        return grad_query, grad_keys, grad_scale, grad_additions, None, None, None, None


def _mask(logits: Tensor, masks: _Masks, part: slice) -> Tensor:
    query_mask, key_mask, query_group, key_group = masks
    if query_mask is not None:
        logits.masked_fill_(~query_mask[part, None], -torch.inf)
    if key_mask is not None:
        logits.masked_fill_(~key_mask, -torch.inf)
    if query_group is not None and key_group is not None:
        logits.masked_fill_(query_group[part, None] == key_group, -torch.inf)
    return logits


def _exp_difference(logits: Tensor, reference: Tensor, out: Tensor | None = None) -> Tensor:
    """exp(logits - reference); a reference of -inf stands for an empty set and gives 0."""
    return torch.sub(logits, reference.clamp(min=torch.finfo(logits.dtype).min), out=out).exp_()
