"""Concepts as tokens of their caption: the letters that are marked, truncation, what a row may say. 2 seconds."""

from __future__ import annotations

import re

import pytest
import torch
from datasets import Dataset, Features

from hfcomp.data.columns import CONCEPT_FEATURES
from hfcomp.data.concepts.spans import Concept, tokens_of, with_spans, word_places
from hfcomp.data.row_values import text_key
from tests.data.test_collators import collator_for, row, tokenizer_of

FOLDERS = ("clip", "metaclip2", "siglip", "siglip2")
# the tiny Gemma tokenizer has tokens of several words
ONE_WORD_A_TOKEN = FOLDERS[:3]
CAPTION = "A Red T-shirt, a black-and-white DOG (on) a red t-shirt!"


def spans_of(caption: str, *phrases: str) -> list[Concept]:
    """Concepts at the places of phrases, each searched behind the start of the one before."""
    concepts, place = [], 0
    for phrase in phrases:
        place = caption.index(phrase, place)
        concepts.append(Concept(phrase, [(place, place + len(phrase))]))
        place += 1
    return concepts


def mark_tokens(tokenizer, caption: str, concepts: list[Concept]) -> list[tuple[str, bool]]:
    """The letters of the tokens that each concept has, and whether all of it is there."""
    (ids,), _ = tokenizer([caption])
    (places,) = tokenizer.places([caption])
    assert len(places.tokens) == len(ids)
    special = (tokenizer.tokenizer.bos_token_id, tokenizer.tokenizer.eos_token_id, tokenizer.tokenizer.pad_token_id)
    marks = []
    for tokens, whole in tokens_of(concepts, places):
        assert not {ids[token] for token in tokens} & set(special)
        pieces = tokenizer.tokenizer.convert_ids_to_tokens([ids[token] for token in tokens])
        marks.append((re.sub("</w>|<unk>|\u2581", "", "".join(pieces)), whole))
    return marks


@pytest.mark.parametrize("name", FOLDERS)
def test_punctuation_capitals_hyphens_and_repeated_words(name, request):
    tokenizer = tokenizer_of(request.getfixturevalue(name), max_length=64)
    concepts = spans_of(CAPTION, "A Red T-shirt", "a black-and-white DOG", "a red t-shirt", CAPTION[-6:])
    concepts.append(Concept(CAPTION, [(0, len(CAPTION))]))
    marks = mark_tokens(tokenizer, CAPTION, concepts)
    assert [letters for letters, _ in marks[:3]] == ["aredtshirt", "ablackandwhitedog", "aredtshirt"]
    # SigLIP's words are whole
    assert marks[3][0] == ("tshirt" if name == "siglip" else "shirt")
    assert marks[4][0] == "aredtshirtablackandwhitedogonaredtshirt"
    assert all(whole for _, whole in marks)
    (places,) = tokenizer.places([CAPTION])
    first, _, last, *_ = tokens_of(concepts, places)
    assert max(first[0]) < min(last[0])


@pytest.mark.parametrize("name", ONE_WORD_A_TOKEN)
def test_a_phrase_of_several_parts(name, request):
    caption = "a red, blue cube on a red ball"
    both = Concept("a red cube", [(0, 5), (12, 16)])
    assert mark_tokens(tokenizer_of(request.getfixturevalue(name)), caption, [both]) == [("aredcube", True)]


@pytest.mark.parametrize("name", ONE_WORD_A_TOKEN)
def test_truncation_takes_a_part_or_the_whole(name, request):
    caption = "a red cube on a blue ball"
    tokenizer = tokenizer_of(request.getfixturevalue(name), max_length=64)
    (places,) = tokenizer.places([caption])
    concepts = spans_of(caption, "a red cube", "blue ball", "ball")
    start = min(tokens_of(concepts, places)[2][0])
    tokenizer.max_length = start + 1  # one more for the end of the text
    assert mark_tokens(tokenizer, caption, concepts) == [("aredcube", True), ("blue", False), ("", False)]


@pytest.mark.parametrize("name", FOLDERS)
def test_truncation_inside_a_word(name, request):
    caption = "a cube on a zqxjkvwy"
    tokenizer = tokenizer_of(request.getfixturevalue(name), max_length=64)
    concepts = spans_of(caption, "a cube", "zqxjkvwy")
    (places,) = tokenizer.places([caption])
    (_, whole), (word, _) = tokens_of(concepts, places)
    assert whole and len(word) > 2
    tokenizer.max_length = word[2] + 1  # two tokens of the word, and the end of the text
    (places,) = tokenizer.places([caption])
    assert tokens_of(concepts, places)[1] == (word[:2], False)
    assert tokens_of(concepts, places)[0][1]


def test_what_the_tokenizer_does_not_read_has_no_tokens(siglip):
    caption = "a cube ... on a ball  "
    marks = mark_tokens(tokenizer_of(siglip), caption, spans_of(caption, "a cube", "...", "  "))
    assert marks == [("acube", True), ("", False), ("", False)]


def test_characters_that_siglip_writes_otherwise(siglip):
    tokenizer = tokenizer_of(siglip)
    for strange in (
        "red\u200bcone",
        "a \u200b ring",
        "a\u2581star",
        "\u00bd ring",
        "a \u00b4star",
        "CAFE\u0301",
        "\u0130",
    ):
        caption = f"a cube, {strange} and A Ball"
        marks = mark_tokens(tokenizer, caption, spans_of(caption, "a cube", "A Ball"))
        assert marks == [("acube", True), ("aball", True)], strange


@pytest.mark.parametrize("caption", ["a cube </s> a ball", "a cube </s>"])  # the words "s" and "</s>" are one token
def test_a_text_that_words_do_not_explain_has_no_places(siglip, caption):
    (places,) = tokenizer_of(siglip).places([caption])
    assert tokens_of(spans_of(caption, "a cube"), places) == [([], False)]


def test_a_slow_tokenizer_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="offsets.*concept_source='phrase'"):
        word_places(object(), "a cube", 8)


def test_concept_ids_are_the_same_in_every_process_and_blind_to_case():
    # blake2b of "a red cube", 8 bytes, without the lowest bit
    assert text_key("a red cube") == text_key(" A  RED\tcube ") == 7838600433083661412
    assert len({text_key(text) for text in ("a red cube", "red cube", "a red cubes", "aredcube")}) == 4


# Batches


@pytest.mark.parametrize("name", FOLDERS)
def test_a_batch_marks_the_tokens_of_each_concept(name, request):
    collator = collator_for(request.getfixturevalue(name), max_concepts=2, concept_tokens=True)
    caption = "a red cube on a blue ball"
    spans = [[[0, 10]], [[14, 25]], [[11, 13]]]
    three = row(0, caption=caption, concepts=["a red cube", "a blue ball", "on"], concept_spans=spans)
    batch = collator([three, row(1, caption="a ring", concepts=[])])
    assert "concept_input_ids" not in batch
    mask, ids = batch["concept_token_mask"], batch["input_ids"]
    assert mask.shape == (4, ids.shape[1]) and mask.any(1).tolist() == [True, True, True, False]
    assert batch["concept_image_index"].tolist() == [0, 0, 1, -1]
    assert batch["cut_concepts"].tolist() == [1, 0] and not batch["shortened_concepts"].any()
    (places,) = collator.tokenizer.places([caption])
    expected = tokens_of([Concept("", [(0, 10)]), Concept("", [(14, 25)])], places)
    assert [mask[slot].nonzero().flatten().tolist() for slot in (0, 1)] == [tokens for tokens, _ in expected]
    # without concepts the caption stands in: all of it but for special tokens
    special = {collator.tokenizer.tokenizer.bos_token_id, collator.tokenizer.tokenizer.eos_token_id}
    special.add(collator.tokenizer.tokenizer.pad_token_id)
    assert mask[2].tolist() == [token not in special for token in ids[1].tolist()]


def test_what_truncation_takes_is_counted_and_has_no_owner(clip):
    caption = "a red cube " * 12 + "on a blue ball"
    first, last = [[0, 10]], [[len(caption) - 11, len(caption)]]
    rows = [
        row(0, caption=caption, concepts=["a red cube", "a blue ball"], concept_spans=[first, last]),
        row(1, caption=caption, concepts=["a blue ball"], concept_spans=[last]),
        row(2, caption=caption, concepts=[]),
        row(3, caption=caption, concepts=["a red cube", " ", None], concept_spans=[first, None, []]),
    ]
    batch = collator_for(clip, max_concepts=2, concept_tokens=True)(rows)
    assert batch["concept_image_index"].tolist() == [0, -1, -1, -1, 2, -1, 3, -1]
    assert batch["concept_token_mask"].any(1).tolist() == [
        index >= 0 for index in batch["concept_image_index"].tolist()
    ]
    assert batch["shortened_concepts"].tolist() == [1, 1, 1, 0]
    assert not batch["cut_concepts"].any()
    assert batch["truncated"].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("concept_tokens", [False, True])
def test_equal_concepts_have_equal_numbers(clip, concept_tokens):
    caption = "a red cube and A RED cube"
    spans = [[[0, 10]], [[15, 25]]]
    rows = [row(0, caption=caption, concepts=["a red cube", "A RED cube"], concept_spans=spans), row(1, caption="A")]
    ids = collator_for(clip, max_concepts=3, concept_tokens=concept_tokens)(rows)["concept_id"].tolist()
    assert ids == [text_key("a red cube")] * 2 + [0] + [text_key("a"), 0, 0]


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        (None, "'concept_spans', row 17: found no .*'concepts' has 2.*concept_source='phrase'"),
        ([[[0, 5]], [[-6, 9]]], r"row 17, entry 1: found \[\[-6, 9\]\] .*'a ball'"),
        ([[[0, 5]]], "'concept_spans', row 17: found 1 .*'concepts' has 2"),
        ([0, 5], "'concept_spans', row 17, entry 0: found 0 "),
        ([3, 5], "'concept_spans', row 17, entry 0: found 3 .*start, end"),
        ([[[0, 5]], []], r"row 17, entry 1: found \[\] .*'a ball'"),
        ([[[0, 5]], None], "row 17, entry 1: found None .*'a ball'.*concept_columns"),
        ([[0, 5], [6, 9]], r"row 17, entry 0: found \[0, 5\] .*'a red'"),
        ([[[0, 5]], [[6, 99]]], r"row 17, entry 1: found \[\[6, 99\]\].* 13 "),
        ([[[0, 5]], [[6, 6]]], r"row 17, entry 1: found \[\[6, 6\]\]"),
        ([[[0, 5]], [["a", 6]]], r"row 17, entry 1: found \[\['a', 6\]\]"),
    ],
)
def test_spans_of_another_form_are_refused(spans, message):
    with pytest.raises(ValueError, match=message):
        with_spans(["a red", "a ball"], spans, caption="a red, a ball", row=17)


def test_a_batch_names_the_row_whose_spans_are_missing(siglip):
    collator = collator_for(siglip, max_concepts=2, concept_tokens=True)
    with pytest.raises(ValueError, match="'concept_spans', row 17: found no .*'concepts' has 1"):
        collator([row(3, concepts=None), row(17, concepts=["a red cube"])])


def test_spans_without_concepts_are_refused(clip):
    collator = collator_for(clip, max_concepts=2, concept_tokens=True)
    with pytest.raises(ValueError, match="row 17: found 1 .*'concepts' has 0"):
        collator([row(17, concepts=[], concept_spans=[[[0, 5]]])])


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_spans_in_the_format_of_the_data_set(clip, kind):
    spans = [[[0, 1], [2, 5]], [[6, 10]]]
    fields = {"concepts": ["a red", "cube"], "concept_spans": spans}
    dataset = Dataset.from_list([fields], features=Features(CONCEPT_FEATURES)).with_format(kind)
    collator = collator_for(clip, max_concepts=2, concept_tokens=True)
    batch, expected = collator([row(0, **dataset[0])]), collator([row(0, **fields)])
    assert batch["concept_token_mask"].any() and torch.equal(
        batch["concept_token_mask"], expected["concept_token_mask"]
    )
