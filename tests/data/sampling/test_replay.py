"""Replay rows: how many, where in a batch, in which order, and never an image twice in one batch."""

from __future__ import annotations

import pytest
import torch

from hfcomp.data.sampling.groups import BatchGroups
from hfcomp.data.sampling.replay import ReplayDraws, ReplayOrder, ReplayRow, count_replay_rows, replay_places


def test_the_numbers_of_rows():
    assert [count_replay_rows(fraction, 48) for fraction in (0, 0.25, 0.5, 0.75)] == [0, 16, 48, 144]
    with pytest.raises(ValueError, match=r"21 rows .*64.* 2 processes") as error:
        count_replay_rows(0.25, 64, 2)
    advised = float(str(error.value).split("Set it to ")[1].split(",")[0])
    assert count_replay_rows(advised, 64, 2) == 22


@pytest.mark.parametrize(("items", "number"), [(8, 8), (8, 4), (12, 4), (4, 12), (6, 36), (48, 16)])
def test_equal_shares_of_a_batch_hold_equally_many(items, number):
    places = replay_places(items, number)
    assert sum(places) == number and len(places) == items + number
    for shares in (share for share in (1, 2, 3, 4, 6) if items % share == number % share == 0):
        size = len(places) // shares
        parts = [places[start : start + size] for start in range(0, len(places), size)]
        assert {sum(part) for part in parts} == {number // shares}
        assert not any(part[0] for part in parts)  # the columns of a batch are those of its first row


def test_no_image_is_twice_in_a_batch_and_nearly_every_row_has_its_turn():
    """A row whose image is in all batches that are left gives its place to another one."""
    ids = [f"image {row // 3}" for row in range(30)]  # three captions of each of ten images
    draws = ReplayDraws(30, ids, number=5, seed=1)
    batches = [draws.batch_rows(batch) for batch in range(12)]
    for rows in batches:
        assert len({ids[row] for row, _ in rows}) == len(rows) == 5
    passes = [[row for rows in batches[start : start + 6] for row, _ in rows] for start in (0, 6)]
    assert all(len({*rows}) >= 28 for rows in passes) and passes[0] != passes[1]
    assert [epoch for _, epoch in batches[5] + batches[6]] == [0] * 5 + [1] * 5
    assert (
        ReplayDraws(30, ids, number=5, seed=1).batch_rows(7)
        == batches[7]
        != ReplayDraws(30, ids, number=5, seed=2).batch_rows(7)
    )


def test_the_order_of_an_epoch_begins_where_the_one_before_ended():
    draws = ReplayDraws(7, None, number=2, seed=0)  # three batches a pass
    order = ReplayOrder(torch.utils.data.SequentialSampler(range(10)), draws, first=10, batch_size=4)
    epochs = []
    for epoch in range(3):
        order.set_epoch(epoch)
        epochs += list(order)
        assert len(order) == len(list(order)) == 12
    assert [row for row in epochs if not isinstance(row, tuple)] == [*range(8)] * 3
    replayed = [row for row in epochs if isinstance(row, tuple)]
    assert replayed == [(10 + row, epoch) for batch in range(6) for row, epoch in draws.batch_rows(batch)]
    assert [isinstance(row, tuple) for row in epochs[:6]] == replay_places(4, 2)


def test_a_replay_row_is_named_by_its_place():
    row = ReplayRow(4, 100)
    assert torch.tensor([row]).item() == 104
    assert f"row {row}" == "row 4 of the replay set"


def test_groups_of_a_batch_with_replay_rows():
    """Two groups of three and two replay rows on two processes; a group of two rows repeats its first."""
    groups = BatchGroups(2, 3, 2)
    row = torch.tensor([5, 6, 5, 90, 1, 2, 3, 91])
    mask = torch.cat([groups.mask(part, rank, 2) for rank, part in enumerate(row.split(4))])
    assert torch.equal(mask, groups.mask(row, 0, 1))
    assert mask.tolist() == [[True, True, False], [True, False, False], [True] * 3, [True, False, False]]
    assert groups.group_values(row)[[0, 2]].tolist() == [[5, 6, 5], [1, 2, 3]]
    assert groups.group_values(row)[[1, 3], 0].tolist() == [90, 91]
    assert groups.row_mask(mask).tolist() == [True, True, False, True, True, True, True, True]
