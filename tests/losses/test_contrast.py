"""The primitive against loops, chunked against kept whole, and its empty cases."""

import pytest
import torch

from hfcomp.losses._ops import chunks
from hfcomp.losses._ops.chunks import Tiles, choose_tiles, exp_difference
from hfcomp.losses._ops.contrast import contrast, log_sum_exp
from tests import tolerances
from tests.losses import reference
from tests.losses.checks import scalar, unit

QUERY_MASK = torch.tensor([True, True, False, True, True])
KEY_MASK = torch.tensor([True, False, True, True, True, True, False])


def inputs(dtype=torch.float64, scale=10.0):
    query, keys = unit(5, 4, seed=1, dtype=dtype), unit(7, 4, seed=2, dtype=dtype)
    # row 0 raises one column twice, row 3 takes one out, row 4 pads with zeros
    positions = torch.tensor([[2, 2], [0, 1], [3, 4], [5, 6], [0, 0]])
    additions = torch.tensor(
        [[1.5, -0.5], [0.3, 2.0], [1.0, 1.0], [-torch.inf, 0.7], [0.0, 0.0]], dtype=dtype, requires_grad=True
    )
    return query, keys, scalar(scale, dtype), positions, additions


def weighted_sum(result):
    """A loss that weighs every output differently; empty rows and columns are left out."""
    total = (result.entries * torch.arange(1.0, 1 + result.entries.numel()).view_as(result.entries).cos()).sum()
    for side in (result.row, result.column):
        weight = torch.arange(1.0, 1 + len(side)).sin().to(side.dtype)
        total = total + (torch.where(side > -torch.inf, side, 0) * weight).sum()
    return total


# 5 queries and 7 keys: one tile; many, also uneven; none kept, some and all
ONE, SOME = Tiles(5, 7, 35), Tiles(2, 3, 0)
TILES = [None, ONE, Tiles(5, 7, 0), SOME, Tiles(1, 7, 0), Tiles(5, 2, 20), Tiles(2, 4, 12), Tiles(1, 1, 35)]


def run(tiles=None, dtype=torch.float64, scale=10.0):
    query, keys, scale, positions, additions = inputs(dtype, scale)
    result = contrast(
        query,
        keys,
        scale,
        positions=positions,
        additions=additions,
        query_mask=QUERY_MASK,
        key_mask=KEY_MASK,
        tiles=tiles,
    )
    return result, torch.autograd.grad(weighted_sum(result), (query, keys, scale, additions))


@pytest.mark.parametrize("tiles", TILES)
def test_equals_loops(tiles):
    query, keys, scale, positions, additions = inputs()
    pairs = {}
    for i in range(5):
        for a in range(2):
            pairs.setdefault((i, int(positions[i, a])), []).append(additions[i, a])
    row, column = reference.contrast(
        query, keys, scale, additions=pairs, query_mask=QUERY_MASK.tolist(), key_mask=KEY_MASK.tolist()
    )
    sums = contrast(
        query,
        keys,
        scale,
        positions=positions,
        additions=additions,
        query_mask=QUERY_MASK,
        key_mask=KEY_MASK,
        tiles=tiles,
    )
    torch.testing.assert_close((sums.row, sums.column), (row, column))
    entries = (scale * query @ keys.T).gather(1, positions)
    torch.testing.assert_close(sums.entries, entries)
    expected = torch.autograd.grad(
        weighted_sum(sums._replace(row=row, column=column, entries=entries)), (query, keys, scale, additions)
    )
    actual = torch.autograd.grad(weighted_sum(sums), (query, keys, scale, additions))
    for name, a, b in zip(("query", "keys", "scale", "additions"), actual, expected, strict=True):
        # the loops leave out an entry at -inf, and with it the gradient to that -inf, which is 0
        torch.testing.assert_close(a, torch.nan_to_num(b), msg=name)


@pytest.mark.parametrize("tiles", TILES[2:])
def test_tiles_equal_the_whole_in_float32(tiles):
    (whole, expected), (chunked, actual) = (run(each, torch.float32) for each in (ONE, tiles))
    width, rows, columns = 4, 5, 7
    sizes = (10, width, columns)
    for value, other in zip(chunked, whole, strict=True):
        torch.testing.assert_close(value, other, rtol=0, atol=tolerances.log_sum_exp(*sizes))
    # a key is in all rows and in its own column, each weighed by 1 or less; the scale is in all of them
    terms = {"query": 10 * (1 + columns), "keys": 10 * (1 + rows), "scale": rows + columns, "additions": 2}
    for own, gradient, other in zip(terms.values(), actual, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=0, atol=tolerances.softmax_gradient(own, *sizes))


def test_tops_leave_out_given_positions_and_masked_entries():
    query, keys, scale, positions, additions = inputs()
    result, _ = run(SOME)
    s = (scale * query @ keys.T).detach()
    s = s.scatter(1, positions, -torch.inf).masked_fill(~QUERY_MASK[:, None], -torch.inf)
    s = s.masked_fill(~KEY_MASK, -torch.inf)
    torch.testing.assert_close((result.row_top, result.column_top), (s.amax(1), s.amax(0)))
    assert not result.row_top.requires_grad


def test_gradcheck():
    query, keys, scale, positions, _ = inputs(scale=3.0)
    additions = unit(5, 2, seed=3)
    for tiles in (None, SOME):
        assert torch.autograd.gradcheck(
            lambda q, k, s, a, tiles=tiles: contrast(q, k, s, positions=positions, additions=a, tiles=tiles)[:2],
            (query, keys, scale, additions),
        )


def test_empty_rows_and_columns_have_no_gradient():
    query, keys, scale, _, _ = inputs()
    nobody = torch.zeros(5, dtype=torch.bool)
    result = contrast(query, keys, scale, query_mask=nobody, tiles=SOME)
    assert (result.row == -torch.inf).all() and (result.column == -torch.inf).all()
    gradients = torch.autograd.grad((result.row.sum(), result.column.sum()), (query, keys, scale))
    assert all((g == 0).all() for g in gradients)


def test_no_queries():
    query, keys, scale, _, _ = inputs()
    result = contrast(query[:0], keys, scale)
    assert result.row.shape == (0,) and (result.column == -torch.inf).all()
    assert (torch.autograd.grad(result.row.sum(), keys)[0] == 0).all()


def test_far_apart_logits_do_not_underflow():
    # column 1 lies 200 logits under every row's maximum
    query = torch.tensor([[1.0, 0.0]]).repeat(3, 1).requires_grad_()
    keys = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    result = contrast(query, keys, torch.tensor(100.0), tiles=Tiles(2, 1, 0))
    torch.testing.assert_close(result.column, torch.tensor([100.0, -100.0]) + torch.log(torch.tensor(3.0)))


@pytest.mark.parametrize("spread", [20.0, 90.0])
def test_one_exponential_for_rows_and_columns_equals_two(spread):
    # the log-sum-exps of rows and columns are half of `spread` apart: one exponential serves both up to 30
    level = torch.linspace(0, 1, 5)
    query = torch.stack([level, torch.ones(5)], 1).requires_grad_()
    keys = torch.stack([torch.ones(7), torch.linspace(0, 1, 7)], 1).requires_grad_()
    scale = torch.tensor(spread / 2, requires_grad=True)

    def exact(query, keys, scale):
        logits = scale * query @ keys.T
        return logits.logsumexp(1), logits.logsumexp(0)

    actual = contrast(query, keys, scale, tiles=Tiles(5, 7, 0))[:2]
    inputs = query, keys, scale
    double = [x.detach().double().requires_grad_() for x in inputs]
    expected = exact(*double)
    sizes = (spread, 2, 7)
    for value, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(value.double(), other, rtol=0, atol=tolerances.log_sum_exp(*sizes))
    gradients = (
        torch.autograd.grad([x.sum() for x in side], of) for side, of in ((actual, inputs), (expected, double))
    )
    for value, other in zip(*gradients, strict=True):
        atol = tolerances.softmax_gradient(spread * 12, *sizes)
        torch.testing.assert_close(value.double(), other, rtol=0, atol=atol)


def test_exponentials_are_never_subnormal():
    for dtype in (torch.float32, torch.float64):
        limits = torch.finfo(dtype)
        powers = torch.linspace(-2000, 0, 4001, dtype=dtype)
        exponentials = exp_difference(powers, powers.new_zeros(()))
        exact = powers.exp()
        kept = exponentials > 0
        # a weight of 1 / N keeps them normal
        assert (exponentials[kept] / 2**26 >= limits.tiny).all()
        torch.testing.assert_close(exponentials[kept], exact[kept], rtol=4000 * limits.eps, atol=0)
        assert (exact[~kept] < 2.0**-99).all() and not kept.all()


def test_nan_stays_nan():
    query, keys, scale, _, _ = inputs(torch.float32)
    with torch.no_grad():
        query[1, 0] = torch.nan
    for tiles in (None, SOME):
        result = contrast(query, keys, scale, tiles=tiles)
        assert result.row[1].isnan() and result.column.isnan().all() and not result.row[0].isnan()


def test_tiles_follow_memory_and_threads(monkeypatch):
    big = torch.empty(1 << 14, 1)
    for threads, elements in ((1, chunks.TILE_ELEMENTS), (2, chunks.CPU_ELEMENTS)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        tiles = choose_tiles(big, big)
        assert tiles.rows * tiles.keys == elements and tiles.kept == chunks.CPU_KEPT
    accelerator = choose_tiles(big.to("meta"), big.to("meta"))
    assert accelerator.keys == len(big)  # no waiting for the places of given positions
    assert choose_tiles(big[:0], big[:0])[:2] == (1, 1)


def test_backward_twice_and_inside_autocast():
    for tiles in (None, SOME):
        query, keys, scale, _, _ = inputs(torch.float32)
        loss = weighted_sum(contrast(query, keys, scale, tiles=tiles))
        first = torch.autograd.grad(loss, (query, keys), retain_graph=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            second = torch.autograd.grad(loss, (query, keys))
        torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_without_columns_rows_are_the_same():
    query, keys, scale, positions, additions = inputs()
    with_columns = contrast(query, keys, scale, positions=positions, additions=additions)
    without = contrast(query, keys, scale, positions=positions, additions=additions, columns=False, tiles=SOME)
    torch.testing.assert_close(without.row, with_columns.row)
    assert without.column.shape == (0,)
    expected = torch.autograd.grad(with_columns.row.sum(), (query, keys, scale, additions))
    torch.testing.assert_close(torch.autograd.grad(without.row.sum(), (query, keys, scale, additions)), expected)


def test_wrong_shapes_are_named():
    query, keys, scale, positions, additions = inputs()
    with pytest.raises(ValueError, match=r"keys .*\[7, 3\], .*\[M, D=4\]"):
        contrast(query, keys[:, :3], scale)
    with pytest.raises(ValueError, match=r"additions .*\[5, 1\], .*\[Q=5, A=2\]"):
        contrast(query, keys, scale, positions=positions, additions=additions[:, :1])
    with pytest.raises(ValueError, match="together"):
        contrast(query, keys, scale, positions=positions)
    with pytest.raises(ValueError, match="key_mask .*torch.float32"):
        contrast(query, keys, scale, key_mask=torch.ones(7))


def test_log_sum_exp_of_nothing():
    logits = torch.tensor([[0.0, -torch.inf], [-torch.inf, -torch.inf]], requires_grad=True)
    total = log_sum_exp(logits)
    assert total.tolist() == [0.0, -torch.inf]
    assert torch.autograd.grad(total.sum(), logits)[0].tolist() == [[1.0, 0.0], [0.0, 0.0]]
