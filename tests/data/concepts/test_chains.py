"""Chains of texts and their drawn negatives: what is a link, who is a sibling, that draws stay. Under 1 second."""

import pytest

from hfcomp.data.concepts.chains import chain_of, draw_negatives

COLUMNS = ("level_3", "level_2", "level_1")
ROWS = [
    ("animal", "dog", "wet dog"),
    ("animal", "dog", "dry dog"),
    ("animal", "cat", "wet cat"),
    ("plant", "tree", "old tree"),
    ("plant", "Tree ", "old tree"),
]


def chains(rows):
    return [chain_of(row, COLUMNS, index) for index, row in enumerate(rows)]


def draw_chains(rows, seed=0):
    return draw_negatives(chains(rows), columns=3, seed=seed)


def test_empty_texts_and_repetitions_are_no_links():
    assert chain_of((" animal", "Animal", ["dog"]), COLUMNS, 0) == [(0, "animal"), (2, "dog")]
    assert chain_of((None, "", "dog"), COLUMNS, 0) == [(2, "dog")]


@pytest.mark.parametrize("value", [3, ["dog", "cat"]])
def test_what_is_no_text_is_named(value):
    with pytest.raises(ValueError, match="'level_2', row 7: found .*text"):
        chain_of(("animal", value, "wet dog"), COLUMNS, 7)


def test_siblings_share_the_text_before_them():
    chain_set = draw_chains(ROWS)
    assert chain_set.texts[0] == ["plant", "cat", "dry dog"]
    assert chain_set.texts[1] == ["plant", "cat", "wet dog"]
    # the only wet cat and the only tree have no sibling
    assert chain_set.texts[2][:2] == ["plant", "dog"] and chain_set.texts[2][2] in {"wet dog", "dry dog", "old tree"}
    assert chain_set.texts[3][0] == "animal" and chain_set.texts[3][1] in {"dog", "cat"}
    assert (chain_set.siblings, chain_set.others, chain_set.missing) == (5 + 2 + 3, 5, 0)
    assert "10 share the previous text, 5 share only the level, and 0 texts" in chain_set.summary()


def test_a_chain_is_not_contradicted_by_its_own_texts():
    rows = [("animal", "dog", "wet"), ("wet", "dog", "animal"), ("animal", "dog", "dry")]
    for seed in range(5):
        texts = draw_chains(rows, seed).texts
        assert texts[0] == ["", "", "dry"]
        assert texts[1] == ["", "", "dry"]


def test_draws_stay_and_follow_the_seed():
    rows = [("animal", f"kind {number}", f"one of kind {number}") for number in range(50)]
    assert draw_chains(rows).texts == draw_chains(rows).texts != draw_chains(rows, 1).texts
    assert draw_chains(rows[:1]).texts == [["", "", ""]] and draw_chains(rows[:1]).missing == 3
