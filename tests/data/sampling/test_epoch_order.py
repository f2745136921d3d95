"""Batches without equal texts and images: what is in them, what waits, what is left out. Under a second."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from accelerate.data_loader import SeedableRandomSampler

from hfcomp.data.row_values import text_key
from hfcomp.data.sampling.orders import NoDuplicatesOrder, RowKeys


def order_of(keys, batch_size=4, seed=0, rows=None):
    shuffled = SeedableRandomSampler(data_source=rows or range(len(keys)), data_seed=seed)
    return NoDuplicatesOrder(shuffled, keys, batch_size=batch_size, seed=seed)


def batches(order, epoch=0):
    order.set_epoch(epoch)
    rows = list(order)
    return [rows[start : start + order.batch_size] for start in range(0, len(rows), order.batch_size)]


def draw_texts(number, *, texts, images, seed=0):
    """Captions of a few texts, images of a few, and two negatives that may be a caption."""
    draw = random.Random(seed)
    captions = [f"text {draw.randrange(texts)}" for _ in range(number)]
    ids = [str(draw.randrange(images)) for _ in range(number)]
    negatives = [[f"text {draw.randrange(5 * texts)}", ""] for _ in range(number)]
    return captions, ids, negatives


def assert_apart(batch, captions, ids=None, negatives=None):
    said = [captions[row] for row in batch]
    assert len(set(said)) == len(batch)
    assert ids is None or len({ids[row] for row in batch}) == len(batch)
    for row in batch if negatives is not None else ():
        others = {captions[other] for other in batch if other != row}
        assert not others & set(negatives[row])


@pytest.mark.parametrize("epoch", [0, 1])
def test_no_batch_has_a_text_or_an_image_twice(epoch):
    captions, ids, negatives = draw_texts(203, texts=24, images=60)
    order = order_of(RowKeys.from_columns(captions, ids, negatives), batch_size=16)
    epoch_batches = batches(order, epoch)
    assert [len(batch) for batch in epoch_batches] == [16] * 12 + [11]
    for batch in epoch_batches:
        assert_apart(batch, captions, ids, negatives)
    number = Counter(row for batch in epoch_batches for row in batch)
    assert order.left_out == 203 - len(number)
    assert order.repeated == sum(number.values()) - len(number)
    assert order.left_out < 60


def test_few_rows_are_left_out_where_all_might_fit():
    """Those that wait when the last batch is made."""
    captions = [f"text {row % 30}" for row in range(60)]
    order = order_of(RowKeys.from_columns(captions), batch_size=5)
    left_out = []
    for epoch in range(4):
        epoch_batches = batches(order, epoch)
        for batch in epoch_batches:
            assert_apart(batch, captions)
        number = Counter(row for batch in epoch_batches for row in batch)
        assert order.left_out == order.repeated == 60 - len(number)
        left_out.append(order.left_out)
    assert min(left_out) == 0 and max(left_out) <= 2


def test_where_nothing_is_equal_the_order_is_that_of_the_rows():
    keys = RowKeys.from_columns([f"text {row}" for row in range(20)], [str(row) for row in range(20)])
    plain = SeedableRandomSampler(data_source=range(20), data_seed=3)
    for epoch in (1, 0):
        plain.set_epoch(epoch)
        order = order_of(keys, seed=3)
        assert [row for batch in batches(order, epoch) for row in batch] == list(plain)


def test_epochs_differ_and_are_the_same_again():
    captions, *_ = draw_texts(50, texts=20, images=50)
    keys = RowKeys.from_columns(captions)
    first = [batches(order_of(keys), epoch) for epoch in range(3)]
    again = order_of(keys)
    assert [batches(again, epoch) for epoch in (2, 0, 1)] == [first[2], first[0], first[1]]
    assert first[0] != first[1] != first[2]
    assert batches(order_of(keys, seed=1)) != first[0]


def test_a_caption_of_more_rows_than_batches_is_left_out_and_others_are_repeated():
    captions = ["a dog"] * 10 + [f"text {row}" for row in range(10)]
    order = order_of(RowKeys.from_columns(captions), batch_size=4)
    epoch_batches = batches(order)
    for batch in epoch_batches:
        assert_apart(batch, captions)
    assert (order.left_out, order.repeated) == (5, 5)  # five batches have one each


def test_lists_count_with_all_their_texts():
    """Any of a row's captions may be drawn, and any of its negatives."""
    captions = [["a dog", "a cat"], ["A  Cat", "a bird"], ["a fish"], ["a horse"]]
    negatives = [[["a fish"], [None]], [[""]], [[]], None]
    keys = RowKeys.from_columns(captions, None, negatives)
    assert keys[0].true == keys[1].true == (("text", text_key("a cat")),)
    assert keys[0].false == keys[2].true == (("text", text_key("a fish")),)
    assert keys[3] == ((), ())


def test_equal_negatives_may_be_in_one_batch():
    keys = RowKeys.from_columns(["a dog", "a cat"], None, [["a bird"], ["a bird"]])
    assert keys == [((), ()), ((), ())]


def test_too_few_different_rows_are_refused():
    order = order_of(RowKeys.from_columns(["a dog", "a cat"] * 6), batch_size=4)
    with pytest.raises(ValueError, match="12 rows .* batch of 4 .*2 rows"):
        list(order)


def test_many_rows_take_seconds():
    captions, ids, _ = draw_texts(8000, texts=1200, images=8000)
    keys = RowKeys.from_columns(captions + ["a dog"] * 1000, [*ids, *map(str, range(-1000, 0))])
    order = order_of(keys, batch_size=128)
    assert len(order.plan(0)) == 9000
    assert order.left_out > 800
