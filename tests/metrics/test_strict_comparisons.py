"""Scores made of strict comparisons (group, two-positive, brittleness): known scorers, chance, ties, NaN, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pytest

from hfcomp.metrics import brittleness, group, two_positive
from hfcomp.metrics.choice import ChoiceOutcome

ROWS = 20_000


class Case(NamedTuple):
    score: Callable[..., object]
    perfect: tuple[bool, ...]  # columns that score high for a perfect scorer
    chance: Mapping[str, float]  # by part
    whole: tuple[str, ...]  # parts that compare all columns

    def parts(self, *columns) -> dict[str, ChoiceOutcome]:
        outcome = self.score(*(np.asarray(column, dtype=float) for column in columns))
        return {"": outcome} if isinstance(outcome, ChoiceOutcome) else vars(outcome)

    def shares(self, *columns) -> dict[str, tuple[float, float]]:
        return {name: (part.accuracy, part.tie_rate) for name, part in self.parts(*columns).items()}


CASES = {
    "group_score": Case(group.group_score, (True, False, False, True), group.CHANCE, ("group",)),
    "image_to_text": Case(two_positive.image_to_text, (True, True, False), {"": two_positive.CHANCE}, ("",)),
    "text_only": Case(two_positive.text_only, (True, False, False), {"": two_positive.CHANCE}, ("",)),
    "brittleness": Case(brittleness.brittleness, (True, True, False), brittleness.CHANCE, ("augmented", "brittle")),
}


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


def test_a_perfect_an_inverted_and_a_constant_scorer(case):
    high, low = np.full(4, 0.9), np.full(4, 0.1)
    perfect = {name: (0.0 if name == "brittle" else 1.0, 0.0) for name in case.chance}
    assert case.shares(*(high if right else low for right in case.perfect)) == perfect
    assert case.shares(*(low if right else high for right in case.perfect)) == dict.fromkeys(perfect, (0.0, 0.0))
    assert case.shares(*(high for _ in case.perfect)) == dict.fromkeys(perfect, (0.0, 1.0))


def test_a_random_scorer_is_at_chance(case):
    shares = case.shares(*np.random.default_rng(0).random((len(case.perfect), ROWS)))
    for name, chance in case.chance.items():
        assert abs(shares[name][0] - chance) < 4 * math.sqrt(chance * (1 - chance) / ROWS), name


def test_nan_never_wins(case):
    for place in range(len(case.perfect)):
        columns = [[0.9 if right else 0.1] for right in case.perfect]
        columns[place] = [math.nan]
        parts = case.parts(*columns)
        assert not any(parts[name].correct.any() or parts[name].tie.any() for name in case.whole)


def test_shapes_that_differ_are_refused(case):
    columns = [[1] for _ in case.perfect]
    with pytest.raises(ValueError, match=r"\(1,\), \(2,\).*\[n\]"):
        case.score(*map(np.asarray, [[1, 2], *columns[1:]]))
    with pytest.raises(ValueError, match=r"expected \[n\]"):
        case.score(*(np.asarray([column]) for column in columns))


def test_group_score_by_hand():
    # all right; images right only; captions right only; one image wins both captions
    parts = CASES["group_score"].parts(
        *([0.9, 0.5, 0.6, 0.9], [0.1, 0.1, 0.7, 0.8], [0.2, 0.6, 0.1, 0.7], [0.8, 0.8, 0.9, 0.6])
    )
    assert parts["text"].correct.tolist() == [True, False, True, False]
    assert parts["image"].correct.tolist() == [True, True, False, False]
    assert parts["group"].correct.tolist() == [True, False, False, False]


def test_each_part_of_the_group_score_has_its_own_ties():
    # c0_i0 == c1_i0: the captions of image 0 tie; images are told apart. In the second row text is wrong besides.
    parts = CASES["group_score"].parts([0.5, 0.5], [0.1, 0.9], [0.5, 0.5], [0.9, 0.1])
    assert parts["text"].tie.tolist() == [True, False]
    assert parts["image"].tie.tolist() == [False, False]
    assert parts["image"].correct.tolist() == [True, False]
    assert parts["group"].tie.tolist() == [True, False]


@pytest.mark.parametrize(
    ("name", "columns", "tie"),
    [
        # both above; one below; one level with the negative; one level and one below
        ("image_to_text", ([0.9, 0.9, 0.5, 0.5], [0.8, 0.2, 0.6, 0.2], [0.3, 0.3, 0.5, 0.5]), 2),
        # nearest; farther than the caption; farther than the paraphrase; level
        ("text_only", ([0.9, 0.7, 0.7, 0.7], [0.5, 0.8, 0.1, 0.7], [0.4, 0.1, 0.8, 0.1]), 3),
    ],
)
def test_two_positive_by_hand(name, columns, tie):
    outcome = CASES[name].parts(*columns)[""]
    assert outcome.correct.tolist() == [True, False, False, False]
    assert np.flatnonzero(outcome.tie).tolist() == [tie]


def test_any_change_of_words_that_is_wrong_to_a_scorer_is_brittle():
    shares = CASES["brittleness"].shares(np.full(4, 0.9), np.full(4, 0.1), np.full(4, 0.5))
    assert shares == {"original": (1.0, 0.0), "augmented": (0.0, 0.0), "brittle": (1.0, 0.0)}


def test_brittleness_in_the_six_orders_and_ties_by_hand():
    #           c>p>n p>c>n c>n>p p>n>c n>c>p n>p>c c>p=n c=n>p c=p>n
    caption = [3.0, 2.0, 3.0, 1.0, 2.0, 1.0, 2.0, 2.0, 2.0]
    positive = [2.0, 3.0, 1.0, 3.0, 1.0, 2.0, 1.0, 1.0, 2.0]
    negative = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 1.0, 2.0, 1.0]
    parts = CASES["brittleness"].parts(caption, positive, negative)
    correct = {name: np.flatnonzero(part.correct).tolist() for name, part in parts.items()}
    assert correct == {"original": [0, 1, 2, 6, 8], "augmented": [0, 1, 8], "brittle": [2, 3]}
    tied = {name: np.flatnonzero(part.tie).tolist() for name, part in parts.items()}
    assert tied == {"original": [7], "augmented": [6], "brittle": [6, 7]}
