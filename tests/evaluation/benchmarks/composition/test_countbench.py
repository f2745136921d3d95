"""CountBench: its rows, and captions with other numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks.composition.countbench import COUNTBENCH, NO_NUMBER, other_numbers
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, run_benchmark
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import Sighted, check_chance, check_known_scorers, hub_folder, items, scores


@pytest.mark.parametrize(
    ("text", "number", "last"),
    [
        ("photo of two dogs", 2, "photo of ten dogs"),
        ("Two dogs", 2, "Ten dogs"),
        ("SET OF TWO CHAIRS", 2, "SET OF TEN CHAIRS"),
        ("2 pack, two sizes", 2, "2 pack, ten sizes"),  # the word counts before digits
        ("12 cups, set of 2", 2, "12 cups, set of 10"),  # no part of another number
        ("network of two", 2, "network of ten"),  # no part of another word
        ("two dogs, two cats", 2, "ten dogs, two cats"),
        ("ten dogs", 10, "nine dogs"),
    ],
)
def test_the_number_is_replaced_in_its_own_form(text, number, last):
    variants = other_numbers(text, number)
    assert len(set(variants)) == 8 and text not in variants and variants[-1] == last


def test_without_its_number_there_is_nothing_to_replace():
    assert other_numbers("a pair of dogs", 2) == []
    with pytest.raises(ValueError, match="found 11 .*'eleven dogs'.* 2 to 10"):
        other_numbers("eleven dogs", 11)


TEXTS = ["A set of two chairs", "ten dogs", "Three dogs"]
NUMBERS = [2, 10, 3]
TRUE = {number: [text] for number, text in enumerate(TEXTS)}


def on_hub(folder: Path, **changes: list) -> Path:
    columns = {"text": TEXTS, "number": NUMBERS, "image": [oracle.photo(n) for n in range(len(TEXTS))]}
    urls = {"image_url": [f"https://example.org/{n}.jpg" for n in range(len(TEXTS))]}
    return hub_folder(folder, "train", urls | columns | changes, images=["image"])


def test_known_scorers(tmp_path):
    rows = items(COUNTBENCH, on_hub(tmp_path / "c"))
    assert rows.rows["subset"][:] == ["2", "10", "3"]
    assert "A set of seven chairs" in rows.rows["negative_captions"][0]
    check_known_scorers(COUNTBENCH, rows, TRUE)


def test_a_random_scorer_is_at_chance_of_nine():
    texts = {"caption": [f"a {row}" for row in range(1500)]}
    texts["negative_captions"] = [[f"{n} {row}" for n in range(8)] for row in range(1500)]
    check_chance(COUNTBENCH, texts)


def test_every_item_counts_once_and_chance_is_one_of_nine(tmp_path):
    known = TRUE | {2: ["Nine dogs"]}
    report = run_benchmark(COUNTBENCH, items(COUNTBENCH, on_hub(tmp_path / "c")), Sighted(oracle.knowing(known)))
    assert scores(COUNTBENCH, report)["all items", "caption choice"] == 2 / 3
    assert set(report.items["chance"]) == {1 / 9}


def test_rows_that_cannot_be_asked_are_left_out(tmp_path, monkeypatch):
    texts = ["A pair of chairs", None, "Three dogs"]
    images = [oracle.photo(0), oracle.photo(1), None]
    changes = {"text": [*texts, "four cats"], "number": [2, 10, 3, 4], "image": [*images, oracle.photo(3)]}
    folder = on_hub(tmp_path / "c", image_url=[""] * 4, **changes)
    hub = oracle.HubOnDisk(monkeypatch, **{"nielsr/countbench": folder})
    assert items(COUNTBENCH, None).left_out == {NO_NUMBER: 1, EMPTY_CAPTION: 1, NO_IMAGE: 1}
    assert hub.asked == [("nielsr/countbench", {"split": "train", "revision": None})]
