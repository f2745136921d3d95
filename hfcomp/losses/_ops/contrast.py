"""The primitive of all softmax losses: row and column log-sum-exp of a similarity matrix that is never held whole.

The matrix is processed in tiles. A bounded number of logits is kept for the backward pass, which recomputes all
others: four matrix products instead of a dense form's three. All other operations on a logit run while its tile is in
the cache. Besides the gradients, peak memory is three tiles and the kept logits, for any Q and M.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hfcomp.losses._ops.chunks import Tiles, check_first_derivative, choose_tiles, exp_difference, parts
from hfcomp.losses._ops.shapes import check_mask, check_shape

_Masks = Sequence[Tensor | None]


class Contrast(NamedTuple):
    """Result of a pass over the logits. An empty row or column has log-sum-exp and top -inf."""

    row: Tensor  # [Q] log-sum-exp over the keys, including additions
    column: Tensor  # [M] log-sum-exp over the queries, including additions; [0] without columns
    row_top: Tensor  # [Q] highest logit outside the given positions, without gradient
    column_top: Tensor  # [M] the same over the queries; [0] without columns
    entries: Tensor  # [Q, A] plain logits at the given positions, without additions and masks


def contrast(
    query: Tensor,
    keys: Tensor,
    scale: Tensor,
    *,
    positions: Tensor | None = None,
    additions: Tensor | None = None,
    query_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    query_groups: Tensor | None = None,
    key_groups: Tensor | None = None,
    columns: bool = True,
    tiles: Tiles | None = None,
) -> Contrast:
    """Computes row and column log-sum-exp of `scale * query @ keys.T` plus sparse additions.

    Gradients reach query, keys, scale and additions. Embeddings of masked queries and keys must be finite.

    Args:
        query: [Q, D].
        keys: [M, D].
        scale: [], multiplies every product.
        positions: [Q, A] long, the columns in each row at which something is added. Equal columns add up.
        additions: [Q, A] in logits, may carry gradient. -inf removes the entry, 0 leaves it unchanged (as padding).
        query_mask: [Q] bool. A masked query is in no column, and its own row is empty.
        key_mask: [M] bool. A masked key is in no row, and its own column is empty.
        query_groups: [G, Q] integers, required with key_groups. A query and a key with equal numbers in any of the G
            lines are not contrasted: their entry is in no row and no column, whatever is added to it.
        key_groups: [G, M] integers, the groups of the keys.
        columns: Whether to compute the column results.
        tiles: Tiles of the logits. None chooses them by device, threads, Q and M.
    """
    check_shape("query", query, Q=None, D=None)
    rows, width = query.shape
    check_shape("keys", keys, M=None, D=width)
    if positions is None or additions is None:
        if positions is not additions:
            raise ValueError("positions and additions must be given together, but only one is")
        positions, additions = query.new_empty((rows, 0), dtype=torch.long), query.new_empty((rows, 0))
    check_shape("positions", positions, Q=rows, A=None)
    check_shape("additions", additions, Q=rows, A=positions.shape[1])
    if query_mask is not None:
        check_mask("query_mask", query_mask, Q=rows)
    if key_mask is not None:
        check_mask("key_mask", key_mask, M=keys.shape[0])
    if (query_groups is None) != (key_groups is None):
        raise ValueError("query_groups and key_groups must be given together, but only one is")
    if query_groups is not None and key_groups is not None:
        check_shape("query_groups", query_groups, G=None, Q=rows)
        check_shape("key_groups", key_groups, G=len(query_groups), M=keys.shape[0])
    masks = (_absent(query_mask, query), _absent(key_mask, query), query_groups, key_groups)
    visited = choose_tiles(query, keys) if tiles is None else tiles
    return Contrast(*_Contrast.apply(query, keys, scale, additions, positions, masks, columns, visited))


def log_sum_exp(logits: Tensor) -> Tensor:
    """Computes log-sum-exp over the last dimension. Entries of -inf are absent and get gradient 0, even if all are."""
    empty = (logits == -torch.inf).all(-1)
    return logits.masked_fill(empty.unsqueeze(-1), 0).logsumexp(-1).masked_fill(empty, -torch.inf)


def _absent(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Returns 0 where mask is True, else -inf, to be added: filling by a mask takes many times as long."""
    return None if mask is None else like.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)


class _Tile(NamedTuple):
    """A tile of queries and keys, with the given positions that lie in it."""

    rows: slice
    keys: slice
    given: Tensor  # [n] long, indices into the flattened tile
    source: Tensor  # [n] long, indices into the flattened [r, A] positions of its queries

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.keys.stop - self.keys.start

    def pick(self, per_position: Tensor) -> Tensor:
        return per_position[self.rows].reshape(-1)[self.source]

    def mask(self, s: Tensor, masks: _Masks) -> None:
        """Sets masked logits to -inf."""
        query_absent, key_absent, query_groups, key_groups = masks
        if query_absent is not None:
            s.add_(query_absent[self.rows, None])
        if key_absent is not None:
            s.add_(key_absent[self.keys])
        if query_groups is not None and key_groups is not None:
            for query_group, key_group in zip(query_groups, key_groups, strict=True):
                same = query_group[self.rows, None] == key_group[self.keys]
                # A fill takes many times as long as a check, but on an accelerator the check would make the host wait.
                if not s.is_cpu or same.any():
                    s.masked_fill_(same, -torch.inf)


def _tiles(rows: slice, positions: Tensor, keys: int, size: int) -> Iterator[_Tile]:
    """Yields the tiles of `size` keys for some rows and their positions [Q, A]."""
    at = positions[rows]
    for span in parts(keys, size):
        width = span.stop - span.start
        lines = torch.arange(len(at), device=at.device).unsqueeze(1) * width
        given = (lines + (at - span.start)).flatten()
        if width == keys:
            # On an accelerator a tile has all keys, so the host does not have to wait for `nonzero`.
            yield _Tile(rows, span, given, torch.arange(len(given), device=at.device))
        else:
            source = ((at >= span.start) & (at < span.stop)).flatten().nonzero().squeeze(1)
            yield _Tile(rows, span, given[source], source)


class _LogSumExp:
    """Log-sum-exps of all rows or all columns, accumulated tile by tile."""

    def __init__(self, like: Tensor, size: int) -> None:
        # The maximum is unknown until the last tile, so the sum is kept relative to the highest logit so far and
        # rescaled when a higher one comes (online softmax). `top` excludes given positions, because accuracy compares
        # the own pair with it.
        self.top = like.new_full((size,), -torch.inf)  # highest logit outside the given positions
        self.highest = self.top.clone()  # reference of the sum
        self.sum = torch.zeros_like(self.top)

    def lift(self, part: slice, top: Tensor, raised: Tensor, index: Tensor) -> Tensor:
        """Rescales the sums of `part` to the highest logits including a new tile, and returns these [a].

        Args:
            part: Slice of a rows or columns.
            top: [a] highest logit of the tile outside the given positions.
            raised: [n] logits of the tile at given positions.
            index: [n] long, the row or column (0 to a - 1) of each.
        """
        # Given positions count with their additions, so they raise the reference of the sum but never `top`.
        torch.maximum(self.top[part], top, out=self.top[part])
        highest = torch.maximum(self.highest[part], top)
        if len(raised):
            highest.scatter_reduce_(0, index, raised, "amax")
        self.sum[part] *= exp_difference(self.highest[part], highest)
        self.highest[part] = highest
        return highest

    def value(self) -> Tensor:
        return self.sum.log().add_(self.highest)


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
        tiles: Tiles,
    ) -> tuple[Tensor, ...]:
        row, column = _LogSumExp(query, len(query)), _LogSumExp(query, len(keys) if columns else 0)
        entries, kept = query.new_empty(additions.shape), list[Tensor]()
        room = tiles.kept if any(ctx.needs_input_grad) else 0
        first, second = _work(query, keys, tiles, all_kept=len(query) * len(keys) <= room)
        for part in parts(len(query), tiles.rows):
            scaled = query[part] * scale
            for tile in _tiles(part, positions, len(keys), tiles.keys):
                size = tile.shape[0] * tile.shape[1]
                e = second[:size].view(tile.shape)
                if size <= room:
                    s = query.new_empty(tile.shape)
                    kept.append(s)
                    room -= size
                else:
                    s, room = first[:size].view(tile.shape), 0  # only the first tiles are kept
                torch.mm(scaled, keys[tile.keys].T, out=s)
                # Read before masks and additions, because losses take their own pairs from the plain logits.
                entries[part].view(-1)[tile.source] = s.take(tile.given)
                tile.mask(s, masks)
                tops, raised = _add(s, tile, tile.pick(additions), columns)
                high = row.lift(part, tops[0], raised, tile.given // tile.shape[1])
                if columns:
                    high_column = column.lift(tile.keys, tops[1], raised, tile.given % tile.shape[1])
                    of_rows, of_columns = _sums(s, high, high_column, e)
                    row.sum[part] += of_rows
                    column.sum[tile.keys] += of_columns
                else:
                    row.sum[part] += exp_difference(s, high.unsqueeze(1), e).sum(1)
        values = row.value(), column.value()
        # The backward pass needs only the log-sum-exps: the softmax of a logit is exp(logit - log-sum-exp).
        ctx.save_for_backward(query, keys, scale, additions, positions, *values, *masks, *kept)
        ctx.columns, ctx.tiles = columns, tiles
        ctx.mark_non_differentiable(row.top, column.top)
        return *values, row.top, column.top, entries

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        check_first_derivative()
        query, keys, scale, additions, positions, row, column, *masks = ctx.saved_tensors
        masks, kept = masks[:4], iter(masks[4:])
        grad_row, grad_column, _, _, grad_entries = gradients
        first, second = _work(query, keys, ctx.tiles)
        grad_query, grad_keys = torch.empty_like(query), torch.zeros_like(keys)
        grad_scale, grad_additions = torch.zeros_like(scale), query.new_empty(additions.shape)
        # A caller may run backward inside autocast, which would compute these products in half precision.
        with torch.autocast(query.device.type, enabled=False):
            for part in parts(len(query), ctx.tiles.rows):
                scaled, weighted = query[part] * scale, torch.zeros_like(query[part])
                for tile in _tiles(part, positions, len(keys), ctx.tiles.keys):
                    some = keys[tile.keys]
                    g, e = (x[: len(scaled) * len(some)].view(tile.shape) for x in (first, second))
                    s = next(kept, None)
                    if s is None:
                        s = torch.mm(scaled, some.T, out=g)
                        tile.mask(s, masks)
                        s.view(-1).scatter_add_(0, tile.given, tile.pick(additions))
                    if ctx.columns:
                        _weigh(s, (row[part], column[tile.keys]), (grad_row[part], grad_column[tile.keys]), g, e)
                    else:
                        exp_difference(s, row[part, None], g).mul_(grad_row[part, None])
                    # An addition is part of its logit and has the same gradient, except for the part that comes
                    # through the plain entries, which is added below.
                    grad_additions[part].view(-1)[tile.source] = g.take(tile.given)
                    g.view(-1).scatter_add_(0, tile.given, tile.pick(grad_entries))
                    weighted.addmm_(g, some)
                    # Keys of a frozen tower need no gradient, which saves a matrix product.
                    if ctx.needs_input_grad[1]:
                        grad_keys[tile.keys].addmm_(g.T, scaled)
                # A logit is scale * <query, key>, so the gradient of scale is the sum of g * <query, key>. `weighted`
                # already holds that product with the keys.
                grad_scale += (weighted * query[part]).sum()
                grad_query[part] = weighted.mul_(scale)
        return grad_query, grad_keys, grad_scale, grad_additions, None, None, None, None


def _work(query: Tensor, keys: Tensor, tiles: Tiles, all_kept: bool = False) -> tuple[Tensor, Tensor]:
    """Returns two buffers of a tile's size. The first is empty if all tiles have their own memory."""
    size = min(len(query), tiles.rows) * min(len(keys), tiles.keys)
    return query.new_empty(0 if all_kept else size), query.new_empty(size)


def _add(s: Tensor, tile: _Tile, additions: Tensor, columns: bool) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Adds to a tile's given positions. Returns the highest other logits per row and column, and the sums [n]."""
    flat = s.view(-1)
    before = flat[tile.given]
    flat[tile.given] = -torch.inf
    tops = s.amax(1), s.amax(0) if columns else s.new_empty(0)
    # Equal positions first get the same value back, then each adds its addition.
    flat[tile.given] = before
    flat.scatter_add_(0, tile.given, additions)
    return tops, flat[tile.given]


def _shared_reference(rows: Tensor, columns: Tensor) -> Tensor | None:
    """Returns a single reference for all exponentials of a tile, given the references of its rows and columns.

    One exponential per logit then serves both. It is the highest reference, if no other lies more than 30 below it: an
    exponential that becomes 0, below e^-69 in float32, is below e^-39 of its row's sum and of its column's. None on an
    accelerator, because the host would wait for the answer.
    """
    if not rows.is_cpu:
        return None
    (low, high), (low_column, high_column) = rows.aminmax(), columns.aminmax()
    highest = torch.maximum(high, high_column)
    return highest if highest - torch.minimum(low, low_column) <= 30 else None


def _sums(s: Tensor, rows: Tensor, columns: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sums [r] and [k] of exp(s - rows) over columns and of exp(s - columns) over rows."""
    shared = _shared_reference(rows, columns)
    if shared is None:
        of_rows = exp_difference(s, rows.unsqueeze(1), work).sum(1)
        return of_rows, exp_difference(s, columns, work).sum(0)
    e = exp_difference(s, shared, work)
    return e.sum(1).mul_(exp_difference(shared, rows)), e.sum(0).mul_(exp_difference(shared, columns))


def _weigh(s: Tensor, sums: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor], out: Tensor, work: Tensor) -> None:
    """Sets out to exp(s - row) * its weight + exp(s - column) * its weight. `out` may be s itself.

    Args:
        s: [r, k] logits.
        sums: Log-sum-exp of the rows [r] and of the columns [k].
        weights: Weights of the rows [r] and of the columns [k].
        out: [r, k].
        work: [r, k] buffer.
    """
    (row, column), (of_row, of_column) = sums, weights
    shared = _shared_reference(row, column)
    if shared is None:
        e = exp_difference(s, column, work)
        exp_difference(s, row.unsqueeze(1), out).mul_(of_row.unsqueeze(1)).addcmul_(e, of_column)
        return
    of_row, of_column = of_row * exp_difference(shared, row), of_column * exp_difference(shared, column)
    exp_difference(s, shared, out).mul_(torch.add(of_row.unsqueeze(1), of_column, out=work))
