"""Edits that rules propose, and answers of language models as edits."""

from __future__ import annotations

import pytest

from hfcomp.annotate.captions import contains_word, is_same_caption, replacements
from hfcomp.annotate.edits import NO_MORE, Proposal, RuleProposer, read_proposal
from hfcomp.data.annotations.entries import Item
from hfcomp.factory.writers.requests import EditAnswer, Refused


def item(concept: str, *captions: str, name: str = "1") -> Item:
    return Item(f"{name}/{concept}", "ab/ab.jpg", concept, captions, ("",) * len(captions))


def proposals(source: Item, seed: int = 0) -> list[Proposal]:
    """All, attempt by attempt, until there is none."""
    offers: list[Proposal] = []
    while isinstance(proposal := RuleProposer(seed).propose([source], len(offers))[0], Proposal):
        offers.append(proposal)
    assert str(proposal) == NO_MORE
    return offers


def test_rules_propose_every_replacement_once():
    source = item("object", "Two dogs on a sofa beside a person", "A dog stop and a bus stop")
    offers = proposals(source)
    assert len(offers) == len({*offers}) == 9 + 5
    assert {proposal.original for proposal in offers} == {source.captions[0]}
    assert Proposal(source.captions[0], "Two dogs", "Two cats", "Two cats on a sofa beside a person") in offers
    assert Proposal(source.captions[0], "sofa", "chair", "Two dogs on a chair beside a person") in offers


def test_rules_depend_on_the_seed_and_the_id():
    caption = "a red wall"
    orders = [
        tuple(offer.caption for offer in proposals(item("color", caption, name=name), seed))
        for name, seed in [("1", 0), ("1", 0), ("1", 1), ("2", 0)]
    ]
    assert orders[0] == orders[1] and len({*orders}) == 3
    together = RuleProposer(0).propose([item("color", caption, name=name) for name in ("2", "1")], 0)
    assert [offer.caption for offer in together] == [orders[3][0], orders[0][0]]


def test_words_that_only_ever_replace_are_proposed_and_read():
    source = item("size", "A huge cat and a tiny dog")
    (offer,) = proposals(source)
    assert offer.caption == "A tiny cat and a tiny dog" and offer.inpaint_prompt == "tiny cat"
    answer = EditAnswer(mask="cat", paint="a tiny cat", caption=offer.caption)
    assert read_proposal(source, answer).caption == offer.caption
    assert contains_word("Tiny cats", "size", "tiny") and not contains_word("destiny", "size", "tiny")


def test_answers_are_read_as_one_of_the_edits_offered():
    source = item("object", "A bird is on a car.", "Birds and a bench")
    proposal = read_proposal(source, EditAnswer(mask="bird", paint="gray cat", caption="a cat is on a car"))
    assert proposal == Proposal("A bird is on a car.", "bird", "gray cat", "A cat is on a car.")
    for keyword in ("bird", "car"):
        for word in replacements("object", keyword):
            caption = f"A {word} is on a car." if keyword == "bird" else f"A bird is on a {word}."
            if word[0] not in "aeio":
                answer = EditAnswer(mask="x", paint=word, caption=caption)
                assert is_same_caption(read_proposal(source, answer).caption, caption)


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
    source = item("object", "A bird is on a car.")
    with pytest.raises(Refused, match="not an offered"):
        read_proposal(source, EditAnswer(mask="bird", paint="cat bench person", caption=caption))
