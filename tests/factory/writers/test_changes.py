"""From a caption and an answer to the one change, or why it is refused."""

from __future__ import annotations

import pytest

from hfcomp.factory.writers.changes import changed_part, replaced_keyword
from hfcomp.factory.writers.requests import Refused


def replace(caption: str, keyword: str, answer: str, tag: str = "NN", category: str = "object"):
    start = caption.index(keyword)
    return replaced_keyword(caption, (start, start + len(keyword)), tag, category, answer)


@pytest.mark.parametrize(
    ("caption", "keyword", "answer", "text"),
    [
        ("A person wearing a red helmet.", "red", "A person wearing a blue helmet.", None),
        ("A woman holding a coffee cup", "coffee cup", "A woman holding a laptop", None),
        ("A dog eats an apple.", "apple", "A dog eats a banana.", None),
        ("A dog eats an apple.", "apple", "A dog eats an banana.", "A dog eats a banana."),
        # what a model does besides leaves no mark
        ("a dog  runs", "dog", "A cat runs.", "a cat  runs"),
        ("A dog runs.", "dog", "a cat runs", "A cat runs."),
        ("dogs run", "dogs", "Cats run", "cats run"),
        ("Dogs run", "Dogs", "cats run", "Cats run"),
        ("A dog’s bowl", "bowl", "A dog's plate", "A dog’s plate"),
        ("A DOG RUNS", "DOG", "A cat runs", "A CAT RUNS"),
        ("three dogs are there", "three", "one dogs is there", "one dogs is there"),
        # the paper's own examples
        ("A child standing in front of the tree", "front", "A child standing behind the tree", None),
        ("A lamp placed to the left of the sofa", "left", "A lamp placed to the right of the sofa", None),
        ("A cat sitting under a table", "under", "A cat sitting on a table", None),
        ("日本の red dog", "red", "日本の blue dog", None),
    ],
)
def test_the_keyword_alone_changes(caption, keyword, answer, text):
    change = replace(caption, keyword, answer, "JJ")
    assert change.negative.text == (answer if text is None else text)
    (span,) = change.negative.spans
    assert keyword in change.negative.keyword == caption[slice(*span)]
    assert change.agreements == (1 if "is there" in answer else 0)


@pytest.mark.parametrize(
    ("caption", "keyword", "answer", "reason"),
    [
        ("A dog runs.", "dog", "a dog runs", "the caption itself"),
        ("A dog runs.", "dog", "A runs.", "keyword left out"),
        ("A dog runs.", "dog", "A cat sleeps.", "other words changed"),
        ("A dog runs.", "dog", "Runs a cat", "other words changed"),
        ("A dog runs.", "dog", "Here is one: A cat runs.", "other words changed"),
        ("A dog runs fast", "dog", "A cat runs", "other words changed"),
        ("two girls", "girl", "two boys", "other words changed"),
        ("A dog runs.", "dog", "A dogs runs.", "same word"),
        ("A red dog", "red", "A dark red dog", "keeps the keyword"),
        ("A coffee cup", "coffee cup", "A cup", "keeps the keyword"),
        ("A couch", "couch", "A sofa", "same thing"),
        ("A man runs", "man", "A person runs", "same thing"),
        ("A tabby kitten", "kitten", "A tabby cat", "same thing"),
        ("A gray dog", "gray", "A grey dog", "same thing"),
        ("A dog runs", "dog", "A very big brown cat with a hat runs", "too many words"),
        ("A dog runs", "dog", "A a cat runs", "a word twice"),
        ("A dog runs", "dog", "A cats runs", "singular and plural"),
    ],
)
def test_what_is_refused(caption, keyword, answer, reason):
    with pytest.raises(Refused, match=reason):
        replace(caption, keyword, answer)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("three", "3"),
        ("three", "several"),
        ("3", "many"),
        ("several", "ten"),
        ("two", "a couple of"),
        ("many", "lots of"),
        ("red", "crimson"),
        ("navy", "blue"),
        ("next to", "near"),
        ("next to", "beside"),
        ("by", "alongside"),
        ("on", "upon"),
        ("under", "beneath"),
    ],
)
def test_words_that_may_be_true_still_are_refused(old, new):
    with pytest.raises(Refused, match="same thing"):
        replace(f"Seen are {old} things", old, f"Seen are {new} things", "CD")
    with pytest.raises(Refused, match="same thing"):
        changed_part(f"Seen are {old} things", "replace_att", f"Seen are {new} things")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("three", "two"),
        ("3", "one"),
        ("one", "several"),
        ("many", "few"),
        ("several", "no"),
        ("red", "navy"),
        ("crimson", "teal"),
        ("next to", "far from"),
        ("on", "under"),
        ("near", "inside"),
        ("old", "unoccupied"),
        ("old", "Zxq"),
    ],
)
def test_words_that_exclude_each_other_are_kept(old, new):
    assert replace(f"Seen are {old} things", old, f"Seen are {new} things", "CD").negative.replacement == new


def test_a_part_of_a_spatial_phrase_is_judged_with_the_phrase():
    with pytest.raises(Refused, match="same thing"):
        replace("A dog next to a mat", "next", "A dog near to a mat", "IN", "relation")


@pytest.mark.parametrize(
    ("new", "reason"), [("犬", "Latin"), ("ribbit zxq", "English"), ("d\u043egs", "not an English")]
)
def test_words_that_are_not_english_are_refused(new, reason):
    with pytest.raises(Refused, match=reason):
        replace("Two cats run past a gate", "cats", f"Two {new} run past a gate", "NNS")
    with pytest.raises(Refused, match=reason):
        changed_part("A cat runs past a gate", "add_att", f"A {new} cat runs past a gate")


def test_captions_of_another_language_are_not_judged_by_english_words():
    assert replace("Ein Hund liegt auf dem Teppich", "Teppich", "Ein Hund liegt auf dem fußboden").negative
    assert replace("一 只 狗 在 桌子 上", "桌子", "一 只 狗 在 椅子 上").negative


@pytest.mark.parametrize(
    ("part", "caption", "answer", "keyword", "new"),
    [
        ("replace_obj", "A dog on a mat.", "A dog on a bed.", "mat", "bed"),
        ("replace_att", "a red dog", "a blue dog", "red", "blue"),
        ("replace_rel", "A dog on a mat", "A dog under a mat", "on", "under"),
        ("swap_obj", "A nurse photographs a farmer.", "A farmer photographs a nurse.", "nurse", "farmer"),
        ("swap_att", "A red kite above an old tent.", "An old kite above a red tent.", "red", "old"),
        ("add_att", "A desk with a lamp.", "A desk with a purple lamp.", "purple", "purple"),
        ("add_obj", "A desk with a lamp.", "A desk with a lamp and a globe.", "and a globe", "and a globe"),
        ("add_att", "two boys run", "two barefoot boys run", "barefoot", "barefoot"),
        ("add_att", "an apple on a plate", "a red apple on a plate", "red", "red"),
    ],
)
def test_the_change_that_was_asked_for(part, caption, answer, keyword, new):
    negative = changed_part(caption, part, answer).negative
    assert negative.text == answer and negative.kind == part
    assert (negative.keyword, negative.replacement) == (keyword, new)
    assert negative.category == {"obj": "object", "att": "attribute", "rel": "relation"}[part.partition("_")[2]]


@pytest.mark.parametrize(
    ("part", "caption", "answer", "reason"),
    [
        ("replace_obj", "A dog on a mat.", "A cat on a bed.", "other words changed"),
        ("replace_obj", "A dog on a mat.", "A dog on a mat", "the caption itself"),
        ("replace_obj", "A dog on a mat.", "A dog on a red mat.", "not the change"),
        ("replace_obj", "A couch", "A sofa", "same thing"),
        ("add_obj", "A dog on a mat.", "A dog on a bed.", "not the change"),
        ("add_obj", "A dog on a mat.", "A dog.", "not the change"),
        ("swap_obj", "A dog on a mat.", "A dog under a mat.", "other words changed"),
        ("swap_obj", "a dog, a cat and a mat", "a cat, a mat and a dog", "not the change"),
        ("add_obj", "A dog", "A dog with a very large hat and a red scarf", "too many words"),
    ],
)
def test_another_change_is_refused(part, caption, answer, reason):
    with pytest.raises(Refused, match=reason):
        changed_part(caption, part, answer)
