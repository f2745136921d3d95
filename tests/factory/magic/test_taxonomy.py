"""Concepts by the words of captions."""

from __future__ import annotations

import pytest

from hfcomp.factory.magic.source import canonical_name
from hfcomp.factory.magic.taxonomy import EVERYDAY, NO_WORD, TaxonomySource, generalized_captions
from hfcomp.parsing.captions import caption_problem

TREE = """
activity:
  event:
    celebration:
      birthday party: [candle, birthday cake]
      wedding: [bride]
    meal:
      cake: [dessert]
      wedding: [bride]
thing:
  animal:
    pet:
      dog: [puppy]
      cat: [kitten]
"""


@pytest.fixture
def source(tmp_path) -> TaxonomySource:
    (tmp_path / "mine.yaml").write_text(TREE)
    return TaxonomySource(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("captions", "concept"),
    [
        (["Candles on a table", "A dog", "two candles"], "birthday party"),
        (["a Birthday cake with a candle"], "birthday party"),
        (["a cake", "dessert"], "cake"),
        (["a birthday cake"], "birthday party"),  # the phrase wins over the cake in it
        (["a dog and a cat"], "dog"),  # the first of the file
        (["a cat", "a dog and a cat"], "cat"),
        (["puppies"], "dog"),
        (["dogs", "dog", "cats and kittens", "kitten"], "cat"),  # as many captions, more words
    ],
)
def test_the_concept_is_in_the_most_captions(source, captions, concept):
    (proposal,) = source.concepts([captions])
    assert proposal.texts == (concept,)


def test_images_without_a_word_have_a_reason(source):
    proposals = source.concepts([["nothing here"], ["hotdog"], ["catalogue"]])
    assert {proposal.texts for proposal in proposals} == {()} and {proposal.refused for proposal in proposals} == {
        (NO_WORD,)
    }


def test_a_concept_in_two_places_has_two_parents(source):
    proposals = source.parents(1, ["wedding", "dog", "unheard of"], [])
    assert [proposal.texts for proposal in proposals] == [("celebration", "meal"), ("pet",), ()]
    assert source.parents(3, ["event"], [])[0].texts == ("activity",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {b: {c: [x]}}", "a"),
        ("a: {b: {c: {'one, two': [x]}}}", "'one, two' .*concept"),
        ("a: {b: {c: {A: [x]}}}", "'[aA]' .*two levels"),
        ("a: {b: {c: {d: ['...']}}}", "found '...', expected words"),
        ("a: [", "not YAML"),
    ],
)
def test_a_file_that_is_no_taxonomy_is_refused_with_its_place(tmp_path, text, said):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ValueError, match=said) as error:
        TaxonomySource(tmp_path / "bad.yaml")
    assert "bad.yaml" in str(error.value)


def test_everyday_concepts_have_a_chain_of_four_names():
    source = TaxonomySource(EVERYDAY)
    names = list(source._places)
    assert len(names) > 200
    for name in names:
        chain = [name]
        for level in (1, 2, 3):
            chain.append(source.parents(level, chain[-1:], [])[0].texts[0])
        assert len({*chain}) == 4 and all(canonical_name(name) == name for name in chain)


def test_generalized_captions_leave_details_out():
    captions = ["Two small brown dogs running in a green park.", "dogs running", "Two dogs running through a park"]
    assert generalized_captions(captions, ("dog", "pet", "animal", "thing")) == ("dogs running",)
    assert generalized_captions(captions[:2] * 2, ("x",), 3) == ("dogs running", "dogs running in a park")
    sentence = generalized_captions(["An old man rides a very big red bike on the street"], ("x",))
    assert sentence == ("A man rides a bike",)
    for text, expected in {
        "A close up of a red knife": "A close up of a knife",
        "A red double-decker bus": "A double-decker bus",
        "A red Boeing 747 flying": "A Boeing 747 flying",
        'A big sign with "Pub" on it': 'A sign with "Pub"',
        "A plate , some red beans": "A plate, some beans",
    }.items():
        assert generalized_captions([text], ("x",)) == (expected,)
    assert generalized_captions(["Dogs"], ("dog", "pet", "animal", "thing")) == ("there is Dogs",)
    for text in ("red", "!", "the very old", "x" * 900):
        assert caption_problem(generalized_captions([text], ("y",))[0]) is None
