"""Batches of groups: which rows stand in them, on which positions, on how many processes; about 1 second."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler

from hfcomp.data.sampling.groups import GroupOrder, Groups, group_mask, rows_per_process
from hfcomp.sandbox.hierarchy import rival_groups

SIZES = {"a": 25, "b": 10, "c": 7, "d": 12, "e": 3, "f": 30}
RIVALS = {"a": "bcdef", "b": "acd", "c": "ab", "d": "f", "e": "", "f": "abcde"}


def columns(sizes: dict[str, int] = SIZES, rivals: dict[str, str] = RIVALS) -> tuple[list[str], list[list[str]]]:
    """Rows of groups in turn, so that no group's rows stand together."""
    names = [name for turn in range(max(sizes.values())) for name, size in sizes.items() if turn < size]
    return names, [list(rivals[name]) for name in names]


NAMES, _ = columns()


def order(groups: Groups | None = None, **settings) -> GroupOrder:
    settings = {"groups_per_batch": 4, "pairs_per_group": 5, "seed": 0, **settings}
    return GroupOrder(groups or Groups.from_columns(*columns()), **settings)


def batches(drawn: GroupOrder, epoch: int = 0) -> list[list[list[int]]]:
    """The rows of each group of each batch."""
    drawn.set_epoch(epoch)
    rows, size = list(drawn), drawn.pairs_per_group
    blocks = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [blocks[start : start + drawn.groups_per_batch] for start in range(0, len(blocks), drawn.groups_per_batch)]


def names_of(batch: list[list[int]]) -> list[str]:
    """The group of each block, which must hold rows of one group only."""
    names = [{NAMES[row] for row in block} for block in batch]
    assert all(len(name) == 1 for name in names)
    return [name.pop() for name in names]


# Columns


def test_columns_become_numbers_and_what_is_left_out_is_counted():
    groups = Groups.from_columns(
        ["a", "b", "a", "", "b", None, "lone", " "],
        [["b", "gone"], [], ["lone", "a", "b", None], ["never read"], ["a"], None, ["b"], None],
    )
    assert groups.names == ["a", "b"]
    assert groups.rows == [[0, 2], [1, 4]]
    assert groups.hard_negatives == [[1], [0]]  # the second row of b names a; a's own name is no rival
    assert groups.rows_without_group == 3
    assert groups.too_small == {"lone": 1}
    assert groups.unknown == ["gone"]


def test_a_group_has_the_rivals_of_all_its_rows():
    groups = Groups.from_columns(list("aabbcc"), [["b"], ["c", "b"], ["c"], [], [], None])
    assert groups.hard_negatives == [[1, 2], [2], []]


def test_numbers_are_names_as_well():
    groups = Groups.from_columns([7, 7, 0, 0], [[0], [0], [7], [7]])
    assert (groups.names, groups.hard_negatives) == (["7", "0"], [[1], [0]])


def test_the_smallest_size_of_a_group_is_a_setting():
    names, rivals = columns()
    assert Groups.from_columns(names, rivals, minimum_size=10).names == ["a", "b", "d", "f"]
    alone = Groups.from_columns(["a", "b"], [["b"], None], minimum_size=1)
    assert (alone.rows, alone.too_small) == ([[0], [1]], {})
    with pytest.raises(ValueError, match="minimum_size: found 0"):
        Groups.from_columns(names, rivals, minimum_size=0)


def test_columns_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"'group', row 1: found \['a'\]"):
        Groups.from_columns(["a", ["a"]], [["b"], None])
    with pytest.raises(ValueError, match="'hard_negative_groups', row 1: found 'b'"):
        Groups.from_columns(["a", "a"], [["b"], "b"])
    with pytest.raises(ValueError, match="'hard_negative_groups', row 0: found 0.5"):
        Groups.from_columns(["a", "a"], [[0.5], None])
    with pytest.raises(ValueError, match="none of its 2 groups .*1 of 3 rows"):
        Groups.from_columns(["a", "b", None], [["b"], ["a"], None])
    with pytest.raises(ValueError, match="no group .*'a'.*'A'"):
        Groups.from_columns(["a", "a", "b", "b"], [["A"], [], ["b"], None])


# Batches


def test_a_batch_is_an_anchor_group_and_its_rivals_and_no_group_twice():
    drawn = order()
    assert sum(len(block) for batch in batches(drawn) for block in batch) == len(drawn)
    for epoch in range(5):
        for batch in batches(drawn, epoch):
            anchor, *others = names_of(batch)
            assert len({anchor, *others}) == 4
            rivals = [name for name in others if name in RIVALS[anchor]]
            assert len(rivals) == min(3, len(RIVALS[anchor]))
            assert others[: len(rivals)] == rivals  # those drawn in their place stand behind


def test_every_row_is_a_row_of_its_anchor_group_in_as_few_turns_as_can_be():
    epoch_batches = batches(order(), epoch=3)
    turns = Counter(names_of(batch)[0] for batch in epoch_batches)
    assert turns == {"a": 5, "b": 2, "c": 2, "d": 3, "e": 1, "f": 6}
    rows = Counter(row for batch in epoch_batches for row in batch[0])
    assert set(rows) == set(range(len(NAMES)))
    for name, size in SIZES.items():
        left = turns[name] * 5 - size
        assert sum(rows[row] - 1 for row, of in enumerate(NAMES) if of == name) == left
    for batch in epoch_batches:
        if names_of(batch)[0] != "e":
            assert len(set(batch[0])) == 5  # what fills the last turn is no repeat


def test_the_anchors_rows_stand_together_in_other_ways_in_each_epoch():
    drawn = order()
    epochs = [{frozenset(batch[0]) for batch in batches(drawn, epoch)} for epoch in range(2)]
    assert len(epochs[0] & epochs[1]) < len(epochs[0]) / 2


def test_all_rivals_and_all_their_rows_are_drawn_equally_often():
    groups, drawn = Counter(), Counter()
    for epoch in range(60):
        for batch in batches(order(groups_per_batch=2), epoch):
            anchor, other = names_of(batch)
            if anchor == "b":
                groups[other] += 1
                drawn.update(batch[1] if other == "a" else [])
    assert set(groups) == set("acd")
    assert min(groups.values()) > 120 / 3 * 0.7
    assert set(drawn) == {row for row, name in enumerate(NAMES) if name == "a"}
    assert max(drawn.values()) < 5 * min(drawn.values())


def test_a_group_without_rivals_meets_all_others():
    met = Counter()
    for epoch in range(40):
        met.update(name for batch in batches(order(), epoch) if names_of(batch)[0] == "e" for name in names_of(batch))
    assert met.pop("e") == 40
    assert set(met) == set("abcdf")
    assert min(met.values()) > 40 * 3 / 5 * 0.6


def test_order_depends_on_seed_and_epoch_only():
    drawn = order()
    epochs = [batches(drawn, epoch) for epoch in range(3)]
    assert batches(order(), 1) == epochs[1]
    assert epochs[0] != epochs[1] != epochs[2]
    assert batches(order(seed=1), 1) != epochs[1]
    anchors = [[names_of(batch)[0] for batch in epoch_batches] for epoch_batches in epochs]
    assert anchors[0] != anchors[1] != sorted(anchors[1])


def test_rows_are_plain_numbers():
    assert {type(row) for row in order()} == {int}


def test_what_no_batch_can_hold_is_refused():
    assert len(batches(order(groups_per_batch=6))[0]) == 6
    with pytest.raises(ValueError, match="6 groups .*2 rows.* 7 "):
        order(groups_per_batch=7)
    with pytest.raises(ValueError, match="groups_per_batch=1, pairs_per_group=5"):
        order(groups_per_batch=1)
    with pytest.raises(ValueError, match="pairs_per_group=0"):
        order(pairs_per_group=0)


# Repeats


def test_the_mask_finds_what_fills_up_small_groups():
    drawn = order(pairs_per_group=8)
    small = 0
    for batch in batches(drawn):
        mask = group_mask(torch.tensor(sum(batch, [])), pairs_per_group=8)
        assert mask.shape == (4, 8)
        for name, block, valid in zip(names_of(batch), batch, mask.tolist(), strict=True):
            kept = [row for row, is_valid in zip(block, valid, strict=True) if is_valid]
            assert len(kept) == len(set(kept)) == min(8, SIZES[name])
            assert set(kept) == set(block)
            small += SIZES[name] < 8
    assert small > 10


def test_the_mask_is_of_each_group_alone():
    row = torch.tensor([4, 5, 4, 6, 4, 5, 7, 7, 7])
    assert group_mask(row, pairs_per_group=3).tolist() == [
        [True, True, False],
        [True, True, True],
        [True, False, False],
    ]
    assert group_mask(row, pairs_per_group=1).all()
    with pytest.raises(ValueError, match="9 rows .* 4 pairs"):
        group_mask(row, pairs_per_group=4)


# Processes


@pytest.mark.parametrize("processes", [2, 4])
def test_each_process_holds_whole_groups_of_the_batch_of_one(processes):
    """What a loader cuts for each process out of the order is the order of one process, and so is the mask."""
    own = rows_per_process(4, 8, processes)
    whole = list(BatchSampler(order(pairs_per_group=8), own * processes, drop_last=True))
    parts = [
        list(BatchSamplerShard(BatchSampler(order(pairs_per_group=8), own, drop_last=True), processes, index))
        for index in range(processes)
    ]
    assert {len(part) for part in parts} == {len(whole)} == {sum(order(pairs_per_group=8).turns)}
    for batch, *of_processes in zip(whole, *parts, strict=True):
        assert sum(of_processes, []) == batch
        masks = [group_mask(torch.tensor(part), pairs_per_group=8) for part in of_processes]
        assert torch.equal(torch.cat(masks), group_mask(torch.tensor(batch), pairs_per_group=8))


def test_groups_that_cannot_be_shared_out_are_refused():
    assert (rows_per_process(2, 10, 1), rows_per_process(6, 10, 2), rows_per_process(6, 10, 6)) == (20, 30, 10)
    with pytest.raises(ValueError, match="groups_per_batch=2 .* 4 processes.* 4, such as 4"):
        rows_per_process(2, 10, 4)
    with pytest.raises(ValueError, match="multiple of 3, such as 12"):
        rows_per_process(10, 10, 3)


# Report


def test_the_report_counts_what_is_missing():
    names, rivals = columns()
    rivals[names.index("c")] = ["x", "lone", "y"]
    groups = Groups.from_columns([*names, "lone", None, "", "one"], [*rivals, ["a"], None, None, []])
    report = order(groups, pairs_per_group=8).report
    assert (report.groups, report.rows, report.rows_without_group) == (6, 87, 2)
    assert report.batches == 4 + 2 + 1 + 2 + 1 + 4
    assert report.too_small == {"lone": 1, "one": 1}
    assert report.unknown == ["x", "y"]
    assert report.without_negatives == ["e"]
    assert report.with_too_few_negatives == ["c", "d"]
    assert report.random_places == 1 * 1 + 2 * 2 + 1 * 3  # turns of c, d and e, times what they lack of 3
    assert report.random_share == pytest.approx(8 / (14 * 3))
    assert report.repeated == ["c", "e"]


def test_the_report_says_so_in_lines():
    names, rivals = columns()
    groups = Groups.from_columns([*names, *"pqrstu", None], [*rivals, *[["x"]] * 6, None])
    report = order(groups, pairs_per_group=8).report
    assert report.summary() == ("6 groups with 87 rows. An epoch has 14 batches of 4 groups with 8 pairs each.")
    lines = report.warnings()
    assert [line.split()[0] for line in lines] == ["1", "6", "1", "1", "2", "Groups", "2"]
    assert "6 groups with a total of 6 rows" in lines[1]
    assert "('p', 'q', 'r', 's', 't', ...)" in lines[1]
    assert "8 of the 42 places" in lines[5] and "(19.0%)" in lines[5]
    assert str(report) == "\n".join([report.summary(), *lines])


def test_nothing_missing_is_no_line():
    groups = Groups.from_columns(*columns({"a": 6, "b": 5}, {"a": "b", "b": "a"}))
    assert order(groups, groups_per_batch=2).report.warnings() == []


def test_the_places_that_are_reported_as_random_are_those_of_an_epoch():
    drawn = order()
    groups = [names_of(batch) for batch in batches(drawn)]
    unrelated = sum(other not in RIVALS[anchor] for anchor, *others in groups for other in others)
    assert drawn.report.random_places == unrelated == 2 * 1 + 3 * 2 + 1 * 3


def test_the_sandbox_names_rivals_as_groups_need_them():
    names = ["one warm round figure", "one warm lobed figure", "one cool round figure"] * 2
    groups = Groups.from_columns(names, [rival_groups(name) for name in names])
    assert groups.hard_negatives == [[1, 2], [0], [0]]
    assert "one warm spiky figure" in groups.unknown
