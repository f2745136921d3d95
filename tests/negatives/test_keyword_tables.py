"""Tables of one's own: what a YAML file may say, what is refused and how, and what permutation does with them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from hfcomp.negatives.keywords import all_keyword_permutations, keyword_negatives, negative_columns
from hfcomp.negatives.keywords.matching import EXTENDED, PAPER, Matching, find_keywords, matcher, replace_keyword
from hfcomp.negatives.keywords.tables import (
    KINDS,
    PAPER_TABLE,
    Concept,
    KeywordTable,
    Plurals,
    any_other,
    read_keyword_table,
)
from hfcomp.sandbox.captions import PLURALS, RELATIONS, SIZE_WORDS
from hfcomp.sandbox.scenes import COLORS, SHAPES

RECIPES = Path(__file__).parents[2] / "recipes" / "hard_negatives"


@pytest.fixture
def read(tmp_path):
    def table(text: str) -> KeywordTable:
        path = tmp_path / "words.yaml"
        path.write_text(text, encoding="utf-8")
        return read_keyword_table(path)

    return table


def keywords_in(caption: str, concept: str, table: KeywordTable, matching: Matching = PAPER) -> list[str]:
    return [match.keyword for match in find_keywords(caption, concept, matching, table=table)]


def test_all_three_ways_together(read):
    table = read("size:\n  any_other: [s, m, l]\n  pairs: [[tight, loose]]\n  one_way: [[oversized, fitted]]\n")
    assert table.concepts["size"].replacements == {
        "s": ("m", "l"),
        "m": ("s", "l"),
        "l": ("s", "m"),
        "tight": ("loose",),
        "loose": ("tight",),
        "oversized": ("fitted",),
    }


def test_kind_and_category_follow_the_name_or_are_given(read):
    table = read(
        "color: {any_other: [red, blue]}\n"
        "fabric: {any_other: [silk, wool], category: attribute}\n"
        "garment: {any_other: [dress, coat], category: object, kind: keyword_object}\n"
    )
    kinds = [(concept.kind, concept.category) for concept in table.concepts.values()]
    assert kinds == [("keyword_color", "attribute"), ("other", "attribute"), ("keyword_object", "object")]
    (negative,) = keyword_negatives("a silk scarf", table=table)
    assert (negative.text, negative.kind, negative.category) == ("a wool scarf", "other", "attribute")


def test_kinds_are_in_the_column_contract():
    from hfcomp.data.columns import NEGATIVE_KINDS

    assert set(KINDS) <= set(NEGATIVE_KINDS)


def test_plurals_belong_to_the_table(read):
    words = "garment:\n  any_other: [dress, scarf, jeans, silk]\n  category: object\n"
    table = read(words + "  plurals: {irregular: {scarf: scarves}, always: [jeans], never: [silk]}\n")
    assert keywords_in("two dresses, scarves", "garment", table) == []
    assert keywords_in("two dresses, scarves", "garment", table, EXTENDED) == ["dress", "scarf"]
    assert keywords_in("two dresses", "garment", read(words), EXTENDED) == []
    for caption, word, expected in [
        ("two dresses", "scarf", "two scarves"),
        ("blue jeans", "scarf", "blue scarves"),
        ("some silk", "scarf", "some scarf"),
        ("two scarves", "silk", "two silk"),
    ]:
        (match,) = find_keywords(caption, "garment", EXTENDED, table=table)
        assert replace_keyword(caption, match, word, EXTENDED, table=table) == expected


def test_plurals_true_are_the_regular_ones(read):
    table = read("shape: {any_other: [cross, star], category: object, plurals: true}\n")
    assert keyword_negatives("two crosses", table=table, matching=EXTENDED)[0].text == "two stars"
    assert keyword_negatives("two stars", table=table, matching=EXTENDED)[0].text == "two crosses"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found nothing.*mapping"),
        ("[red]", "found \\['red'\\].*mapping"),
        ("color: [red, blue]", "color: found \\['red', 'blue'\\].*mapping"),
        ("color: {}", "color: .*any_other, pairs, one_way"),
        ("color: {any_others: [a, b]}", "color: .*'any_others'.*'any_other'"),
        ("color: {any_other: []}", "color: any_other: found \\[\\],.* 2"),
        ("color: {any_other: red}", "color: any_other: found 'red'.*list"),
        ("color: {any_other: [red]}", "any_other: found \\['red'\\],.* 2"),
        ("color: {any_other: [red, blue, red]}", "any_other: word 3, 'red', already"),
        ("color: {any_other: [a, b], pairs: [[b, c]]}", "pairs: word 1, 'b', already"),
        ("location: {pairs: [[left, left]]}", "pairs: entry 1: 'left' .*itself"),
        ("location: {pairs: [[left, right, up]]}", "pairs: entry 1: .*'up'.*most 2"),
        ("location: {pairs: [left, right]}", "pairs: entry 1: found 'left'.*list"),
        ("location: {pairs: [[on, under]]}", "pairs: entry 1: entry 1: found True.*yes, no, on and off.*quotes"),
        ("location: {one_way: [[1, two]]}", "one_way: entry 1: entry 1: found 1,.* quotes"),
        ("color: {any_other: [red, null]}", "any_other: entry 2: found nothing"),
        ("color: {any_other: [Red, blue]}", "any_other: entry 1: found 'Red'.*lower"),
        ("color: {any_other: [dark  red, blue]}", "found 'dark  red'.*spaces"),
        ("color: {any_other: ['', blue]}", "any_other: entry 1: found ''"),
        ("fabric: {any_other: [silk, wool]}", "fabric: .*category.* attribute, object"),
        ("color: {any_other: [a, b], category: thing}", "category: found 'thing',.* attribute, obj"),
        ("color: {any_other: [a, b], kind: keyword_colr}", "found 'keyword_colr'.*'keyword_color'"),
        ("color: {any_other: [a, b], plurals: many}", "plurals: found 'many',.* true, .*mapping"),
        ("color: {any_other: [a, b], plurals: {odd: [a]}}", "plurals: .*'odd'.*: irregular, always"),
        ("color: {any_other: [aa, b], plurals: {always: [a]}}", "plurals: always: 'a' .*'aa'"),
        ("object: {any_other: [glass, glasses], plurals: true}", "'glasses' .*plural of 'glass'"),
        ("color: {any_other: [a, b]}\ncolor: {any_other: [c, d]}", "line 2: .*'color'.* line 1"),
        ("color: {any_other: [a, b", "line 1: not YAML: expected ',' or ']'"),
        ("yes: {any_other: [a, b]}", "found True.*in quotes"),
    ],
)  # fmt: skip
def test_what_is_refused(read, text, message):
    with pytest.raises(ValueError, match=f"words.yaml[:,] .*{message}"):
        read(text)


def test_a_word_that_yaml_takes_for_a_truth_value_may_be_quoted(read):
    table = read('location: {pairs: [["on", "off"]]}')
    assert keyword_negatives("a lamp on top", table=table)[0].text == "a lamp off top"


def test_a_concept_made_in_python_is_checked_too():
    for replacements in ({"Red": ("blue",)}, {"red": ()}, {"red": ("red", "blue")}):
        with pytest.raises(ValueError, match="keyword 'Red|keyword 'red"):
            Concept(replacements, "other", "attribute")


def test_concepts_whose_words_overlap_do_not_hide_each_other():
    """As "orange" is a color and an object: one concept's longer keyword leaves the other's shorter one in sight."""
    table = KeywordTable(
        {
            "garment": Concept(any_other(["dress shirt", "coat"]), "other", "object"),
            "part": Concept(any_other(["shirt", "collar"]), "other", "object"),
            "color": Concept(any_other(["red", "blue"]), "keyword_color", "attribute"),
        }
    )
    caption = "a red dress shirt collar"
    assert len(matcher(table.names, PAPER, table)._passes) == 2
    texts = {negative.text for negative in keyword_negatives(caption, num_negatives=99, table=table)}
    assert texts == {
        "a red coat collar",
        "a red dress collar collar",
        "a red dress shirt shirt",
        "a blue dress shirt collar",
    }
    assert keywords_in(caption, "part", table) == ["shirt", "collar"]


def test_all_functions_know_the_concepts_of_the_table_alone(read):
    table = read("fabric: {any_other: [silk, wool, felt], category: attribute}\n")
    assert keyword_negatives("a red dog", table=table) == []
    columns = negative_columns(["a wool hat", "a red hat"], table=table, num_negatives=3)
    assert set(columns["negative_captions"][0]) == {"a silk hat", "a felt hat", ""}
    assert columns["negative_captions"][1] == ["", "", ""]
    with pytest.raises(ValueError, match="'color' .*fabric"):
        keyword_negatives("a red dog", concepts=["color"], table=table)
    with pytest.raises(ValueError, match="'color'"):
        find_keywords("a red dog", "color", table=table)


def test_permutations_come_in_the_order_of_the_table(read):
    table = read("fabric: {any_other: [silk, wool, felt], pairs: [[shiny, dull]], category: attribute}\n")
    item = all_keyword_permutations("a wool hat", "fabric", table=table)
    assert (item.texts, item.target) == (("a wool hat", "a silk hat", "a felt hat"), 0)
    table = read("fabric: {any_other: [silk, wool, felt], category: attribute}\n")
    item = all_keyword_permutations("a wool hat", "fabric", table=table)
    assert (item.texts, item.target) == (("a silk hat", "a wool hat", "a felt hat"), 1)


def test_a_table_can_be_sent_to_another_process():
    copy = pickle.loads(pickle.dumps(PAPER_TABLE))
    caption = "a red dog under a car"
    assert keyword_negatives(caption, num_negatives=9, table=copy) == keyword_negatives(caption, num_negatives=9)


def test_the_same_word_for_one_and_many_is_told_by_what_stands_before():
    plurals = Plurals(irregular={"sheep": "sheep", "fish": "fish"})
    table = KeywordTable({"object": Concept(any_other(["fish", "cow"]), "keyword_object", "object", plurals)})
    assert keyword_negatives("a fish", table=table, matching=EXTENDED)[0].text == "a cow"
    assert keyword_negatives("many fish", table=table, matching=EXTENDED)[0].text == "many cows"


# The tables that ship


def test_the_sandbox_table_has_the_words_of_its_captions():
    table = read_keyword_table(RECIPES / "sandbox_keywords.yaml")
    concepts = {name: set(concept.replacements) for name, concept in table.concepts.items()}
    assert concepts["object"] == set(SHAPES) and concepts["color"] == set(COLORS)
    assert concepts["size"] == {word for words in SIZE_WORDS.values() for word in words}
    relations = {word for phrases in RELATIONS.values() for phrase in phrases for word in phrase.split()}
    assert concepts["location"] == relations - {"of", "to", "the"}
    for shape, plural in PLURALS.items():
        assert table.concepts["object"].plurals.plural_of(shape) == plural


def test_size_and_place_of_the_sandbox_become_the_opposite_in_the_same_wording():
    table = read_keyword_table(RECIPES / "sandbox_keywords.yaml")
    for first, second in [*zip(SIZE_WORDS["small"], SIZE_WORDS["large"], strict=True), ("over", "under")]:
        concept = "location" if first == "over" else "size"
        assert table.concepts[concept].replacements[first] == (second,)
        assert table.concepts[concept].replacements[second] == (first,)


def test_the_fashion_table_reads_fashion_captions():
    table = read_keyword_table(RECIPES / "fashion_keywords.yaml")
    caption = "black sleeveless floral print maxi dress"
    names = {name: keywords_in(caption, name, table) for name in table.concepts}
    assert names == {
        "garment": ["maxi dress"],
        "color": ["black"],
        "pattern": ["floral"],
        "cut": ["sleeveless"],
        "size": [],
    }


@pytest.mark.parametrize("name", ["sandbox", "fashion"])
def test_articles_fit_the_first_letter_of_every_word_that_ships(name):
    table = read_keyword_table(RECIPES / f"{name}_keywords.yaml")
    words = {
        word for concept in table.concepts.values() for others in concept.replacements.values() for word in others
    }
    assert not [word for word in words if word.startswith(("uni", "one", "eu", "hour", "honest"))]
