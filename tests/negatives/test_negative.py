from __future__ import annotations

import random
from collections import Counter

from hfcomp.negatives.negative import sample_by_kind


def draw(candidates, number, seed=0, make=lambda sort, candidate: candidate):
    return sample_by_kind(candidates, make, number, random.Random(seed))


def test_a_sort_with_many_candidates_does_not_crowd_out_another():
    candidates = {"many": list(range(100)), "few": ["x"]}
    first = Counter(draw(candidates, 1, seed)[0] == "x" for seed in range(600))
    # 300 expected; four standard deviations are 49
    assert 250 < first[True] < 350


def test_a_sort_is_as_likely_with_candidates_that_cannot_be_made():
    candidates = {"many": [None] * 50 + ["y"], "few": ["x"]}
    first = Counter(draw(candidates, 1, seed)[0] for seed in range(600))
    assert 250 < first["x"] < 350


def test_nothing_is_drawn_twice_and_fewer_are_the_first_of_more():
    candidates = {"a": [1, 2, 3], "b": [4], "empty": []}
    everything = draw(candidates, 10)
    assert sorted(everything) == [1, 2, 3, 4]
    assert all(draw(candidates, number) == everything[:number] for number in range(1, 5))


def test_a_sort_without_results_is_passed_over():
    assert draw(
        {"never": [1, 2], "b": [4]}, 3, make=lambda sort, candidate: None if sort == "never" else candidate
    ) == [4]
