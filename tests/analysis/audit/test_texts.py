"""Checks of texts: rules that see no image, chance, duplicates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset

from hfcomp.analysis.audit.checks import chance_levels, parse_limits
from hfcomp.analysis.audit.reading import audit_set
from hfcomp.analysis.audit.texts import (
    bigram_scores,
    duplicate_texts,
    equal_negatives,
    equal_words,
    folds,
    known_true,
    likelihood_check,
    near_duplicate_texts,
    own_bigram_scores,
    rule_checks,
    rule_scores,
    same_words,
)
from hfcomp.analysis.pairs.similarity import word_edit_distance
from hfcomp.evaluation.blind.rules import CountedCaptions, words_of_text
from tests.analysis.audit import sets


def run_rules(data, note="the note"):
    return {
        check.name: check for check in rule_checks(data, rule_scores(data.pairs, own_bigram_scores(data, 0)), note)
    }


def test_a_full_stop_on_negatives_alone_decides_all_pairs_and_is_the_best_rule():
    checks = run_rules(sets.data())
    assert checks["full_stop"].value == 100 and checks["full_stop"].of == 24
    assert checks["full_stop"].facts == {"right": 24, "wrong": 0, "undecided": 0, "reversed": False}
    assert checks["blind"].value == 100 and checks["blind"].facts["rule"] in ("full_stop", "shorter")
    assert checks["shorter"].low > 80 and checks["bigram"].reason.endswith("the note")
    kinds = next(table for table in checks["blind"].tables if "kind" in table.title)
    assert {row[0]: row[1] for row in kinds.rows} == {"swap_obj": "12", "other": "12"}


def test_a_rule_that_is_always_wrong_decides_as_much():
    longer = {row: [f"a {row}"] for row in range(24)}
    checks = run_rules(sets.data(negative_captions=longer))
    assert checks["shorter"].value == 100 and checks["shorter"].facts["reversed"]
    assert checks["shorter"].facts["wrong"] == 24 and "reversed" in checks["shorter"].reason


def test_a_clean_set_decides_nothing_by_its_surface():
    checks = run_rules(sets.data(ending=""))
    assert checks["full_stop"].value == 50 and checks["full_stop"].facts["undecided"] == 24
    assert checks["shorter"].value == 50


def test_a_rule_that_ties_on_most_pairs_counts_as_right_as_with_a_coin():
    """Every second negative ends in a full stop: with a coin for the others three quarters are right."""
    texts = sets.rows(ending="")["negative_captions"][:]
    marked = {row: [f"{texts[row][0]}."] for row in range(0, 24, 2)}
    checks = run_rules(sets.data(ending="", negative_captions=marked))
    assert checks["full_stop"].value == 75
    assert checks["full_stop"].facts == {"right": 12, "wrong": 0, "undecided": 12, "reversed": False}
    assert checks["blind"].value >= 75 and checks["full_stop"].low > 60
    assert parse_limits(["blind>60"])[0].reason(checks)
    kinds = next(table for table in checks["blind"].tables if "kind" in table.title)
    assert {row[0]: row[3] for row in kinds.rows} == {"swap_obj": "100.0", "other": "50.0"}


def test_a_limit_rarely_fails_a_small_clean_set_and_says_that_chance_reaches_its_number():
    """30 pairs without a difference: the best of four rules is above 60 in many draws, and fails in 5% at most."""
    data, generator, limit = sets.data(30), np.random.default_rng(0), parse_limits(["blind>60"])[0]
    data.__dict__["bootstrap"] = None  # intervals decide nothing
    names, failed, above = ("shorter", "full_stop", "bigram", "bigram_sentence"), 0, 0
    for _ in range(40):
        scores = {name: tuple(generator.normal(size=(2, 30))) for name in names}
        checks = {check.name: check for check in rule_checks(data, scores, "")}
        failed += limit.reason(checks) is not None
        above += checks["blind"].value > 60
        assert checks["blind"].chance_high >= checks["blind"].chance > checks["shorter"].chance > 50
    # of 40 draws at 5%, 7 or more fail in 0.3% of cases; the seed is fixed
    assert failed <= 6 and above > 8
    leaky = {name: (np.ones(30), np.repeat([0.0, 1.0], 15)) for name in names}
    assert limit.reason({check.name: check for check in rule_checks(data, leaky, "")})


def test_pairs_of_one_image_change_places_together():
    signs = np.ones((12, 1))
    together, (alone,) = chance_levels(signs, ["one"] * 12)
    assert together == alone and alone.high == 100 and abs(alone.mean - 50) < 5
    spread = chance_levels(signs, [str(row) for row in range(12)])[0]
    assert spread.high < 80


def test_own_bigrams_never_see_the_texts_of_a_pair_s_image():
    data = sets.data()
    scores, fold_of = own_bigram_scores(data, 0), folds(data.image_ids, 0)
    assert set(fold_of.values()) == set(range(5))
    for row in (0, 7):
        others = [
            text
            for text, name in zip(data.texts["text"], data.texts["image_id"], strict=True)
            if fold_of[name] != fold_of[data.image_ids[row]]
        ]
        model = CountedCaptions(others).model(np.ones(len(others), dtype=bool))
        expected = bigram_scores(data.pairs.iloc[[row]], model)["bigram"]
        assert scores["bigram"][0][row] == pytest.approx(expected[0][0])
        assert scores["bigram"][1][row] == pytest.approx(expected[1][0])


def test_likelihood_says_who_judged_and_skips_texts_without_tokens():
    data = sets.data(4)
    check = likelihood_check(
        data, (np.array([-1.0, -2.0, np.nan, -1.0]), np.array([-2.0, -1.0, -1.0, -3.0])), "a model"
    )
    assert check.of == 3 and check.value == pytest.approx(200 / 3)
    assert check.facts["mean_difference"] == pytest.approx((1 - 1 + 2) / 3)
    assert "a model" in check.reason and "1 pairs" in check.reason


def test_pairs_of_the_same_words_are_counted_and_listed():
    check = same_words(sets.data(8, negative_captions={0: ["another text"]}), 2)
    assert check.value == pytest.approx(100 * 7 / 8)
    assert check.facts == {"pairs": 7, "rows": list(range(1, 8))}
    assert [example.row for example in check.examples] == [1, 2]


def test_negatives_that_are_the_caption_or_another_true_one_are_found():
    rows = Dataset.from_dict(
        {
            "caption": ["a dog", "a puppy", "a cat", "a cat sits"],
            "positive_captions": [["a small dog"], [], [], []],
            "negative_captions": [["A dog.", "a small dog!", "a dog"], ["a dog"], ["a dog"], ["sits a cat"]],
            "image_id": ["1", "1", "2", "3"],
        }
    )
    data = audit_set("own", rows, {})
    # of the two only one is the caption itself: a scorer can tell "a dog" from "A dog."
    assert [example.other for example in equal_negatives(data, 3).examples] == ["a dog"]
    assert [example.other for example in equal_words(data, 3).examples] == ["A dog."]
    assert known_true(data).facts == {"pairs": 2, "rows": [0, 1]}
    assert same_words(data).facts == {"pairs": 1, "rows": [3]}


def test_without_negatives_nothing_is_claimed():
    data = audit_set("own", Dataset.from_dict({"caption": ["a dog"]}), {})
    checks = [*rule_checks(data, {}, ""), same_words(data), equal_negatives(data), equal_words(data), known_true(data)]
    assert all(check.value is None and "no negative captions" in check.reason for check in checks)


def table(texts: list[str], images: list[str] | None = None) -> pd.DataFrame:
    names = images or [str(place) for place in range(len(texts))]
    return pd.DataFrame({"row": range(len(texts)), "image_id": names, "text": texts})


def test_equal_captions_of_different_images_are_duplicates():
    texts = table(["A dog.", "a dog", "a cat", "a cat", "a bird"], ["1", "2", "3", "3", "4"])
    check = duplicate_texts(texts, 5)
    assert check.value == 40 and check.facts == {"captions": 2}
    assert [(example.text, example.other, example.note) for example in check.examples] == [
        ("A dog.", "a dog", "rows 0 and 1")
    ]


def test_near_duplicates_are_those_within_one_word():
    generator = np.random.default_rng(0)
    words = np.array(["a", "dog", "cat", "on", "red", "grass"])
    texts = [" ".join(words[generator.integers(6, size=generator.integers(2, 6))]) for _ in range(150)]
    images = [str(number) for number in generator.integers(60, size=150)]
    check = near_duplicate_texts(table(texts, images), 150)
    expected = [
        any(
            images[first] != images[other]
            and word_edit_distance(words_of_text(texts[first]), words_of_text(texts[other])) == 1
            for other in range(150)
        )
        for first in range(150)
    ]
    assert 0 < sum(expected) < 150
    assert check.facts == {"captions": sum(expected)}
    assert all(word_edit_distance(example.text.split(), example.other.split()) == 1 for example in check.examples)


def test_many_equal_captions_take_no_longer_than_few():
    texts = ["a dog on the grass"] * 20_000 + ["a cat on the grass"]
    assert near_duplicate_texts(table(texts)).facts == {"captions": 20_001}
