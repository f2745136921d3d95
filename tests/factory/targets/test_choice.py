"""The top k, the draw among them, and the categories of a set."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from hfcomp.factory.targets.candidates import Candidate
from hfcomp.factory.targets.choice import MODES, ORDERS, Choice, balanced_categories, summarize_targets
from hfcomp.negatives.concreteness import ConcretenessRatings
from hfcomp.negatives.negative import caption_rng


def candidate(keyword: str, category: str, rating: float | None) -> Candidate:
    return Candidate(keyword, (0, len(keyword)), category, keyword if rating else "", rating, "NN")


CANDIDATES = [
    candidate("dog", "object", 4.9),
    candidate("red", "attribute", 4.2),
    candidate("on", "relation", 3.2),
    candidate("table", "object", 4.8),
    candidate("zorb", "object", None),
    candidate("holding", "relation", 3.7),
]


def draws(choice: Choice, number: int = 4000) -> Counter[str]:
    """Number of times that each candidate is the first target."""
    return Counter(choice.targets(CANDIDATES, caption_rng(seed, "a"))[0].keyword for seed in range(number))


def near(share: float, expected: float, number: int = 4000) -> bool:
    """Within five standard deviations of a share; the seeds are fixed, so that it holds always or never."""
    return abs(share - expected) <= 5 * math.sqrt(expected * (1 - expected) / number)


@pytest.mark.parametrize(("mode", "among"), [("high", ("dog", "table", "red")), ("low", ("on", "holding", "red"))])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_first_target_is_drawn_from_the_softmax_of_the_k(mode, among, temperature):
    sign = 1 if mode == "high" else -1
    ratings = {entry.keyword: entry.rating for entry in CANDIDATES}
    weights = {word: math.exp(sign * ratings[word] / temperature) for word in among}
    counts = draws(Choice.of(mode, order="sample", k=3, temperature=temperature))
    assert set(counts) == set(among)
    assert all(near(counts[word] / 4000, weights[word] / sum(weights.values())) for word in among)


def test_random_takes_every_candidate_as_equally_likely():
    counts = draws(Choice.of("random"))
    assert all(near(counts[entry.keyword] / 4000, 1 / 6) for entry in CANDIDATES)


def test_words_without_a_rating_are_targets_of_random_only():
    unrated = [candidate("zorb", "object", None)]
    assert [bool(Choice.of(mode).targets(unrated, random.Random(0))) for mode in MODES] == [False, False, True]


def test_the_rule_acts_among_the_k_or_among_all():
    """With k = 2 no relation is among the highest; with the category first one is always there."""
    for seed in range(50):
        top = Choice.of("high", k=2).targets(CANDIDATES, caption_rng(seed, "a"))
        assert {target.category for target in top} == {"object"}
        first = Choice.of("high", order="category_first", k=1).targets(CANDIDATES, caption_rng(seed, "a"))
        assert {target.keyword for target in first} == {"dog", "red", "holding"}
        assert len(Choice.of("high", order="sample").targets(CANDIDATES, caption_rng(seed, "a"))) == 1


def test_targets_are_at_most_one_of_each_category_the_first_drawn_first():
    for seed in range(50):
        drawn = Choice.of("high", k=6).targets(CANDIDATES, caption_rng(seed, "a"))
        assert len({target.category for target in drawn}) == len(drawn) == 3
        sample = Choice.of("high", k=6, order="sample").targets(CANDIDATES, caption_rng(seed, "a"))
        assert drawn[0] == sample[0]


def test_of_equal_ratings_at_the_edge_the_first_word_is_among_the_k():
    equal = [candidate(word, "object", 4.5) for word in "abcd"]
    keywords = {Choice.of("high", k=2).targets(equal, caption_rng(seed, "x"))[0].keyword for seed in range(60)}
    assert keywords == {"a", "b"}


@pytest.mark.parametrize("order", ORDERS)
def test_a_caption_draws_from_itself_only(order):
    choice = Choice.of("high", order=order)
    first = choice.targets(CANDIDATES, caption_rng(3, "a caption", "target"))
    assert first == choice.targets(CANDIDATES, caption_rng(3, "a caption", "target"))


def test_no_candidates_no_targets():
    assert Choice.of("high").targets([], random.Random(0)) == []


def test_modes_have_their_defaults():
    assert [(choice.order, choice.k) for choice in map(Choice.of, MODES)] == [
        ("top_k", 3),
        ("sample", 8),
        ("sample", 3),
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "medium"}, "mode: found 'medium',.* high, low, random"),
        ({"order": "first"}, "order: found 'first',.* top_k"),
        ({"k": 0}, "k=0"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"temperature": math.inf}, "temperature=inf"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Choice.of(**settings)


# The categories of a set

BOTH, EITHER = ["object", "attribute"], ["attribute", "object"]


def test_a_relation_goes_first_and_does_not_count():
    rows = [["object", "relation"]] * 5 + [["object"], BOTH]
    assert list(balanced_categories(rows)) == ["relation"] * 5 + ["object", "attribute"]


def test_a_row_that_can_be_either_gets_the_category_with_the_larger_deficit():
    assert list(balanced_categories([["object"]] * 3 + [BOTH] * 4)) == ["object"] * 3 + ["attribute"] * 3 + ["object"]


def test_of_equal_deficits_the_first_drawn_is_taken():
    assert next(balanced_categories([BOTH])) == "object" and next(balanced_categories([EITHER])) == "attribute"


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_the_share_of_attributes_is_a_setting(share):
    counts = Counter(balanced_categories([BOTH] * 1000, attribute_share=share))
    assert counts["attribute"] == 1000 * share


def test_the_shares_are_as_near_as_the_rows_allow():
    rng = random.Random(0)
    rows = [rng.choice([["object"], BOTH, EITHER]) for _ in range(3000)]  # 2,000 could be attributes
    counts = Counter(balanced_categories(rows))
    assert abs(counts["attribute"] - counts["object"]) <= 1


def test_a_row_without_targets_has_no_category():
    assert list(balanced_categories([[], ["object"]])) == ["", "object"]


def test_a_wrong_share_is_refused_before_any_row():
    with pytest.raises(ValueError, match="attribute_share: found 1.5"):
        balanced_categories([], attribute_share=1.5)


def test_the_summary_of_a_set():
    ratings = ConcretenessRatings({"dog": 5.0, "red": 4.0, "on": 3.0})
    summary = summarize_targets([("object", "dog"), ("object", ""), ("attribute", "red"), ("relation", "on")], ratings)
    assert (summary.targets, summary.rated, summary.mean, summary.median) == (4, 3, 4.0, 4.0)
    assert summary.shares == {"attribute": 0.25, "object": 0.5, "relation": 0.25}
    assert math.isnan(summarize_targets([], ratings).mean)
