from __future__ import annotations

import pytest

from hfcomp.negatives.surface import fit_article, rewrite, starts_with_vowel_sound, without_initial_capital


@pytest.mark.parametrize(
    "word", ["apple", "orange", "hour", "umbrella", "8 ball", "LG phone", "'old' sign", "Unimportant"]
)
def test_an_stands_before(word):
    assert starts_with_vowel_sound(word)


@pytest.mark.parametrize(
    "word", ["dog", "unicorn", "one way sign", "urinal", "European city", "TV", "USB", "180 turn", "", "…"]
)
def test_a_stands_before(word):
    assert not starts_with_vowel_sound(word)


def test_only_an_article_that_does_not_fit_is_changed():
    assert fit_article("there is a ", "apple") == "there is an "
    assert fit_article("An ", "dog") == "A "
    assert fit_article("the banana ", "apple") == "the banana "
    assert fit_article("a very ", "orange") == "a very "
    assert fit_article("plan a ", "Orange") == "plan an "


def test_the_capital_stays_at_the_start():
    caption = "Dogs chase cats."
    moved = without_initial_capital(caption, (0, 4))
    assert rewrite(caption, ((0, 4), (11, 15)), ("cats", moved)) == "Cats chase dogs."


def test_names_and_acronyms_keep_their_capital():
    assert without_initial_capital("TV on a shelf", (0, 2)) == "TV"
    assert without_initial_capital("Anna waves", (0, 4), is_name=True) == "Anna"
    assert without_initial_capital("A DOG ON A MAT", (0, 5)) == "A DOG"
    assert without_initial_capital("A dog", (0, 5)) == "a dog"
    assert without_initial_capital("a Dog", (2, 5)) == "Dog"


def test_spans_can_insert_and_remove():
    assert rewrite("A dog that is asleep", ((6, 14),), ("",)) == "A dog asleep"
    assert rewrite("There is an owl", ((0, 9),), ("",)) == "An owl"
    assert rewrite("an owl", ((0, 0),), ("a photo of ",)) == "a photo of an owl"


def test_white_space_at_the_start_is_kept():
    assert rewrite("  A dog", ((4, 7),), ("owl",)) == "  An owl"


def test_spans_that_overlap_are_refused():
    with pytest.raises(ValueError, match="overlap"):
        rewrite("a dog and a cat", ((0, 5), (2, 5)), ("x", "y"))
