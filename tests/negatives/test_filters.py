from __future__ import annotations

import math
import unicodedata

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hfcomp.negatives.filters import GrammarFilter, has_same_words, is_false_negative, is_same_sentence
from tests import tolerances
from tests.negatives import language_models

CAPTIONS = [
    "a red dog runs on the grass",
    "a blue cat sleeps on a bench",
    "two dogs and an old horse",
    "the dog is riding the horse",
    "a cat is on the red carpet",
    "a horse runs with two cats",
]
STRANGE = ["", "dog", "a", "🐶 ist größer", "café — naïve", "the dog " * 20, " ", *CAPTIONS]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    return language_models.gpt2(tmp_path_factory.mktemp("gpt2"), CAPTIONS, noise=0.02, steps=40)


@pytest.fixture(scope="module")
def grammar(gpt2) -> GrammarFilter:
    return GrammarFilter(gpt2, batch_size=3)


# Texts alone


@pytest.mark.parametrize(
    ("caption", "text", "same"),
    [
        ("A dog.", "a dog", True),
        ("a dog .\n", " a  dog", True),
        ("a orange cat", "an orange cat", True),
        ("An orange CAT!", "a orange cat", True),
        ("café", unicodedata.normalize("NFD", "café"), True),
        ("STRASSE", "straße", True),
        ("", "", True),
        ("a dog", "a dogs", False),
        ("a dog 🐶", "a dog 🐱", False),
        ("a cat on a dog", "a dog on a cat", False),
        ("a man, eating a dog", "a man eating a dog", False),
        ("a pan", "a pa", False),
        ("a dog", "", False),
    ],
)
def test_same_sentence(caption, text, same):
    assert is_same_sentence(caption, text) is same
    assert is_same_sentence(text, caption) is same


@pytest.mark.parametrize(
    ("caption", "text", "same"),
    [
        ("A dog on a cat.", "a cat on a dog", True),
        ("an orange cat and a dog", "a dog and an orange cat", True),
        ("an orange cat and a dog", "an orange dog and a cat", True),
        ("a red cat, a dog", "a dog, a red cat", True),
        ("a dog and a dog", "a dog and dog", False),
        ("a dog 🐶", "a dog 🐱", False),
        ("a dog's cat", "a dog cat", False),
        ("", "", True),
    ],
)
def test_same_words(caption, text, same):
    assert has_same_words(caption, text) is same


def test_false_negative_by_hand():
    true, negative = np.array([0.5, 0.5, 0.5, 0.25]), np.array([0.75, 0.5, 0.25, 0.5])
    assert is_false_negative(true, negative, margin=0.0).tolist() == [True, True, False, True]
    assert is_false_negative(true, negative, margin=0.25).tolist() == [True, False, False, True]
    assert is_false_negative(true, negative, margin=0.5).tolist() == [False] * 4
    assert is_false_negative(true, negative, margin=-0.25).tolist() == [True] * 4
    assert is_false_negative(true[:2, None], np.array([[0.75, 0.0], [1.0, 0.5]]), margin=0.25).tolist() == [
        [True, False],
        [True, False],
    ]


def test_false_negative_filter_throws_out_all_swaps_of_a_model_without_word_order():
    """The warning of the docstring: to a bag of words a swap scores as its caption does."""
    caption, swap = "a cat on a dog", "a dog on a cat"
    score = {text: np.array([float(sum(map(len, text.split())))]) for text in (caption, swap)}
    assert is_false_negative(score[caption], score[swap], margin=0.0).all()


@pytest.mark.parametrize("where", [0, 1])
def test_scores_that_are_no_numbers_are_refused(where):
    scores = [np.array([0.1]), np.array([0.1])]
    scores[where][0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        is_false_negative(*scores, margin=0.0)


# Likelihood


def test_uniform_model_gives_the_logarithm_of_its_vocabulary(tmp_path):
    made = GrammarFilter(language_models.gpt2(tmp_path))
    size = len(AutoTokenizer.from_pretrained(tmp_path))
    losses = made.losses(STRANGE)
    assert math.isnan(losses[0])
    allowed = tolerances.rounding(size) + tolerances.HIDDEN * language_models.EVEN
    assert losses[1:] == pytest.approx([math.log(size)] * (len(STRANGE) - 1), abs=allowed)


def test_losses_are_those_of_a_plain_loop(grammar, gpt2):
    network, tokenizer = (
        AutoModelForCausalLM.from_pretrained(gpt2).double().eval(),
        AutoTokenizer.from_pretrained(gpt2),
    )
    limit = language_models.POSITIONS

    def loss(text: str) -> float:
        ids = [tokenizer.bos_token_id, *tokenizer(text, verbose=False)["input_ids"]]
        total, start = 0.0, 0
        for place in range(1, len(ids)):
            if place - start == limit:
                start += limit // 2
            with torch.no_grad():
                scores = network(input_ids=torch.tensor([ids[start:place]])).logits[0, -1].log_softmax(-1)
            total -= scores[ids[place]].item()
        return total / (len(ids) - 1) if len(ids) > 1 else math.nan

    assert grammar.losses(STRANGE) == pytest.approx(
        [loss(text) for text in STRANGE], rel=tolerances.network(), nan_ok=True
    )


def test_batches_and_order_change_nothing(grammar, gpt2):
    expected = grammar.losses(STRANGE)
    for batch_size in (1, 64):
        made = GrammarFilter(gpt2, batch_size=batch_size)
        assert made.losses(STRANGE[::-1])[::-1] == pytest.approx(expected, rel=tolerances.network(), nan_ok=True)
    assert grammar.losses(["dog", "a", "dog"])[0] == pytest.approx(expected[1], rel=tolerances.network())
    assert grammar.losses([]).shape == (0,)
    assert np.isfinite(grammar.losses(["the dog " * 150])).all()


def test_scrambled_sentence_breaks_and_another_caption_does_not(grammar):
    broken = ["grass the on runs dog red a", "bench on sleeps a cat a blue", "horse old an and dogs two"]
    assert grammar.breaks(CAPTIONS[:3], broken) == [True] * 3
    assert grammar.breaks(CAPTIONS[:3], CAPTIONS[3:]) == [False] * 3
    assert grammar.breaks(broken, CAPTIONS[:3]) == [False] * 3
    assert grammar.breaks(["a dog", ""], ["", "dog a the"]) == [False, False]
    assert grammar.breaks([], []) == []


def test_tolerance_is_per_token(gpt2, grammar):
    caption, text = CAPTIONS[0], "grass the on runs dog red a"
    difference = float(np.diff(grammar.losses([caption, text]))[0])
    assert GrammarFilter(gpt2, tolerance=difference - 0.01).breaks([caption], [text]) == [True]
    assert GrammarFilter(gpt2, tolerance=difference + 0.01).breaks([caption], [text]) == [False]


def test_model_that_sees_what_it_should_predict_is_refused(tmp_path):
    folder = language_models.roberta(tmp_path, {"Ġdog": 1.0}, noise=0.5)
    with pytest.raises(ValueError, match="later tokens"):
        GrammarFilter(folder)


def test_model_that_cannot_be_found(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=r"'nobody/no-such-model'(.|\n)*folder .* connect"):
        GrammarFilter("nobody/no-such-model")


@pytest.mark.parametrize("settings", [{"tolerance": -1.0}, {"tolerance": math.nan}, {"batch_size": 0}])
def test_settings_are_checked(gpt2, settings):
    with pytest.raises(ValueError, match="expected"):
        GrammarFilter(gpt2, **settings)


def test_captions_and_texts_align(grammar):
    with pytest.raises(ValueError, match="1 captions for 2 texts"):
        grammar.breaks(["a"], ["a", "b"])
