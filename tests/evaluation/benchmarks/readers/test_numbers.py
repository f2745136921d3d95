"""Captions with other numbers."""

from __future__ import annotations

import pytest

from hfcomp.evaluation.benchmarks.composition.countbench import other_numbers


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
    found = other_numbers(text, number)
    assert len(set(found)) == 8 and text not in found and found[-1] == last


def test_without_its_number_there_is_nothing_to_replace():
    assert other_numbers("a pair of dogs", 2) == []
    with pytest.raises(ValueError, match="found 11 for the caption 'eleven dogs', expected 2 to 10"):
        other_numbers("eleven dogs", 11)
