"""Slots: which texts give way to hard negatives. 1 second."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hfcomp.trainers.replaced_negatives import BatchInStep, draw_slots


@pytest.mark.parametrize(("size", "number"), [(2, 1), (5, 4), (64, 3), (200, 1), (300, 30)])
def test_columns_are_others_and_distinct(size, number):
    for step in range(20):
        slots = draw_slots(size, number, seed=(42, step))
        assert slots.shape == (size, number) and slots.dtype == torch.long
        assert slots.min() >= 0 and slots.max() < size
        assert (slots != torch.arange(size).unsqueeze(1)).all()
        assert (slots.sort(1).values.diff() > 0).all()


def test_all_choices_are_equally_likely():
    """Also in their order: of a row whose first negative is masked only the second counts."""
    size, draws = 5, 6000
    codes = torch.stack([draw_slots(size, 2, seed=(0, step)) for step in range(draws)])
    for row in range(size):
        pairs = codes[:, row, 0] * size + codes[:, row, 1]
        counts = torch.unique(pairs, return_counts=True)[1].double()
        assert len(counts) == 4 * 3
        expected = draws / 12
        # 11 degrees of freedom: above 45 in 1 of 200,000 such tests
        assert ((counts - expected) ** 2 / expected).sum() < 45


def test_rows_are_drawn_apart():
    """A row tells nothing of the next one."""
    slots = torch.cat([draw_slots(9, 1, seed=(0, step))[:2, 0].unsqueeze(0) for step in range(3000)]).double()
    assert abs(np.corrcoef(slots.numpy().T)[0, 1]) < 0.08


def test_a_draw_depends_on_the_whole_seed_and_on_nothing_else():
    first = draw_slots(50, 3, seed=(1, 0, 7, 0))
    np.random.seed(0)
    torch.manual_seed(0)
    assert torch.equal(draw_slots(50, 3, seed=(1, 0, 7, 0)), first)
    for other in ((2, 0, 7, 0), (1, 1, 7, 0), (1, 0, 8, 0), (1, 0, 7, 1)):
        assert not torch.equal(draw_slots(50, 3, seed=other), first)
    # a change of the draws would change runs that are resumed
    assert draw_slots(6, 2, seed=(42, 0, 0, 0)).tolist() == [[1, 2], [4, 3], [4, 0], [2, 0], [2, 3], [4, 3]]


def test_in_a_batch_too_small_the_last_negatives_find_no_column():
    slots = draw_slots(3, 4, seed=(0,))
    assert (slots[:, 2:] == -1).all()
    assert slots[:, :2].sort(1).values.tolist() == [[1, 2], [0, 2], [0, 1]]
    assert draw_slots(1, 2, seed=(0,)).tolist() == [[-1, -1]]


def test_batches_of_a_step_are_counted():
    counter, seen = BatchInStep(), []
    for _step in range(2):
        counter.on_step_begin(None, None, None)
        for _batch in range(2):
            seen.append(counter.number)
            counter.on_substep_end(None, None, None)
        seen.append(counter.number)
    assert seen == [0, 1, 2, 0, 1, 2]
