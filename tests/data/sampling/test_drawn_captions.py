"""One of several captions in each epoch: which draws there are, what goes with a caption, and what is refused."""

from __future__ import annotations

import pytest
import torch
from datasets import Dataset, List, Value

from hfcomp.data.loading import TrainingRows
from hfcomp.data.negatives import ShuffledNegatives, derangement
from hfcomp.data.sampling.draws import DrawnCaptions, DrawnNegatives, EpochOrder, check_drawn_captions

ROWS = 8


def named_row(row: int, captions: int) -> dict:
    """A row with two negatives and a concept for each caption, all of which name it."""
    texts = [f"caption {row}.{number}" for number in range(captions)]
    return {
        "caption": [*texts, ""],
        "negative_captions": [*([f"no {text}", f"not {text}"] for text in texts), ["of nothing", ""]],
        "negative_kinds": [*(["swap_att", "other"] for _ in texts), ["other", "other"]],
        "concepts": [*([text] for text in texts), []],
    }


@pytest.fixture(scope="module")
def dataset():
    return Dataset.from_list([named_row(row, 2 + row % 3) for row in range(ROWS)])


@pytest.fixture(scope="module")
def rows(dataset):
    return TrainingRows(dataset, dataset.column_names)


def test_a_caption_comes_with_its_own_negatives_and_concepts(rows):
    drawn = DrawnCaptions(rows, seed=0)
    texts = set()
    for epoch in range(40):
        for row in drawn.__getitems__([(index, epoch) for index in range(ROWS)]):
            text = row["caption"]
            assert row["negative_captions"] == [f"no {text}", f"not {text}"]
            assert row["negative_kinds"] == ["swap_att", "other"] and row["concepts"] == [text]
            texts.add(text)
    assert texts == {f"caption {row}.{number}" for row in range(ROWS) for number in range(2 + row % 3)}  # no empty one


def test_negatives_are_drawn_of_the_caption_that_was_drawn(rows):
    drawn, both = DrawnCaptions(rows, seed=0), DrawnNegatives(DrawnCaptions(rows, seed=0), seed=0)
    orders = set()
    for epoch in range(20):
        first, second = drawn[3, epoch], both[3, epoch]
        assert (
            second["caption"] == first["caption"] and sorted(second["negative_captions"]) == first["negative_captions"]
        )
        orders.add(second["negative_captions"][0].split()[0])
    assert orders == {"no", "not"}


def test_a_draw_depends_on_seed_epoch_and_row_alone(rows):
    drawn = DrawnCaptions(rows, seed=0)
    assert drawn.__getitems__([(7, 9), (4, 9)])[1] == drawn[4, 9] and drawn[4] == drawn[4, 0]
    assert len({DrawnCaptions(rows, seed=seed)[5, 0]["caption"] for seed in range(20)}) > 1


def test_workers_draw_what_the_main_process_draws(rows):
    order = EpochOrder(range(ROWS))
    options = {"batch_size": 2, "sampler": order, "collate_fn": list}
    runs = []
    for workers in ({}, {"num_workers": 2, "persistent_workers": True}):
        loader = torch.utils.data.DataLoader(DrawnCaptions(rows, seed=0), **options, **workers)
        epochs = []
        for epoch in range(2):
            order.set_epoch(epoch)
            epochs.append([row["caption"] for batch in loader for row in batch])
        runs.append(epochs)
    assert runs[0] == runs[1] and runs[0][0] != runs[0][1]


def test_shuffled_negatives_are_of_another_rows_captions(dataset):
    partners = derangement(range(ROWS), 0)
    drawn = DrawnCaptions(ShuffledNegatives(dataset, partners), seed=0)
    for index in range(ROWS):
        row = drawn[index, 1]
        assert row["caption"].startswith(f"caption {index}.")
        of = [text.removeprefix("not ").removeprefix("no ") for text in row["negative_captions"] if text]
        assert all(text == "of nothing" or text.startswith(f"caption {partners[index]}.") for text in of)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"caption": ["one", "two"]}, r"'caption' .*Value\('string'\)"),
        ({"caption": [["a"], ["", None]]}, "'caption', row 1: found .*string"),
        (
            {"caption": [["a"], ["b", "c"]], "negative_captions": [["x"], ["y", "z"]]},
            "row 1 .*2 captions, .*'negative_captions'",
        ),
        (
            {"caption": [["a"], ["b", "c"]], "negative_captions": [[["x"]], [["y"]]]},
            "'negative_captions', row 1: found 1 .*2 captions",
        ),
        (
            {"caption": [["a"], ["b", "c"]], "negative_captions": [[["x", "y"]], [["y", "z"], ["y"]]]},
            "'negative_captions', row 1: caption 1 .*1 negatives.* 2",
        ),
        ({"caption": [["a"], ["b", "c"]], "negative_image": [b"x", b"x"]}, "row 1 .*2 captions, .*'negative_image'"),
    ],
)
def test_what_does_not_say_its_caption_is_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        check_drawn_captions(Dataset.from_dict(columns), list(columns), num_negatives=2)


def test_rows_with_one_caption_each_own_their_negatives():
    columns = {"caption": [["a"], ["b"]], "negative_captions": [["x"], ["y"]]}
    rows = TrainingRows(Dataset.from_dict(columns), list(columns))
    assert DrawnCaptions(rows, seed=0)[1] == {"row": 1, "caption": "b", "negative_captions": ["y"]}
    assert rows.features["caption"] == List(Value("string"))
