"""Words that differ between two texts."""

from hfcomp.parsing.word_changes import changed_words, word_changes


def test_runs_lead_from_one_text_to_the_other():
    changes = word_changes("a red car and a dog", "a blue car and a big dog")
    assert changes == [
        ("same", "a"),
        ("removed", "red"),
        ("added", "blue"),
        ("same", "car and a"),
        ("added", "big"),
        ("same", "dog"),
    ]


def test_capitals_and_stops_are_no_change_and_the_second_text_s_words_are_given():
    assert word_changes("A car.", "a car") == [("same", "a car")]
    assert word_changes("", "new") == [("added", "new")]
    assert word_changes("gone", "") == [("removed", "gone")]
    assert word_changes("", "") == []


def test_a_word_of_signs_alone_is_a_word():
    assert [change.kind for change in word_changes("red & blue", "red - blue")] == ["same", "removed", "added", "same"]


def test_numbers_of_changed_words():
    assert changed_words("A red car.", "a blue car") == {1}
    assert changed_words("A big red car", "a red car") == {1}
    assert not changed_words("same", "same")
