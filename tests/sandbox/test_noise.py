"""Rows that are wrong on purpose: as often as asked, in the way they say, and nothing else of the set with them."""

from functools import cache
from itertools import groupby

import numpy as np
import pytest

from hfcomp.sandbox import training_set
from hfcomp.sandbox.drawing import KIND_WEIGHTS, TUNING, draw_tuple, weighted_choice
from hfcomp.sandbox.negatives import DRAWABILITY
from hfcomp.sandbox.noise import Noise, add_noise

from .drawn import same_looks
from .eyes import see
from .reader import is_true
from .tables import raw

KNOBS = {"edit_noise": "edit", "caption_noise": "caption", "false_negatives": "false_negative"}
ROWS = 80


@cache
def clean():
    return raw(training_set(ROWS, 0))


@cache
def noisy(knob):
    return training_set(ROWS, 0, **{knob: 0.6})


@cache
def drawn_tuples():
    generator = np.random.default_rng(0)

    def choose(kinds):
        return weighted_choice(generator, kinds, KIND_WEIGHTS)

    return [draw_tuple(generator, TUNING, choose, held_out=False) for _ in range(500)]


def spoiled_tuples(noise, times=1):
    generator = np.random.default_rng(1)
    return [add_noise(generator, row, noise) for _ in range(times) for row in drawn_tuples()]


def is_likely(failures, rate):
    """Whether so many of these outcomes are no surprise: within four standard deviations."""
    return abs(np.mean(failures) - rate) <= 4 * np.sqrt(rate * (1 - rate) / len(failures))


@pytest.mark.parametrize("name", ["edit", "caption", "false_negative"])
@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_rates_are_probabilities(name, rate):
    with pytest.raises(ValueError, match=f"{name} noise"):
        Noise(**{name: rate})


@pytest.mark.parametrize("knob", KNOBS)
def test_sets_refuse_what_is_no_probability(knob):
    with pytest.raises(ValueError, match="probability"):
        training_set(1, 0, **{knob: 1.5})


def test_edits_fail_more_often_the_harder_the_word_is_to_draw():
    noise = Noise(edit=0.8)
    assert [noise.edit_probability(rating) for rating in (1, 3, 4, 4.5, 5)] == pytest.approx([0.8, 0.8, 0.4, 0.2, 0])


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_edits_fail_as_often_as_their_words_ask(rate):
    noise = Noise(edit=rate)

    def drawability(row):
        return row.negatives[0].drawability

    groups = groupby(sorted(spoiled_tuples(noise, times=3), key=drawability), drawability)
    failures = {rating: [bool(row.noise) for row in rows] for rating, rows in groups}
    assert len(failures) > 3
    for rating, failed in failures.items():
        assert is_likely(failed, noise.edit_probability(rating)), rating


@pytest.mark.parametrize("name", ["caption", "false_negative"])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_captions_are_wrong_as_often_as_asked(name, rate):
    rows = spoiled_tuples(Noise(**{name: rate}))
    assert {entry for row in rows for entry in row.noise} <= {name}
    assert is_likely([bool(row.noise) for row in rows], rate)


def test_a_true_negative_has_no_failed_edit():
    rows = spoiled_tuples(Noise(1, 1, 1))
    assert {row.noise for row in rows} == {("caption", "false_negative")}


@pytest.mark.parametrize("knob", KNOBS)
def test_other_rows_are_those_of_the_clean_set(knob):
    expected, actual = clean(), raw(noisy(knob))
    kept = [i for i, noise in enumerate(actual["noise"]) if not noise]
    assert 0 < len(kept) < ROWS and not any(expected["noise"])
    for name in expected:
        assert [actual[name][i] for i in kept] == [expected[name][i] for i in kept], name


@pytest.mark.parametrize("knob", KNOBS)
def test_noise_spoils_what_it_names_and_nothing_else(knob):
    spoiled = {
        "edit_noise": {"negative_image"},
        "caption_noise": {"caption", "concepts", "concept_spans", "generalized_caption"},
        "false_negatives": {"negative_captions", "negative_image", "mask"},
    }[knob]
    expected, actual = clean(), raw(noisy(knob))
    wrong = [i for i, noise in enumerate(actual["noise"]) if noise == [KNOBS[knob]]]
    assert [i for i, noise in enumerate(actual["noise"]) if noise] == wrong
    assert all(actual["image_id"][i] == expected["image_id"][i] for i in wrong)
    changed = {name for name in expected for i in wrong if actual[name][i] != expected[name][i]}
    assert changed - {"noise"} <= spoiled and min(spoiled) in changed


def test_failed_edits_show_the_original_scene():
    for row in noisy("edit_noise"):
        image, other = see([row["image"], row["negative_image"]])
        assert (same_looks(image) == same_looks(other)) == (row["noise"] == ["edit"])
        assert is_true(row["negative_captions"][0], other) == (not row["noise"])
        if row["noise"]:
            changed = (np.asarray(row["image"]) != np.asarray(row["negative_image"])).any(axis=-1)
            assert (np.asarray(row["mask"])[changed] == 255).all()


def test_as_a_step_no_edit_of_an_abstract_word_shows_and_every_other_does():
    rows = raw(training_set(ROWS, 0, edit_noise=1.0, edit_noise_step=True))
    failed = {noise == ["edit"]: set() for noise in rows["noise"]}
    for noise, (keyword,) in zip(rows["noise"], rows["negative_keywords"], strict=True):
        failed[noise == ["edit"]].add(keyword)
    assert failed[True] == {word for word in failed[True] | failed[False] if DRAWABILITY[word] < 4}
    assert {"small", "left"} <= failed[True] and {"red", "circle"} <= failed[False]


def test_noisy_captions_are_false_and_their_paraphrases_are_not():
    for row in noisy("caption_noise"):
        (scene,) = see([row["image"]])
        assert is_true(row["caption"], scene) == (not row["noise"])
        assert is_true(row["positive_captions"][0], scene)
        assert not is_true(row["negative_captions"][0], scene)
        assert row["caption"] not in row["negative_captions"]
        said = [row["caption"][start:end] for ((start, end),) in row["concept_spans"]]
        assert said == row["concepts"]


def test_false_negatives_are_true_of_the_image():
    for row in noisy("false_negatives"):
        image, other = see([row["image"], row["negative_image"]])
        assert is_true(row["negative_captions"][0], image) == (row["noise"] == ["false_negative"])
        assert is_true(row["negative_captions"][0], other)
        assert row["negative_captions"][0] != row["caption"]
        changed = (np.asarray(row["image"]) != np.asarray(row["negative_image"])).any(axis=-1)
        assert (np.asarray(row["mask"])[changed] == 255).all()
