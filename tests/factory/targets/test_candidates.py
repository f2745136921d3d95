"""Which words of a caption can be targets, in which category and with which rating."""

from __future__ import annotations

import pytest

from hfcomp.factory.targets.candidates import KEPT, find_candidates
from hfcomp.negatives.concreteness import ConcretenessRatings
from hfcomp.parsing import cached_parser
from hfcomp.parsing.rules.tags import UNIVERSAL
from tests.parsing.pipelines import gold, train_pipeline

# Invented numbers; the published ones may not be shipped.
RATINGS = ConcretenessRatings(
    {
        **{"dog": 4.5, "dogs": 4.9, "fire": 4.0, "fire hydrant": 4.8, "man": 4.7, "red": 4.2, "two": 4.1, "park": 4.6},
        **{"hold": 3.6, "holding": 3.7, "under": 3.4, "on": 3.2, "front": 3.8, "next": 2.5, "table": 4.8, "sit": 3.5},
        **{"hot dog": 4.8, "hot": 4.3, "umbrella": 4.95, "t-shirt": 4.8, "car": 4.85, "tennis": 4.4, "phone": 4.9},
        **{"cell phone": 4.97, "pick": 3.1, "ball": 4.88, "wii": 4.0, "top": 3.9, "hydrant": 4.7, "side": 3.6},
    }
)


def candidates_in(caption: str, ratings=RATINGS, **settings):
    doc = next(iter(cached_parser("rules").parse([caption])))
    candidates = find_candidates(doc, ratings, **settings)
    for candidate in candidates:
        assert caption[slice(*candidate.span)] == candidate.keyword
    return candidates


def short(caption: str, **settings):
    return {
        candidate.keyword: (candidate.category, candidate.rated_word, candidate.tag)
        for candidate in candidates_in(caption, **settings)
    }


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("Two red dogs.", {"Two": ("attribute", "two", "CD"), "red": ("attribute", "red", "JJ")}),
        ("Two red dogs.", {"dogs": ("object", "dogs", "NNS")}),  # the surface before the lemma
        ("red tables in a park", {"tables": ("object", "table", "NNS")}),
        ("A man holding an umbrella.", {"holding": ("relation", "holding", "VBG")}),
        ("A man holds an umbrella.", {"holds": ("relation", "hold", "VBZ")}),
        ("A dog sits in the park.", {"sits": ("attribute", "sit", "VBZ")}),
        ("A car parked in the street.", {"parked": ("attribute", "park", "VBN")}),
        ("A dog under a table.", {"under": ("relation", "under", "IN")}),
        ("A dog in front of a car.", {"in front of": ("relation", "front", "IN")}),
        ("A dog on the left side of a car.", {"on the left side of": ("relation", "side", "IN")}),
        ("A dog next to a car.", {"next to": ("relation", "next", "IN")}),
        ("A man with a hot dog.", {"hot dog": ("object", "hot dog", "NN")}),
        ("A man in a t-shirt.", {"t-shirt": ("object", "t-shirt", "NN")}),
        ("A wii on a table", {"wii": ("object", "wii", "NN")}),
    ],
)
def test_a_candidate_has_its_category_its_entry_and_its_tag(caption, expected):
    candidates = short(caption)
    assert {word: candidates.get(word) for word in expected} == expected


@pytest.mark.parametrize(
    ("caption", "absent"),
    [
        ("A group of dogs.", "group"),
        ("A photo of a dog.", "photo"),
        ("A dog in the middle of a park.", "middle"),
        ("Many dogs in a park.", "Many"),
        ("A dog runs in the park.", "runs"),  # an action without an object: the paper has no category for it
        ("A man has an umbrella.", "has"),
        ("A man looks at a dog.", "at"),
        ("A park at night.", "night"),
        ("A man's dog.", "man"),
        ("A car covered by dogs.", "by"),
        ("A piece of cake and a herd of cows.", "piece"),
        ("A piece of cake and a herd of cows.", "herd"),
    ],
)
def test_words_that_cannot_change_are_no_candidates(caption, absent):
    assert absent not in short(caption, prepositions="all")


@pytest.mark.parametrize(
    ("caption", "kept", "absent"),
    [
        ("A group of dogs.", {"group": "object"}, ()),
        ("A photo of a dog.", {"photo": "object"}, ()),
        ("Many dogs in a park.", {"Many": "attribute"}, ()),
        ("A man has an umbrella.", {"has": "relation"}, ()),
        ("A dog runs in the park at night.", {"night": "object"}, ("runs", "A", "the")),
    ],
)
def test_all_words_of_the_papers_parts_of_speech_are_candidates_on_request(caption, kept, absent):
    candidates = short(caption, words="all")
    assert {word: candidates[word][0] for word in kept} == kept and not candidates.keys() & set(absent)


@pytest.mark.parametrize(
    ("lookup", "expected"),
    [("word_first", {"fire": "fire", "hydrant": "hydrant"}), ("expression_first", {"fire hydrant": "fire hydrant"})],
)
def test_the_order_of_words_and_expressions_is_a_setting(lookup, expected):
    assert {
        candidate.keyword: candidate.rated_word for candidate in candidates_in("a fire hydrant", lookup=lookup)
    } == expected


COMPOUNDS = ConcretenessRatings(
    dict.fromkeys(("coffee", "mug", "cutting", "board", "black", "tie", "drinking", "water", "for", "sale"), 4.0)
    | dict.fromkeys(("coffee mug", "cutting board", "black tie", "drinking water", "for sale"), 5.0)
)


@pytest.mark.parametrize(
    ("caption", "whole", "apart"),
    [
        ("A woman holding two coffee mugs.", ["coffee mugs"], []),
        ("Bread on a marble cutting board.", ["cutting board"], []),
        ("A man in a black tie.", [], ["black", "tie"]),
        ("An elephant drinking water.", [], ["drinking", "water"]),
        ("A bus for sale.", [], ["sale"]),
    ],
)
def test_compounds_with_an_entry_are_whole_by_default(caption, whole, apart):
    keywords = [candidate.keyword for candidate in candidates_in(caption, COMPOUNDS)]
    assert set(whole + apart) <= set(keywords)
    assert [keyword for keyword in keywords if " " in keyword] == whole


def test_an_unrated_word_is_looked_up_as_part_of_its_expression():
    assert {candidate.keyword: candidate.rated_word for candidate in candidates_in("a cell phone")} == {
        "cell phone": "cell phone"
    }
    plural = ConcretenessRatings({"cell phone": 4.9})
    assert [
        candidate.rated_word
        for candidate in candidates_in("two cell phones", plural)
        if candidate.category == "object"
    ] == ["cell phone"]
    assert [candidate.keyword for candidate in candidates_in("two cell phones", plural) if candidate.rating] == [
        "cell phones"
    ]


def test_general_prepositions_are_relations_on_request():
    assert "on" not in short("A dog on a table.") and "under" in short("A dog under a table.")
    assert short("A dog on a table.", prepositions="all")["on"] == ("relation", "on", "IN")


def test_a_preposition_without_a_noun_behind_it_is_no_relation():
    doc = gold("a dog looks under", "DT NN VBZ IN", "1 2 2 2", "det nsubj ROOT prep")
    assert not [candidate for candidate in find_candidates(doc, RATINGS) if candidate.category == "relation"]


def test_a_verb_needs_a_subject_and_an_object_to_be_a_relation():
    assert "holding" not in short("Holding an umbrella.")
    joined = gold(
        "a man sits and holds a dog", "DT NN VBZ CC VBZ DT NN", "1 2 2 2 2 6 4", "det nsubj ROOT cc conj det dobj"
    )
    assert ("holds", "relation") in [
        (candidate.keyword, candidate.category) for candidate in find_candidates(joined, RATINGS)
    ]


def test_what_was_done_to_a_noun_is_no_relation_to_the_noun_behind():
    before = gold("snow covered mountains", "NN VBN NNS", "1 1 1", "nsubj ROOT dobj", "snow cover mountain")
    perfect = gold(
        "a man has covered dogs", "DT NN VBZ VBN NNS", "1 3 3 3 3", "det nsubj aux ROOT dobj", "a man have cover dog"
    )
    for doc, is_relation in ((before, False), (perfect, True)):
        relations = [
            candidate.keyword for candidate in find_candidates(doc, RATINGS) if candidate.category == "relation"
        ]
        assert relations == (["covered"] if is_relation else [])


@pytest.mark.parametrize(
    ("verb", "tag", "lemma", "is_there"),
    [("parked", "VBN", "park", True), ("sitting", "VBG", "sit", True), ("running", "VBG", "run", False)],
)
def test_a_participle_before_its_noun_is_an_attribute_if_it_is_a_state(verb, tag, lemma, is_there):
    doc = gold(f"a {verb} dog", f"DT {tag} NN", "2 2 2", "det amod ROOT", f"a {lemma} dog")
    candidates = {candidate.keyword: candidate.category for candidate in find_candidates(doc, RATINGS)}
    assert candidates.get(verb) == ("attribute" if is_there else None)


def test_without_a_rating_a_candidate_stays_and_says_so():
    plain = {candidate.keyword: candidate.rating for candidate in candidates_in("A zorb under a dog.")}
    assert plain == {"zorb": None, "under": 3.4, "dog": 4.5}
    assert all(
        candidate.rating is None and candidate.rated_word == ""
        for candidate in candidates_in("A dog under a table.", None)
    )


def test_candidates_do_not_overlap_and_stand_in_order():
    for caption in ("a red fire hydrant in front of a cell phone shop, next to two hot dogs", "hot dogs hot dogs"):
        for lookup in ("word_first", "expression_first"):
            spans = [candidate.span for candidate in candidates_in(caption, lookup=lookup)]
            assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:], strict=False))


@pytest.mark.parametrize(
    "caption",
    [
        "",
        " \n",
        "!!! ... ,",
        "犬が公園で走る",
        "собака в парке",
        "🐶 🐱",
        "in front of",
        "next to",
        "of of of of",
        "-" * 30,
        "a-b-c- -d",
    ],
)
def test_no_caption_is_a_crash(caption):
    for lookup in ("word_first", "expression_first"):
        candidates_in(caption, lookup=lookup, prepositions="all")


def test_unknown_settings_are_named():
    with pytest.raises(ValueError, match="lookup: found 'both', expected one of word_first, expression_first"):
        candidates_in("a dog", lookup="both")


def test_a_spacy_pipeline_gives_the_same_kinds_of_candidates(tmp_path):
    train_pipeline(tmp_path / "pipeline")
    caption = "a red dog chases a cat near a blue house"
    doc = next(iter(cached_parser(f"spacy:{tmp_path / 'pipeline'}").parse([caption])))
    candidates = {
        candidate.keyword: (candidate.category, candidate.tag) for candidate in find_candidates(doc, RATINGS)
    }
    assert candidates == {
        "red": ("attribute", "JJ"),
        "dog": ("object", "NN"),
        "chases": ("relation", "VBZ"),
        "cat": ("object", "NN"),
        "near": ("relation", "IN"),
        "blue": ("attribute", "JJ"),
        "house": ("object", "NN"),
    }


def test_the_kept_parts_of_speech_are_those_of_the_paper():
    assert set(KEPT) == {"NOUN", "PROPN", "ADJ", "NUM", "ADP", "VERB"}
    assert set(KEPT) <= set(UNIVERSAL.values())
