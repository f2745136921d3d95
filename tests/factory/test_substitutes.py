"""Words that replace a keyword without a model: of its group, in its form, and never the same thing."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from hfcomp.factory.substitutes.choice import MISSES, spatial_phrase, substitutes
from hfcomp.factory.substitutes.lexicon import DEFAULT_LEXICON, VERB_TAGS, default_lexicon, read_lexicon
from hfcomp.negatives.surface import rewrite
from hfcomp.parsing import cached_parser
from hfcomp.parsing.tokens import longest_text
from hfcomp.parsing.words import MAY_BE_ONE


def substitutes_for(caption: str, keyword: str, tag: str, seed: int = 0):
    start = caption.index(keyword)
    return substitutes(caption, (start, start + len(keyword)), tag, seed=seed)


def texts(caption: str, keyword: str, tag: str) -> list[str]:
    """All negatives of the keyword's group."""
    some = [substitute for substitute in substitutes_for(caption, keyword, tag) if not substitute.is_fallback]
    return [rewrite(caption, [substitute.span], [substitute.text]) for substitute in some]


@pytest.mark.parametrize(
    ("caption", "keyword", "tag", "among"),
    [
        ("A dog runs.", "dog", "NN", "A cat runs."),
        ("Dogs run.", "Dogs", "NNS", "Cats run."),
        ("a dog eats an apple", "apple", "NN", "a dog eats a banana"),
        ("a red car", "red", "JJ", "a blue car"),
        ("an orange car", "orange", "JJ", "a blue car"),
        ("A man is sitting on a bench", "sitting", "VBG", "A man is standing on a bench"),
        ("A man sits on a bench", "sits", "VBZ", "A man kneels on a bench"),
        ("Men sit on a bench", "sit", "VBP", "Men kneel on a bench"),
        ("a man holding a cup", "holding", "VBG", "a man throwing a cup"),
        ("a bowl filled with fruit", "filled", "VBN", "a bowl surrounded with fruit"),
        ("a cat under a table", "under", "IN", "a cat over a table"),
        ("a cat in front of a tree", "front", "NN", "a cat behind a tree"),
        ("a lamp to the left of a sofa", "left", "JJ", "a lamp to the right of a sofa"),
        ("a dog on top of a car", "on top of", "IN", "a dog under a car"),
        ("a man in a black suit", "in", "IN", "a man without a black suit"),
        ("two dogs", "two", "CD", "three dogs"),
        ("one dog", "one", "CD", "no dog"),
        ("one of the dogs", "one", "CD", "none of the dogs"),
        ("a red fire hydrant", "fire hydrant", "NN", "a red mailbox"),
        ("a yellow school bus", "school bus", "NN", "a yellow tram"),
        ("people on a beach", "people", "NNS", "robots on a beach"),
        ("some luggage", "luggage", "NN", "some boxes"),
        ("a wood bench", "wood", "NN", "a plastic bench"),
        ("green grass", "grass", "NN", "green sand"),
        ("A MAN ON A BENCH", "BENCH", "NN", "A MAN ON A CHAIR"),
    ],
)
def test_another_word_of_its_group_in_its_form(caption, keyword, tag, among):
    assert among in texts(caption, keyword, tag)


@pytest.mark.parametrize(
    ("caption", "keyword", "tag", "other", "among"),
    [
        ("a cat on a window sill", "window", "NN", "sill", "a cat on a door"),
        ("two chili dogs", "dogs", "NNS", "chili", "two sandwiches"),
        ("cars in a city street", "city", "NN", "street", "cars in a river"),
    ],
)
def test_a_word_of_a_compound_takes_the_compound_along(caption, keyword, tag, other, among):
    whole = texts(caption, keyword, tag)
    assert among in whole and not any(other in text for text in whole)


def test_a_noun_behind_an_article_does_not_become_a_verb():
    assert "steal" not in {
        substitute.text for substitute in substitutes_for("bears, each a different color", "color", "NN")
    }


def test_what_the_caption_names_or_may_be_the_same_is_no_substitute():
    assert "a cat and a cat" not in texts("a dog and a cat", "dog", "NN")
    assert "a boy runs" in texts("a man runs", "man", "NN") and "a person runs" not in texts("a man runs", "man", "NN")
    assert "a couch" not in texts("a sofa", "sofa", "NN")


def test_no_group_holds_two_words_for_one_thing():
    """A word and what may stand in its place, in all groups, beside the table of words that may be one."""
    lexicon = default_lexicon()
    places = [*lexicon.nouns.values(), *lexicon.adjectives.values()]
    pairs = {
        (place.base, other)
        for place in places
        if place.entry < place.group.written
        for other in place.others()
        if other in MAY_BE_ONE.get(place.base, ())
    }
    assert all(word not in {text.text for text in substitutes_for(f"a {base}", base, "NN")} for base, word in pairs)


def test_a_seed_draws_and_the_rest_of_the_order_follows():
    first = {substitutes_for("A dog runs.", "dog", "NN", seed)[0].text for seed in range(30)}
    assert len(first) > 3
    assert substitutes_for("A dog runs.", "dog", "NN", 3) == substitutes_for("A dog runs.", "dog", "NN", 3)
    some = [substitute.text for substitute in substitutes_for("A dog runs.", "dog", "NN")]
    assert len(set(some)) == len(some) > 5 and "dog" not in some


@pytest.mark.parametrize(
    ("caption", "keyword", "tag", "ending"),
    [
        ("a blorf here", "blorf", "NN", ""),
        ("two blorfs here", "blorfs", "NNS", "s|cacti|snowmen"),
        ("a blorfish dog", "blorfish", "JJ", ""),
        ("a man blorfing a dog", "blorfing", "VBG", "ing"),
        ("a man blorfs", "blorfs", "VBZ", "s|es"),
        ("a view of Blorfton", "Blorfton", "NNP", ""),
    ],
)
def test_a_word_in_no_group_gets_one_of_its_tag(caption, keyword, tag, ending):
    some = substitutes_for(caption, keyword, tag)
    assert some and all(substitute.is_fallback for substitute in some)
    assert all(substitute.text.endswith(tuple(ending.split("|"))) for substitute in some)


@pytest.mark.parametrize(
    ("caption", "keyword", "tag", "reason"),
    [
        ("赤い 犬", "犬", "NN", "not an English word"),
        ("a café", "café", "NN", "not an English word"),
        ("a 😀 dog", "😀", "NN", "not an English word"),
        ("a dog is here", "is", "VBZ", "auxiliary verb"),
        ("a dog has eaten", "has", "VBZ", "auxiliary verb"),
        ("a man about to eat", "to", "TO", "no word for its tag"),
        ("the dog", "the", "DT", "no word for its tag"),
    ],
)
def test_what_has_no_substitute_says_why(caption, keyword, tag, reason):
    assert substitutes_for(caption, keyword, tag) == reason and reason in MISSES


def test_numbers_in_digits_become_others():
    (text,) = [substitute.text for substitute in substitutes_for("a clock at 11:44", "11:44", "CD")]
    assert len(text) == 5 and text[2] == ":" and all(a != b for a, b in zip(text, "11:44", strict=True) if a != ":")


def test_spatial_phrases_are_found_around_a_word():
    caption = "a cat in front of a tree"
    assert spatial_phrase(caption, (9, 14)) == (6, 17)
    assert spatial_phrase("a front door", (2, 7)) is None


@pytest.mark.parametrize(
    ("base", "forms"),
    [
        ("run", "run run runs ran run running"),
        ("walk", "walk walk walks walked walked walking"),
        ("ride", "ride ride rides rode ridden riding"),
        ("hop", "hop hop hops hopped hopped hopping"),
        ("carry", "carry carry carries carried carried carrying"),
        ("wash", "wash wash washes washed washed washing"),
        ("play", "play play plays played played playing"),
        ("wipe out", "wipe out|wipe out|wipes out|wiped out|wiped out|wiping out"),
    ],
)
def test_verbs_are_inflected(base, forms):
    expected = forms.split("|") if "|" in forms else forms.split()
    assert [default_lexicon().inflection.verb(base, tag) for tag in VERB_TAGS] == expected


@pytest.mark.parametrize(
    ("noun", "plural"),
    [
        ("dog", "dogs"),
        ("bench", "benches"),
        ("baby", "babies"),
        ("knife", "knives"),
        ("tennis player", "tennis players"),
    ],
)
def test_nouns_are_inflected(noun, plural):
    assert default_lexicon().inflection.plural(noun) == plural


def test_another_lexicon_and_its_mistakes(tmp_path):
    path, text = tmp_path / "own.yaml", DEFAULT_LEXICON.read_text()
    path.write_text(text.replace("words: scarf, tie/necktie", "words: scarf, sari, tie/necktie"))
    own = read_lexicon(path)
    some = substitutes("a red scarf", (6, 11), "NN", lexicon=own)
    assert "sari" in {substitute.text for substitute in some}
    path.write_text(text.replace('  onto: "off"', "  onto: off"))
    with pytest.raises(ValueError, match="prepositions: onto: .*False"):
        read_lexicon(path)


@pytest.mark.skipif("HFCOMP_REAL_DATA" not in os.environ, reason="needs HFCOMP_REAL_DATA")
def test_nearly_every_word_of_real_captions_has_a_substitute():
    """Each content word of every tenth of the longest captions of COCO val2017 (about 5 s)."""
    file = Path(os.environ["HFCOMP_REAL_DATA"]) / "coco" / "captions_val2017.json"
    captions: dict[int, list[str]] = {}
    for annotation in json.loads(file.read_text())["annotations"]:
        captions.setdefault(annotation["image_id"], []).append(annotation["caption"].strip())
    longest = [longest_text(captions[image]) for image in sorted(captions)[::10]]
    outcomes: Counter[str] = Counter()
    for doc in cached_parser("rules").parse(longest):
        for token in doc:
            if token.pos_ not in ("NOUN", "PROPN", "ADJ", "NUM", "ADP", "VERB"):
                continue
            some = substitutes(doc.text, (token.idx, token.idx + len(token)), token.tag_)
            outcomes[some if isinstance(some, str) else "fallback" if some[0].is_fallback else "group"] += 1
    total = outcomes.total()
    assert (outcomes["group"] + outcomes["fallback"]) / total > 0.95 and outcomes["group"] / total > 0.9
