"""Edits that rules propose, and answers of language models as edits."""

from __future__ import annotations

import pytest

from hfcomp.annotate.captions import contains_word, is_same_caption, replacements
from hfcomp.annotate.edits import NO_MORE, Proposal, RuleProposer, read_proposal
from hfcomp.data.annotations.entries import Item
from hfcomp.factory.writers.requests import EditAnswer, Refused


def item(concept: str, *captions: str, name: str = "1") -> Item:
    return Item(f"{name}/{concept}", "ab/ab.jpg", concept, captions, ("",) * len(captions))


def proposals(one: Item, seed: int = 0) -> list[Proposal]:
    """All, attempt by attempt, until there is none."""
    found: list[Proposal] = []
    while isinstance(proposal := RuleProposer(seed).propose([one], len(found))[0], Proposal):
        found.append(proposal)
    assert str(proposal) == NO_MORE
    return found


def test_rules_propose_every_replacement_once():
    one = item("object", "Two dogs on a sofa beside a person", "A dog stop and a bus stop")
    found = proposals(one)
    assert len(found) == len({*found}) == 9 + 5
    assert {proposal.original for proposal in found} == {one.captions[0]}
    assert Proposal(one.captions[0], "Two dogs", "Two cats", "Two cats on a sofa beside a person") in found
    assert Proposal(one.captions[0], "sofa", "chair", "Two dogs on a chair beside a person") in found


def test_rules_depend_on_the_seed_and_the_id():
    caption = "a red wall"
    orders = [
        tuple(one.caption for one in proposals(item("color", caption, name=name), seed))
        for name, seed in [("1", 0), ("1", 0), ("1", 1), ("2", 0)]
    ]
    assert orders[0] == orders[1] and len({*orders}) == 3
    together = RuleProposer(0).propose([item("color", caption, name=name) for name in ("2", "1")], 0)
    assert [one.caption for one in together] == [orders[3][0], orders[0][0]]


def test_words_that_only_ever_replace_are_proposed_and_read():
    one = item("size", "A huge cat and a tiny dog")
    (found,) = proposals(one)
    assert found.caption == "A tiny cat and a tiny dog" and found.inpaint_prompt == "tiny cat"
    answer = EditAnswer(mask="cat", paint="a tiny cat", caption=found.caption)
    assert read_proposal(one, answer).caption == found.caption
    assert contains_word("Tiny cats", "size", "tiny") and not contains_word("destiny", "size", "tiny")


def test_answers_are_read_as_one_of_the_edits_offered():
    one = item("object", "A bird is on a car.", "Birds and a bench")
    found = read_proposal(one, EditAnswer(mask="bird", paint="gray cat", caption="a cat is on a car"))
    assert found == Proposal("A bird is on a car.", "bird", "gray cat", "A cat is on a car.")
    for keyword in ("bird", "car"):
        for word in replacements("object", keyword):
            caption = f"A {word} is on a car." if keyword == "bird" else f"A bird is on a {word}."
            if word[0] not in "aeio":
                answer = EditAnswer(mask="x", paint=word, caption=caption)
                assert is_same_caption(read_proposal(one, answer).caption, caption)


@pytest.mark.parametrize(
    "caption",
    [
        "A bench is on a car.",
        "A person is on a car.",
        "A wolf is on a car.",
        "A cat is on a bus.",
        "A cat sits on a car.",
    ],
)
def test_objects_of_other_super_categories_and_further_changes_are_refused(caption):
    one = item("object", "A bird is on a car.")
    with pytest.raises(Refused, match="not an offered"):
        read_proposal(one, EditAnswer(mask="bird", paint="cat bench person", caption=caption))
