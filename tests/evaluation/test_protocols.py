"""Every protocol: perfect, inverted, constant and random scorers against the declared chance."""

from __future__ import annotations

import numpy as np
import pytest

from hfcomp.evaluation.protocols import caption_choice as choice
from hfcomp.evaluation.protocols import classification as words
from hfcomp.evaluation.protocols import level_choice as levels
from hfcomp.evaluation.protocols.level_choice import Candidates, hard_images
from hfcomp.metrics import group
from hfcomp.metrics import two_positive as positives
from hfcomp.metrics.choice import ChoiceOutcome, pair_scores
from hfcomp.metrics.group import GroupOutcome
from tests import tolerances

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


def group_match(image, caption, other_image, other_caption) -> GroupOutcome:
    """The four cosines of two images and their captions, as the protocol compares them."""
    pairs = [(picture, text) for text in (caption, other_caption) for picture in (image, other_image)]
    return group.group_score(*(pair_scores(*pair) for pair in pairs))


def test_group_match_wants_all_four_comparisons(generator):
    image, other = unit(generator, ITEMS, 16), unit(generator, ITEMS, 16)
    perfect = group_match(image, image, other, other)
    assert perfect.group.accuracy == 1.0 and not perfect.group.tie.any()
    inverted = group_match(image, other, other, image)
    assert inverted.text.accuracy == inverted.image.accuracy == 0.0
    constant = group_match(image, image, image, image)
    for outcome in (constant.text, constant.image, constant.group):
        assert outcome.accuracy == 0.0 and outcome.tie_rate == 1.0


def test_group_match_of_a_random_scorer_is_at_chance(generator):
    outcome = group_match(*(unit(generator, ITEMS, 64) for _ in range(4)))
    for name, chance in group.CHANCE.items():
        assert getattr(outcome, name).accuracy == pytest.approx(chance, abs=0.03)


def test_text_and_image_score_are_told_apart():
    """Both captions fit the first image best: every caption finds an image of its own only once."""
    image, other_image = np.float32([[1, 0]]), np.float32([[0, 1]])
    caption, other_caption = np.float32([[1, 0]]), np.float32([[0.8, 0.6]])
    outcome = group_match(image, caption, other_image, other_caption)
    assert outcome.text.correct.tolist() == [True]
    assert outcome.image.correct.tolist() == [False]
    assert outcome.group.correct.tolist() == [False]


def two_positive(generator, **changes) -> tuple[ChoiceOutcome, ChoiceOutcome]:
    """Outcomes of the choice by the image, and of the choice by the texts only."""
    names = ("image", "caption", "paraphrase", "negative")
    image, caption, paraphrase, negative = ({name: unit(generator, ITEMS, 16) for name in names} | changes).values()
    texts = (caption, paraphrase), (caption, negative), (paraphrase, negative)
    return (
        positives.image_to_text(*(pair_scores(image, text) for text in (caption, paraphrase, negative))),
        positives.text_only(*(pair_scores(*pair) for pair in texts)),
    )


def test_two_positives_want_both_captions(generator):
    image = unit(generator, ITEMS, 16)
    by_image, by_texts = two_positive(generator, image=image, caption=image, paraphrase=image, negative=-image)
    assert by_image.accuracy == by_texts.accuracy == 1.0
    one_wrong, _ = two_positive(
        generator, image=image, caption=image, paraphrase=-image, negative=unit(generator, ITEMS, 16)
    )
    assert one_wrong.accuracy == 0.0


def test_two_positives_by_texts_alone_do_not_read_the_image(generator):
    """A paraphrase nearer to the negative than to its caption is wrong, whichever of the two is the nearer."""
    caption = unit(generator, ITEMS, 16)
    _, by_texts = two_positive(generator, caption=caption, paraphrase=-caption, negative=-caption)
    assert by_texts.accuracy == 0.0
    _, by_texts = two_positive(generator, caption=caption, paraphrase=-caption, negative=caption)
    assert by_texts.accuracy == 0.0


def test_two_positives_at_chance_and_tied(generator):
    for random in two_positive(generator):
        assert random.accuracy == pytest.approx(positives.CHANCE, abs=0.03)
    same = unit(generator, ITEMS, 16)
    for constant in two_positive(generator, caption=same, paraphrase=same, negative=same):
        assert constant.accuracy == 0.0 and constant.tie_rate == 1.0


def test_zero_shot_by_the_mean_of_prompts(generator):
    names = unit(generator, 8, 16)
    label = generator.integers(8, size=ITEMS)
    prompts = np.concatenate([names, names])
    classes = words.class_embeddings(prompts, [*range(8), *range(8)])
    assert classes == pytest.approx(names, abs=tolerances.rounding(2 * 16))
    assert words.zero_shot(names[label], classes, label).accuracy == 1.0
    assert words.zero_shot(unit(generator, ITEMS, 16), classes, label).accuracy == pytest.approx(1 / 8, abs=0.02)
    constant = words.zero_shot(names[label], np.repeat(names[:1], 8, axis=0), label)
    assert constant.accuracy == 0.0 and constant.tie_rate == 1.0
    with pytest.raises(ValueError, match="class 1 .*no prompt"):
        words.class_embeddings(names[:2], [0, 2])


def test_level_rivals_are_never_under_the_same_name(generator):
    names = [f"concept {number}" for number in generator.integers(5, size=300)]
    rivals = levels.draw_rivals(names, 10, seed=0)
    assert rivals.shape == (300, 9)
    for own, row in zip(names, rivals, strict=True):
        assert len(set(row.tolist())) == 9 and own not in {names[index] for index in row}
    assert (levels.draw_rivals(names, 10, seed=0) == rivals).all()
    with pytest.raises(ValueError, match="0 images .*'a'"):
        levels.draw_rivals(["a", "a"], 2, seed=0)


def test_rivals_are_of_hard_negative_groups_as_far_as_these_have_enough():
    """Groups a, b, c, d of 3, 2, 4 and 3 images; a's hard negatives are b and one that nobody has."""
    group = list("aaabbccccddd")
    image = np.arange(12)
    hard = hard_images(group, [["b", "nobody"] if name == "a" else ["d"] for name in group], image)
    assert [places.tolist() for places in (hard[0], hard[3])] == [[3, 4], [9, 10, 11]]
    candidates = Candidates.of(group, image, hard)
    rows = np.arange(12)
    rivals = candidates.rivals(rows, 2, seed=0)
    assert all(set(rivals[row]) == {3, 4} for row in range(3))
    assert all(set(rivals[row]) < {9, 10, 11} for row in range(3, 9))
    many = candidates.rivals(rows, 4, seed=0)
    assert all({3, 4} < set(row) and set(row) - {3, 4} < set(range(5, 12)) for row in many[:3])
    assert all(len(set(row)) == 4 for row in many)
    assert candidates.share_of_hard(rows[:3], 4) == 0.5 and candidates.share_of_hard(rows[:9], 2) == 1.0
    # d names itself: no image of its own name
    assert all(set(row).isdisjoint({9, 10, 11}) for row in many[9:]) and candidates.share_of_hard(rows[9:], 2) == 0.0
    # on a level where a and b are one concept, nothing of b is left
    wider = Candidates.of(["ab" if name in "ab" else name for name in group], image, hard)
    assert wider.rivals(rows[:3], 2, seed=0).min() > 4 and wider.excluded[0] == 4 and wider.others[0] == 7


def test_level_retrieval_of_known_scorers(generator):
    names = [str(number % 40) for number in range(400)]
    image = unit(generator, 400, 16)
    candidates, rows = Candidates.of(names), np.arange(400)
    own = unit(generator, 40, 64)
    alike = own[rows % 40]  # images of one name tie with each other and with no other
    assert levels.level_retrieval(alike, alike, candidates, rows).accuracy == 1.0
    assert levels.level_retrieval(-alike, alike, candidates, rows).accuracy == 0.0
    same = np.repeat(image[:1], 400, 0)
    constant = levels.level_retrieval(image, same, candidates, rows)
    assert constant.accuracy == 0.0 and constant.tie_rate == 1.0
    random = levels.level_retrieval(unit(generator, 400, 16), image, candidates, rows)
    assert random.accuracy == pytest.approx(1 / 391, abs=0.01)
    assert levels.level_retrieval(alike[5:7], alike, candidates, rows[5:7]).correct.tolist() == [True, True]


@pytest.mark.parametrize("count", [1, "every"])
def test_candidates_are_two_or_more_or_all(count):
    with pytest.raises(ValueError, match=f"candidates: found {count!r}, .* 2, or 'all'"):
        levels.LevelChoice(candidates=(2, count))


def test_level_choice_of_known_scorers(generator):
    names = [str(number) for number in range(ITEMS)]
    image = unit(generator, ITEMS, 16)
    rivals = levels.draw_rivals(names, 4, seed=0)
    assert levels.level_choice(image, image, rivals).accuracy == 1.0
    assert levels.level_choice(-image, image, rivals).accuracy == 0.0
    assert levels.level_choice(unit(generator, ITEMS, 16), image, rivals).accuracy == pytest.approx(1 / 4, abs=0.03)
    assert levels.level_choice(image, np.repeat(image[:1], ITEMS, 0), rivals).tie_rate == 1.0
