"""Negatives drawn in turn and filtered, whatever rows are beside a caption (about 4 s)."""

from __future__ import annotations

import random

import pytest
from datasets import Dataset

from hfcomp.factory.round_robin import MOST_PROPOSALS, Proposals, Row
from hfcomp.factory.shards import COUNTS, ROW, SET_ASIDE
from hfcomp.factory.text_negatives import NO_NEGATIVE, TextNegatives, check_kinds, make_captions
from hfcomp.negatives.filters import has_same_words
from hfcomp.negatives.keywords import keyword_negatives
from hfcomp.negatives.negative import COLUMN_NAMES, Negative
from hfcomp.parsing import cached_parser
from tests.negatives import language_models

CAPTIONS = [
    "a red dog on a blue bench",
    "a man riding a horse next to a car",
    "hello",
    "😀 a dog 🐕 and a red cat",
    "an orange",
    "a man riding a horse next to a car",
    "日本の赤い犬",
]
LONG = " ".join(["a small dog and a cat"] * 50)


def negative(text: str) -> Negative:
    return Negative(text, "other", "a", "b", "object", ((0, 1),))


def make_negatives(captions=CAPTIONS, **settings):
    """Texts and kinds of each row, without masked ones."""
    settings = {"kinds": ["keyword"], "num_negatives": 3} | settings
    columns = TextNegatives(**settings)({"caption": list(captions)})
    pairs = zip(columns["negative_captions"], columns["negative_kinds"], strict=True)
    return [[(text, kind) for text, kind in zip(*row, strict=True) if text] for row in pairs], columns


@pytest.fixture(scope="module")
def fill_model(tmp_path_factory) -> str:
    liked = {"Ġdog": 0.0, "Ġcat": -1.0, "Ġhorse": -1.5, "Ġred": -2.0, "Ġblue": -2.0, "Ġbench": -3.0}
    return str(language_models.roberta(tmp_path_factory.mktemp("models") / "fill", liked))


@pytest.fixture(scope="module")
def everything(fill_model) -> dict:
    return {"kinds": ["keyword", "swap", "mask"], "parser": "rules", "fill_model": fill_model, "device": "cpu"}


def test_kinds_come_in_turn_and_make_up_for_each_other():
    row = Row("x", [Proposals([negative(t) for t in texts], 9) for texts in (["a1", "a2", "a3"], [], ["c1", "a2"])])
    assert row.choose(4) is None
    assert [entry.text for entry in row.chosen] == ["a1", "c1", "a2", "a3"] and row.duplicates == 1


def test_what_was_dropped_is_made_up_by_its_own_kind():
    row = Row("x", [Proposals([negative("a1"), negative("a2")], 9), Proposals([negative("b1")], 9)])
    row.verdicts["a1"] = "grammar"
    row.choose(2)
    assert [entry.text for entry in row.chosen] == ["a2", "b1"]


def test_a_generator_is_asked_for_more_only_where_it_has_more():
    assert Row("x", [Proposals([negative("a1")], 1), Proposals([negative("b1")], 1)]).choose(2) is None
    assert Row("x", [Proposals([negative("a1")], 1), Proposals([], 1)]).choose(2) == 0
    assert Row("x", [Proposals([negative("a1")], 2), Proposals([], 1)]).choose(2) is None
    assert Proposals([negative("a1")], 3).next_number(9) == 6 and Proposals().next_number(9) == 9
    assert Proposals([negative("x")] * MOST_PROPOSALS, MOST_PROPOSALS).is_exhausted


def test_one_kind_alone_gives_what_its_generator_gives():
    rows, _ = make_negatives()
    assert [[text for text, _ in row] for row in rows] == [
        [entry.text for entry in keyword_negatives(caption, num_negatives=3)] for caption in CAPTIONS
    ]


def test_all_kinds_in_turn(everything):
    rows, columns = make_negatives([*CAPTIONS, LONG], **everything)
    assert [kind for _, kind in rows[0]] == ["keyword_color", "swap_obj", "mask_noun"]
    assert rows[1] == rows[5] and rows[2] == rows[6] == []
    assert columns["negative_captions"][2] == ["", "", ""] and columns["negative_spans"][2] == [[], [], []]
    for caption, row in zip([*CAPTIONS, LONG], rows, strict=True):
        assert len({text for text, _ in row}) == len(row) and caption not in [text for text, _ in row]
    assert rows[3][0][0].startswith("😀 a ") and len(rows[7]) == 3


def test_rows_beside_a_caption_change_nothing(everything):
    rows, _ = make_negatives(**everything)
    order = random.Random(0).sample(range(len(CAPTIONS)), len(CAPTIONS))
    shuffled, _ = make_negatives([CAPTIONS[place] for place in order], **everything)
    assert shuffled == [rows[place] for place in order]
    assert make_negatives(CAPTIONS[3:4], **everything)[0] == rows[3:4]


def test_fewer_are_the_first_of_more_also_behind_a_filter(everything):
    settings = everything | {"checks": [drop_every_third]}
    most, _ = make_negatives(num_negatives=6, **settings)
    for number in (1, 4):
        assert make_negatives(num_negatives=number, **settings)[0] == [row[:number] for row in most]


def drop_every_third(batch, places, texts):
    return ["third" if sum(map(ord, text)) % 3 == 0 else None for text in texts]


def test_drops_are_made_up_and_counted():
    rows, columns = make_negatives(checks=[drop_every_third], num_negatives=5, kinds=["keyword:object"])
    kept = [text for row in rows for text, _ in row]
    assert kept and not any(sum(map(ord, text)) % 3 == 0 for text in kept)
    assert len(rows[0]) == 5  # of 158 for two objects
    total = sum(count["dropped: third"] for count in columns[COUNTS])
    assert total > 0 and sum(count["negatives: keyword_object"] for count in columns[COUNTS]) == len(kept)
    assert [count["captions: without a negative"] for count in columns[COUNTS]] == [not row for row in rows]


def test_a_filter_that_drops_all_ends():
    rows, columns = make_negatives(
        checks=[lambda batch, places, texts: ["never"] * len(texts)], kinds=["keyword:object"]
    )
    assert not any(rows)
    assert columns[COUNTS][0]["dropped: never"] == MOST_PROPOSALS


def test_swaps_are_flagged_and_dropped_on_request(everything):
    settings = everything | {"kinds": ["swap"]}
    rows, columns = make_negatives(**settings)
    assert rows[0] and all(has_same_words(CAPTIONS[0], text) for text, _ in rows[0])
    assert columns[COUNTS][0]["flagged: the caption's words in another order"] == len(rows[0])
    rows, columns = make_negatives(drop_same_words=True, **settings)
    assert rows[0] == [] and columns[COUNTS][0]["dropped: same_words"] > 0


def test_broken_grammar_is_dropped(tmp_path):
    sentences = [caption for caption in CAPTIONS[:2] for _ in range(4)]
    model = str(language_models.gpt2(tmp_path / "gpt2", sentences, noise=0.02, steps=30))
    settings = {"kinds": ["keyword:color"], "num_negatives": 2, "grammar_model": model, "device": "cpu"}
    strict, columns = make_negatives(CAPTIONS[:1], grammar_tolerance=0.0, **settings)
    assert strict == [[]] and columns[COUNTS][0]["dropped: grammar"] == 16
    assert len(make_negatives(CAPTIONS[:1], grammar_tolerance=100.0, **settings)[0][0]) == 2


def test_keywords_of_your_own(tmp_path):
    table = tmp_path / "fruit.yaml"
    table.write_text("fruit: {any_other: [apple, pear], category: object}")
    settings = {"keyword_table": str(table), "kinds": ["keyword:fruit"]}
    assert make_negatives(["an apple"], **settings)[0] == [[("an pear", "other")]]
    assert make_negatives(["An apple"], keyword_matching="extended", **settings)[0] == [[("A pear", "other")]]


def test_what_only_looks_like_a_negative_is_dropped_and_counted(tmp_path):
    table = tmp_path / "spelling.yaml"
    table.write_text('spelling: {one_way: [["caf\\u00e9", "cafe\\u0301"], [bar, pub]], category: object}')
    rows, columns = make_negatives(["a bar in a café", "a café"], keyword_table=str(table))
    assert rows == [[("a pub in a café", "other")], []]
    assert [count["dropped: same_sentence"] for count in columns[COUNTS]] == [1, 1]


def test_rows_without_a_negative_can_be_set_aside():
    _, columns = make_negatives(["a dog", "hello"], only_with_negative=True)
    assert columns[SET_ASIDE] == [None, NO_NEGATIVE]
    assert SET_ASIDE not in make_negatives(["a dog", "hello"])[1]


def test_it_maps_over_a_data_set():
    dataset = Dataset.from_dict({"caption": CAPTIONS})
    stage = TextNegatives(kinds=["keyword"], num_negatives=2)
    mapped = dataset.map(stage, batched=True, batch_size=3, remove_columns="caption")
    expected = stage({"caption": CAPTIONS})
    assert all(mapped[name][:] == expected[name] for name in COLUMN_NAMES)


def test_the_longest_caption_or_all():
    batch = {"caption": [["one two", "a b c", "d e f"], ["x", None, " "], [], None], ROW: [5, 6, 7, 8]}
    longest = make_captions(which="longest")(batch)
    assert longest["caption"] == ["a b c", "x", "", ""] and longest[ROW] == [5, 6, 7, 8]
    assert longest[SET_ASIDE] == [None, None, "no caption", "no caption"]
    every = make_captions(which="all")(batch)
    assert every["caption"] == ["one two", "a b c", "d e f", "x", "", ""] and every[ROW] == [5, 5, 5, 6, 7, 8]


def test_one_caption_that_is_too_long_leaves_the_others():
    batch = {"caption": [["a dog runs", "x " * 3000], ["x " * 3000]], ROW: [0, 1]}
    columns = make_captions(which="longest")(batch)
    assert columns["caption"][0] == "a dog runs" and columns[SET_ASIDE][0] is None
    assert columns[SET_ASIDE][1].startswith("caption too long: ")
    assert columns[COUNTS] == [{"captions: passed over, caption too long": 1}, {}]


def test_plain_captions_stay_as_they_are():
    columns = make_captions(which="longest")({"caption": [" a dog\n", "", "  ", None], ROW: [0, 1, 2, 3]})
    assert columns["caption"][0] == " a dog\n" and columns[SET_ASIDE] == [None, *["no caption"] * 3]


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ([], "kinds: found "),
        ("keyword", "kinds: found 'keyword'"),
        (["keywords"], r"'keywords'.*'keyword'.*: keyword, swap, mask"),
        (["keyword:colr"], r"'colr' .*'keyword'.*'color'"),
        (["swap:noun"], r"'noun' .*'swap'.*'nouns'"),
        (["mask:"], "'mask:': '' .*'mask'"),
        (["swap", "swap"], "'swap' .*twice"),
    ],
)
def test_kinds_are_checked(kinds, message):
    with pytest.raises(ValueError, match=message):
        check_kinds(kinds)


def test_a_parser_that_is_missing_is_never_replaced():
    cached_parser.cache_clear()
    with pytest.raises(OSError, match="spacy download en_core_web_none"):
        TextNegatives(kinds=["swap"], parser="spacy:en_core_web_none")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_negatives": 0}, "num_negatives: found 0,.* 1 "),
        ({"swap_rule": "loose"}, "swap_rule: found 'loose', expected one of guarded, plain"),
        ({"keyword_matching": "loose"}, "keyword_matching: found 'loose',.* paper, extended"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        TextNegatives(**({"kinds": ["keyword"]} | settings))
