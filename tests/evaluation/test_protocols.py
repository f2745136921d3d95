"""Caption choice and group match: perfect, inverted, constant and random scorers against the declared chance."""

from __future__ import annotations

import numpy as np
import pytest

from hfcomp.evaluation.protocols import caption_choice as choice
from hfcomp.evaluation.protocols import group_match as group

ITEMS = 4000


def unit(generator: np.random.Generator, *shape: int) -> np.ndarray:
    values = generator.standard_normal(shape).astype(np.float32)
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_perfect_scorer_chooses_every_caption_and_an_inverted_one_none(generator):
    image = unit(generator, ITEMS, 16)
    assert choice.caption_choice(image, image, -image).accuracy == 1.0
    assert choice.caption_choice(image, -image, image).accuracy == 0.0


def test_a_random_scorer_chooses_at_chance(generator):
    image, caption, negative = (unit(generator, ITEMS, 16) for _ in range(3))
    assert choice.caption_choice(image, caption, negative).accuracy == pytest.approx(choice.CHANCE, abs=0.03)


def test_an_order_blind_scorer_ties_everywhere_and_gets_nothing(generator):
    """Equal embeddings must give equal scores to the last bit, whatever their place."""
    image, caption = unit(generator, ITEMS, 67), unit(generator, ITEMS, 67)
    outcome = choice.caption_choice(image, caption, np.stack([caption.copy(), caption.copy()], 1))
    assert outcome.accuracy == 0.0
    assert outcome.tie_rate == 1.0


def test_a_masked_negative_does_not_count(generator):
    image = unit(generator, 8, 16)
    negative = np.stack([-image, image], 1)
    mask = np.array([[True, False]] * 8)
    assert choice.caption_choice(image, image, negative, mask).accuracy == 1.0
    assert choice.caption_choice(image, image, negative).accuracy == 0.0


def test_group_match_wants_all_four_comparisons(generator):
    image, other = unit(generator, ITEMS, 16), unit(generator, ITEMS, 16)
    perfect = group.group_match(image, image, other, other)
    assert perfect.group.all() and not perfect.tie.any()
    inverted = group.group_match(image, other, other, image)
    assert not inverted.text.any() and not inverted.image.any()
    constant = group.group_match(image, image, image, image)
    assert not constant.group.any() and constant.tie.all()


def test_group_match_of_a_random_scorer_is_at_chance(generator):
    outcome = group.group_match(*(unit(generator, ITEMS, 64) for _ in range(4)))
    for name, chance in group.CHANCE.items():
        assert getattr(outcome, name).mean() == pytest.approx(chance, abs=0.03)


def test_text_and_image_score_are_told_apart():
    """Both captions fit the first image best: every caption finds an image of its own only once."""
    image, other_image = np.float32([[1, 0]]), np.float32([[0, 1]])
    caption, other_caption = np.float32([[1, 0]]), np.float32([[0.8, 0.6]])
    outcome = group.group_match(image, caption, other_image, other_caption)
    assert outcome.text.tolist() == [True]
    assert outcome.image.tolist() == [False]
    assert outcome.group.tolist() == [False]
