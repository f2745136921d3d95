"""Every protocol: perfect, inverted, constant and random scorers against the declared chance."""

from __future__ import annotations

import numpy as np
import pytest

from hfcomp.evaluation.protocols import caption_choice as choice
from hfcomp.evaluation.protocols import group_match as group
from hfcomp.evaluation.protocols import level_choice as levels
from hfcomp.evaluation.protocols import two_positive_choice as positives
from hfcomp.evaluation.protocols import zero_shot as words

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
    assert perfect.group.accuracy == 1.0 and not perfect.group.tie.any()
    inverted = group.group_match(image, other, other, image)
    assert inverted.text.accuracy == inverted.image.accuracy == 0.0
    constant = group.group_match(image, image, image, image)
    for outcome in (constant.text, constant.image, constant.group):
        assert outcome.accuracy == 0.0 and outcome.tie_rate == 1.0


def test_group_match_of_a_random_scorer_is_at_chance(generator):
    outcome = group.group_match(*(unit(generator, ITEMS, 64) for _ in range(4)))
    for name, chance in group.CHANCE.items():
        assert getattr(outcome, name).accuracy == pytest.approx(chance, abs=0.03)


def test_text_and_image_score_are_told_apart():
    """Both captions fit the first image best: every caption finds an image of its own only once."""
    image, other_image = np.float32([[1, 0]]), np.float32([[0, 1]])
    caption, other_caption = np.float32([[1, 0]]), np.float32([[0.8, 0.6]])
    outcome = group.group_match(image, caption, other_image, other_caption)
    assert outcome.text.correct.tolist() == [True]
    assert outcome.image.correct.tolist() == [False]
    assert outcome.group.correct.tolist() == [False]


def two_positive(generator, **changes):
    parts = {name: unit(generator, ITEMS, 16) for name in ("image", "caption", "paraphrase", "negative")}
    return positives.two_positive_choice(**(parts | changes))


def test_two_positives_want_both_captions(generator):
    image = unit(generator, ITEMS, 16)
    perfect = two_positive(generator, image=image, caption=image, paraphrase=image, negative=-image)
    assert perfect.image_to_text.accuracy == perfect.text_only.accuracy == 1.0
    one_wrong = two_positive(
        generator, image=image, caption=image, paraphrase=-image, negative=unit(generator, ITEMS, 16)
    )
    assert one_wrong.image_to_text.accuracy == 0.0


def test_two_positives_by_texts_alone_do_not_read_the_image(generator):
    """A paraphrase nearer to the negative than to its caption is wrong, whichever of the two is the nearer."""
    caption = unit(generator, ITEMS, 16)
    outcome = two_positive(generator, caption=caption, paraphrase=-caption, negative=-caption)
    assert outcome.text_only.accuracy == 0.0
    outcome = two_positive(generator, caption=caption, paraphrase=-caption, negative=caption)
    assert outcome.text_only.accuracy == 0.0


def test_two_positives_at_chance_and_tied(generator):
    random = two_positive(generator)
    assert random.image_to_text.accuracy == pytest.approx(positives.CHANCE, abs=0.03)
    assert random.text_only.accuracy == pytest.approx(positives.CHANCE, abs=0.03)
    same = unit(generator, ITEMS, 16)
    constant = two_positive(generator, caption=same, paraphrase=same, negative=same)
    assert constant.image_to_text.accuracy == constant.text_only.accuracy == 0.0
    assert constant.image_to_text.tie_rate == constant.text_only.tie_rate == 1.0


def test_zero_shot_by_the_mean_of_prompts(generator):
    names = unit(generator, 8, 16)
    label = generator.integers(8, size=ITEMS)
    prompts = np.concatenate([names, names])
    classes = words.class_embeddings(prompts, [*range(8), *range(8)])
    assert classes == pytest.approx(names, abs=1e-6)
    assert words.zero_shot(names[label], classes, label).accuracy == 1.0
    assert words.zero_shot(unit(generator, ITEMS, 16), classes, label).accuracy == pytest.approx(1 / 8, abs=0.02)
    constant = words.zero_shot(names[label], np.repeat(names[:1], 8, axis=0), label)
    assert constant.accuracy == 0.0 and constant.tie_rate == 1.0
    with pytest.raises(ValueError, match="class 1 has no prompt"):
        words.class_embeddings(names[:2], [0, 2])


def test_level_rivals_are_never_under_the_same_name(generator):
    names = [f"concept {number}" for number in generator.integers(5, size=300)]
    rivals = levels.draw_rivals(names, 10, seed=0)
    assert rivals.shape == (300, 9)
    for own, row in zip(names, rivals, strict=True):
        assert len(set(row.tolist())) == 9 and own not in {names[index] for index in row}
    assert (levels.draw_rivals(names, 10, seed=0) == rivals).all()
    with pytest.raises(ValueError, match="0 images are under another concept than 'a'"):
        levels.draw_rivals(["a", "a"], 2, seed=0)


def test_level_choice_of_known_scorers(generator):
    names = [str(number) for number in range(ITEMS)]
    image = unit(generator, ITEMS, 16)
    rivals = levels.draw_rivals(names, 4, seed=0)
    assert levels.level_choice(image, image, rivals).accuracy == 1.0
    assert levels.level_choice(-image, image, rivals).accuracy == 0.0
    assert levels.level_choice(unit(generator, ITEMS, 16), image, rivals).accuracy == pytest.approx(1 / 4, abs=0.03)
    assert levels.level_choice(image, np.repeat(image[:1], ITEMS, 0), rivals).tie_rate == 1.0
