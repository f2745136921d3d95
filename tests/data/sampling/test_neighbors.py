"""Rows that rows bring along, and negatives drawn in each epoch; about 1 second."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from hfcomp.data.loading import TrainingRows
from hfcomp.data.sampling.draws import DrawnNegatives, EpochOrder, with_drawn_order
from hfcomp.data.sampling.neighbors import NeighborOrder, Neighbors
from tests import tiny


def ring(images: int, captions: int = 1) -> Neighbors:
    """Images in a circle, each with its next three as neighbors, and some captions of each."""
    ids = [str(image) for image in range(images) for _ in range(captions)]
    near = [[str((int(image) + step) % images) for step in (1, 2, 3)] for image in ids]
    return Neighbors.from_columns(near, ids, [f"caption {row}" for row in range(len(ids))])


def order(neighbors: Neighbors, rows: list[int] | None = None, **settings) -> NeighborOrder:
    settings = {"number": 1, "batch_size": 4, "seed": 0, **settings}
    return NeighborOrder(rows if rows is not None else range(len(neighbors.image)), neighbors, **settings)


def rows_in_epoch(drawn, epoch: int) -> list:
    drawn.set_epoch(epoch)
    return list(drawn)


def test_columns_become_numbers_and_what_is_missing_is_counted():
    neighbors = Neighbors.from_columns(
        [["b", "gone", "a", "b"], None, ["c"], []], ["a", "b", "c", "a"], ["one", "two", "one", "three"]
    )
    assert neighbors.near.tolist() == [[1], [-1], [-1], [-1]]  # c is itself, a its own image
    assert neighbors.image.tolist() == [0, 1, 2, 0]
    assert neighbors.caption.tolist() == [0, 1, 0, 2]
    assert (neighbors.unknown, neighbors.num_without_neighbors) == (1, 3)


def test_columns_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="neighbor_ids.*'a'.*'x'"):
        Neighbors.from_columns([["x"], []], ["a", "b"], ["one", "two"])
    with pytest.raises(ValueError, match="'image_id', row 1: found nothing"):
        Neighbors.from_columns([["x"], []], ["a", None], ["one", "two"])
    with pytest.raises(ValueError, match="'neighbor_ids', row 0: found 'b'"):
        Neighbors.from_columns(["b", []], ["a", "b"], ["one", "two"])


def test_each_row_is_followed_by_one_of_its_neighbors():
    drawn = order(ring(40), list(range(0, 40, 5)))
    rows = list(drawn)
    assert len(rows) == len(drawn) == 16
    assert rows[::2] == list(range(0, 40, 5))
    assert all((other - row) % 40 in (1, 2, 3) for row, other in zip(rows[::2], rows[1::2], strict=True))
    assert (drawn.num_added, drawn.unrelated) == (8, 0)


def test_draws_differ_between_epochs_and_seeds_and_use_every_neighbor():
    neighbors, rows = ring(40), list(range(0, 40, 5))
    drawn = order(neighbors, rows)
    epochs = [rows_in_epoch(drawn, epoch) for epoch in range(30)]
    assert rows_in_epoch(drawn, 7) == epochs[7]
    assert rows_in_epoch(order(neighbors, rows, seed=1), 7) != epochs[7]
    steps = Counter((other - row) % 40 for epoch in epochs for row, other in zip(epoch[::2], epoch[1::2], strict=True))
    assert set(steps) == {1, 2, 3}
    assert min(steps.values()) > 240 / 3 * 0.7


def test_no_image_is_twice_in_a_global_batch():
    """All rows of a ring as one batch: most neighbors are in it already."""
    neighbors = ring(40, captions=2)
    for epoch in range(5):
        drawn = order(neighbors, [2 * image for image in (0, 1, 2, 3, 4, 5, 20, 21)] * 2, batch_size=8)
        rows = rows_in_epoch(drawn, epoch)
        for batch in (rows[:16], rows[16:]):
            assert len(set(neighbors.image[batch].tolist())) == 16
        assert 0 < drawn.unrelated < drawn.num_added == 16


def test_a_neighbor_with_a_caption_of_the_batch_is_not_drawn():
    neighbors = Neighbors.from_columns([["b", "c"], [], [], []], list("abcd"), ["same", "same", "other", "last"])
    for epoch in range(10):
        drawn = order(neighbors, [0], batch_size=1)
        assert rows_in_epoch(drawn, epoch) == [0, 2]


def test_a_row_without_neighbors_brings_any_other_image_along():
    neighbors = Neighbors.from_columns([["b"], [], [], []], list("abcd"), list("1234"))
    drawn_rows = {rows_in_epoch(order(neighbors, [3], batch_size=1), epoch)[1] for epoch in range(40)}
    assert drawn_rows == {0, 1, 2}
    drawn = order(neighbors, [3], batch_size=1)
    list(drawn)
    assert drawn.unrelated == 1


def test_each_caption_of_a_neighbor_is_drawn():
    neighbors = ring(20, captions=3)
    drawn_rows = {rows_in_epoch(order(neighbors, [0], batch_size=1), epoch)[1] for epoch in range(120)}
    assert drawn_rows == set(range(3, 12))


def test_several_neighbors_are_different_images():
    neighbors = ring(40)
    rows = list(order(neighbors, [0, 10], number=3, batch_size=2))
    assert rows[0] == 0 and sorted(rows[1:4]) == [1, 2, 3]
    assert rows[4] == 10 and sorted(rows[5:]) == [11, 12, 13]


def test_parts_of_several_processes_are_the_batch_of_one():
    """What a loader cuts for each process out of the order is the order of one process."""
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler

    whole = list(BatchSampler(order(ring(40)), 8, drop_last=True))
    parts = [BatchSamplerShard(BatchSampler(order(ring(40)), 4, drop_last=True), 2, index) for index in range(2)]
    assert [first + second for first, second in zip(*parts, strict=True)] == whole


def test_a_set_too_small_for_distinct_images_is_refused():
    assert len(list(order(ring(8), list(range(4))))) == 8
    with pytest.raises(ValueError, match="7 images.* 8 .*4 rows .*1 per row"):
        order(ring(7))


# Negatives drawn in each epoch


@pytest.fixture(scope="module")
def rows():
    columns = ["caption", "negative_captions", "negative_kinds", "negative_concreteness"]
    return TrainingRows(tiny.pairs(12, negatives=3), columns)


def test_negatives_change_their_order_with_what_is_said_of_them_and_empty_ones_stay_last(rows):
    drawn = DrawnNegatives(rows, seed=0)
    firsts = set()
    for epoch in range(20):
        read = drawn.__getitems__([(row, epoch) for row in range(12)])
        assert [row["row"] for row in read] == list(range(12))
        for before, after in zip(rows.__getitems__(list(range(12))), read, strict=True):
            names = [name for name in after if name.startswith("negative_")]
            entries = [list(zip(*(row[name] for name in names), strict=True)) for row in (before, after)]
            assert sorted(map(str, entries[0])) == sorted(map(str, entries[1]))
            assert after["caption"] == before["caption"]
            if "" in before["negative_captions"]:
                assert after["negative_captions"][-1] == ""
        firsts.add(rows[0]["negative_captions"].index(read[0]["negative_captions"][0]))
    assert firsts == {0, 1, 2}


def test_a_draw_depends_on_seed_epoch_and_row_only(rows):
    drawn = DrawnNegatives(rows, seed=0)
    alone = drawn.__getitems__([(4, 9)])
    assert drawn.__getitems__([(7, 9), (4, 9)])[1:] == alone
    assert drawn[(4, 9)] == alone[0] and drawn[4] == drawn[(4, 0)]
    others = [DrawnNegatives(rows, seed=seed)[(4, epoch)] for seed in range(3) for epoch in range(6)]
    assert len({str(row["negative_captions"]) for row in others}) > 3


def test_workers_draw_what_the_main_process_draws(rows):
    order = EpochOrder(range(12))
    options = {"batch_size": 3, "sampler": order, "collate_fn": list}
    runs = []
    for workers in ({}, {"num_workers": 2, "persistent_workers": True}):
        loader = torch.utils.data.DataLoader(DrawnNegatives(rows, seed=0), **options, **workers)
        epochs = []
        for epoch in range(2):
            order.set_epoch(epoch)
            epochs.append([[row["negative_captions"] for row in batch] for batch in loader])
        runs.append(epochs)
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


def test_columns_that_do_not_fit_each_other_are_left_for_the_collator(rows):
    row = {"negative_captions": ["one", "two"], "negative_kinds": ["other"]}
    assert with_drawn_order(row, None) is row
    assert with_drawn_order({"negative_captions": "one"}, None) == {"negative_captions": "one"}


def test_indices_are_plain_numbers():
    assert {type(row) for row in order(ring(40))} == {int}
    assert not isinstance(next(iter(order(ring(40)))), np.integer)
