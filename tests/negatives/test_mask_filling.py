from __future__ import annotations

import random
import re
from collections import Counter

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from hfcomp.data.columns import NEGATIVE_KINDS
from hfcomp.negatives.language_models import length_sorted_batches
from hfcomp.negatives.mask_filling import KINDS, PARTS, REJECTIONS, MaskedModel, MaskFiller, maskable_tokens
from hfcomp.negatives.negative import Negative
from tests.negatives import language_models
from tests.negatives.language_models import LexiconParser

LIKED = {
    **{f"Ġ{word}": 3.0 for word in ("cat", "horse", "bench", "umbrella", "carpet", "cats", "horses")},
    **{f"Ġ{word}": 2.0 for word in ("blue", "green", "old", "eating", "holding", "sleeps", "runs")},
}
CAPTIONS = [
    "a red dog riding on the grass",
    "two dogs",
    "an apple is on a bench and a green umbrella",
    "",
    "🐶",
    "dog",
    "a red dog 🐶 rides, and two horses",
    "ein größerer Hund — naïve café dog",
    "the dog runs. the dog sleeps. the dog runs.",
    "a <mask> on a dog with a <mask>",
    " ".join(["a", "dog", "and"] * 100),
]


@pytest.fixture(scope="module")
def parser() -> LexiconParser:
    return LexiconParser()


@pytest.fixture
def filler(tmp_path, parser):
    def filler(liked: dict, **settings) -> MaskFiller:
        return MaskFiller(language_models.roberta(tmp_path / "roberta", liked), parser=parser, **settings)

    return filler


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A model whose proposals depend on the text around the mask."""
    return language_models.roberta(tmp_path_factory.mktemp("noisy"), LIKED, noise=0.7)


@pytest.fixture(scope="module")
def noisy_filler(noisy, parser) -> MaskFiller:
    return MaskFiller(noisy, parser=parser, top_k=6)


def texts(rows) -> list[list[str]]:
    return [[negative.text for negative in row] for row in rows]


# What is masked


@pytest.mark.parametrize(
    ("caption", "part", "words"),
    [
        ("a red dog riding on the grass", "noun", ["dog", "grass"]),
        ("a red dog riding on the grass", "adjective", ["red"]),
        ("a red dog is riding on the grass", "verb", ["riding"]),
        ("the dog is red", "verb", []),
        ("the dog is red", "adjective", ["red"]),
        ("a dog in front of a bench", "noun", ["dog", "bench"]),
        ("the same dog", "adjective", []),
        ("a photo of a lot of dogs", "noun", ["dogs"]),
        ("a dog-cat and dog/cat, the dog's bench", "noun", ["dog", "bench"]),
        ("dog2 and 🐶", "noun", []),
        ("", "noun", []),
    ],
)
def test_which_words_are_masked(parser, caption, part, words):
    doc = next(parser.parse([caption]))
    of = {"in": ("IN", "ADP"), "of": ("IN", "ADP")}
    for token in doc:
        token.tag_, token.pos_ = of.get(token.text, (token.tag_, token.pos_))
    assert [token.text for token in maskable_tokens(doc, part)] == words


def test_auxiliary_of_a_parser_that_tags_it_as_a_verb_is_not_masked(parser):
    doc = next(parser.parse(["the dog keeps riding"]))
    doc[2].tag_, doc[2].pos_, doc[2].lemma_, doc[2].dep_ = "VBZ", "VERB", "keep", "aux"
    assert [token.text for token in maskable_tokens(doc, "verb")] == ["riding"]
    doc[2].dep_ = "ROOT"
    assert [token.text for token in maskable_tokens(doc, "verb")] == ["keeps", "riding"]


# What is written


def fill_one(filler: MaskFiller, parser, caption: str, **settings):
    return filler.fill(list(parser.parse([caption])), **settings)[0]


def test_the_one_that_fits_is_written(filler, parser):
    # each likelier than the right one: the middle of a word, special tokens, a comma, the word itself, its plural
    liked = {"dog": 9, "Ġ": 9, "<s>": 9, ",": 9, "ĠDog": 8, "Ġdog": 8, "Ġdogs": 7, "Ġthe": 6, "Ġcat": 1}
    made = filler(liked, top_k=9)
    (negative,) = fill_one(made, parser, "a red dog riding", num_negatives=1)
    assert negative == Negative("a red cat riding", "mask_noun", "dog", "cat", "object", ((6, 9),))
    wrong = {"not_a_word": 4, "name": 1, "same_word": 2, "light_word": 1}
    assert made.rejected == wrong and set(wrong) < set(REJECTIONS)


def test_tag_of_the_original_is_kept(filler, parser):
    made = filler({"Ġcats": 9, "Ġhorse": 8, "Ġblue": 8, "Ġruns": 8, "Ġeating": 8}, top_k=5)
    row = fill_one(made, parser, "a red dog riding two dogs", num_negatives=9)
    pairs = {negative.keyword: negative.replacement for negative in row}
    assert pairs == {"dog": "horse", "red": "blue", "riding": "eating", "dogs": "cats"}
    assert {negative.kind for negative in row[:3]} == {"mask_noun", "mask_adj", "mask_verb"}
    assert len(row) == 4 and row[3].kind == "mask_noun"


def test_inflection_with_the_same_tag_is_not_written(filler, parser, monkeypatch):
    # only the parser knows that these two are one word
    monkeypatch.setitem(language_models.LEXICON, "unicorn", ("NN", "NOUN", "carpet"))
    made = filler({"Ġcarpet": 9, "Ġcat": 5}, top_k=2)
    assert texts([fill_one(made, parser, "a unicorn", num_negatives=3)]) == [["a cat"]]
    assert made.rejected["same_word"] == 1


def test_listed_synonym_is_not_written(filler, parser, monkeypatch):
    # words of a list that the generators share; the model knows "grass" and the caption says "lawn"
    made = filler({"Ġgrass": 9, "Ġcat": 5}, top_k=2)
    assert texts([fill_one(made, parser, "a lawn", num_negatives=3)]) == [["a cat"]]
    assert made.rejected == {"same_thing": 1}
    assert len(fill_one(made, parser, "a unicorn", num_negatives=3)) == 2


def test_fill_that_the_parser_tags_otherwise_is_not_written(filler, parser):
    made = filler({"Ġcats": 9, "Ġblue": 8, "Ġruns": 8}, top_k=3)
    assert fill_one(made, parser, "a unicorn") == []
    assert made.rejected == {"other_tag": 3}


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a dog", "an apple"),
        ("A dog", "An apple"),
        ("the dog", "the apple"),
        ("Dog on the grass", "Apple on the grass"),
        ("A DOG", "AN APPLE"),
    ],
)
def test_article_and_case_fit_the_fill(filler, parser, caption, expected):
    made = filler({"Ġapple": 9, "apple": 9}, top_k=2)
    row = fill_one(made, parser, caption, num_negatives=5)
    assert expected in texts([row])[0]
    for negative in row:
        start, end = negative.spans[0]
        assert caption[start:end] == negative.keyword


def test_beginning_of_a_word_is_not_written(filler, parser):
    # one token of the vocabulary, behind a space, all letters, and a noun to the parser
    made = filler({"Ġumbr": 9, "Ġcat": 8}, top_k=2)
    assert texts([fill_one(made, parser, "a dog", num_negatives=3)]) == [["a cat"]]
    assert made.rejected == {"not_a_word": 1}


def test_name_is_not_written_for_a_common_noun(filler, parser):
    made = filler({"ĠParis": 9, "ĠCat": 9}, top_k=2)
    assert fill_one(made, parser, "a dog") == []
    assert made.rejected == {"name": 2}


def test_caption_without_the_part_gets_none(filler, parser):
    made = filler(LIKED, parts=["adjective", "verb"])
    assert [fill_one(made, parser, caption, num_negatives=3) for caption in ("a dog", "", "🐶", "and")] == [[]] * 4


def test_nothing_fits_gives_none(filler, parser):
    # the released code would keep a caption with its own word or a comma in it
    assert fill_one(filler({"Ġdog": 9, ",": 8}, top_k=2), parser, "a dog") == []


def test_fills_are_drawn_and_not_always_the_best(filler, parser):
    made = filler({"Ġcat": 9, "Ġhorse": 5, "Ġbench": 1, "Ġcarpet": -5}, top_k=3)
    drawn = {fill_one(made, parser, "an umbrella", seed=seed)[0].replacement for seed in range(40)}
    assert drawn == {"cat", "horse", "bench"}


def test_lower_case_wordpiece_model(tmp_path, parser):
    folder = language_models.bert(tmp_path / "bert", {"##ing": 9, "[UNK]": 9, "dog": 8, "horse": 5, "eating": 3})
    made = MaskFiller(folder, parser=parser, top_k=5)
    row = fill_one(made, parser, "A unicorn 🐶 Riding", num_negatives=4)
    assert {negative.text for negative in row} == {"A dog 🐶 Riding", "A horse 🐶 Riding", "A unicorn 🐶 Eating"}


# Order and independence


def test_parts_take_turns_and_make_up_for_each_other(filler, parser):
    made = filler(LIKED)
    kinds = [negative.kind for negative in fill_one(made, parser, "a red dog riding", num_negatives=5)]
    assert set(kinds[:3]) == {"mask_noun", "mask_adj", "mask_verb"} and kinds[3:] == kinds[:2]
    kinds = [negative.kind for negative in fill_one(made, parser, "a dog riding", num_negatives=4)]
    assert set(kinds[:2]) == {"mask_noun", "mask_verb"} and kinds[2:] == kinds[:2]


def test_the_part_is_drawn_at_random_among_those_a_caption_has(filler, parser):
    made, captions = filler(LIKED), ["a red dog riding", "a dog riding", "the dog is red"]
    parts = [("mask_noun", "mask_adj", "mask_verb"), ("mask_noun", "mask_verb"), ("mask_noun", "mask_adj")]
    docs = list(parser.parse(captions))
    drawn = [made.fill(docs, seed=seed) for seed in range(300)]
    for place, expected in enumerate(parts):
        counts = Counter(rows[place][0].kind for rows in drawn)
        assert set(counts) == set(expected)
        share = 1 / len(expected)
        spread = 4 * (300 * share * (1 - share)) ** 0.5  # four standard deviations of a fair draw
        assert all(abs(count - 300 * share) < spread for count in counts.values()), counts
    # how the parts were given is no part of the draw
    assert filler(LIKED, parts=["verb", "noun", "adjective"]).fill(docs, seed=5, num_negatives=3) == made.fill(
        docs, seed=5, num_negatives=3
    )


def test_every_word_of_a_part_has_its_turn_before_a_second(filler, parser):
    made = filler(LIKED, parts=["noun"])
    row = fill_one(made, parser, "a dog on a bench with an apple", num_negatives=6)
    first, second = [negative.keyword for negative in row[:3]], [negative.keyword for negative in row[3:]]
    assert sorted(first) == ["apple", "bench", "dog"] and second == first


def test_batches_order_and_neighbors_change_nothing(noisy, parser):
    docs = list(parser.parse(CAPTIONS))
    made = MaskFiller(noisy, parser=parser, top_k=6)
    expected = [made.fill([doc], num_negatives=4, seed=3)[0] for doc in docs]
    for batch_size in (1, 3, 64):
        made = MaskFiller(noisy, parser=parser, top_k=6, batch_size=batch_size)
        order = random.Random(batch_size).sample(range(len(docs)), len(docs))
        rows = made.fill([docs[index] for index in order], num_negatives=4, seed=3)
        assert rows == [expected[index] for index in order]
    assert sum(map(len, expected)) > 15


def test_fewer_are_the_first_of_more(noisy_filler, parser):
    docs = list(parser.parse(CAPTIONS))
    most = noisy_filler.fill(docs, num_negatives=8)
    for number in (1, 2, 3, 5, 7):
        assert noisy_filler.fill(docs, num_negatives=number) == [row[:number] for row in most]


def test_seeds_draw_differently(noisy_filler, parser):
    docs = list(parser.parse(CAPTIONS))
    assert noisy_filler.fill(docs, seed=1) == noisy_filler.fill(docs, seed=1) != noisy_filler.fill(docs, seed=2)


def test_negatives_keep_their_promises(noisy_filler, parser):
    docs = list(parser.parse(CAPTIONS))
    for caption, row in zip(CAPTIONS, noisy_filler.fill(docs, num_negatives=12), strict=True):
        assert len({negative.text for negative in row}) == len(row)
        for negative in row:
            ((start, end),) = negative.spans
            assert caption[start:end] == negative.keyword
            before = re.sub(r"\b(an?) $", "an? ", caption[:start])
            assert re.fullmatch(
                re.escape(before).replace(r"an\?", "an?") + negative.replacement + re.escape(caption[end:]),
                negative.text,
            )
            assert negative.text != caption and negative.kind in NEGATIVE_KINDS
    assert set(KINDS) == set(PARTS)


def test_work_is_done_for_all_captions_at_once(filler, parser):
    docs = list(parser.parse([f"a unicorn on carpet {number}" for number in range(100)]))
    made = filler({"Ġcat": 9, "Ġhorse": 8}, top_k=2)
    parser.calls.clear()
    assert all(len(row) == 1 for row in made.fill(docs))
    # one call with one fill of each caption, and not with both
    assert parser.calls == [100]


# The model


def test_proposals_are_the_best_of_the_whole_model(noisy):
    """One token of the sequence is scored, in padded batches; here all are, one text at a time."""
    network, tokenizer = AutoModelForMaskedLM.from_pretrained(noisy).eval(), AutoTokenizer.from_pretrained(noisy)
    asked = [
        ("a ", ""),
        ("a red dog ", ""),
        ("", " on a bench"),
        ("a <mask> on a ", " with a <mask>"),
        ("two horses and a ", " 🐶 sleeps on the"),
    ]
    made = MaskedModel(noisy, top_k=6, batch_size=5).propose(asked)
    for (before, after), proposals in zip(asked, made, strict=True):
        ids = tokenizer(f"{before}<mask>{after}", return_tensors="pt")["input_ids"]
        place = [index for index, token in enumerate(ids[0].tolist()) if token == tokenizer.mask_token_id]
        with torch.no_grad():
            scores = network(input_ids=ids).logits[0, place[before.count("<mask>")]]
        best = [tokenizer.convert_ids_to_tokens(token) for token in scores.topk(6).indices.tolist()]
        assert [word or "-" for word in proposals] == [token[1:] if token[1:].isalpha() else "-" for token in best]


def test_long_text_is_seen_around_its_mask(noisy):
    model = MaskedModel(noisy, top_k=6, batch_size=2)
    # of 16 tokens two are special and one is the mask: seven before it, six behind it
    before, after = " and a horse with a cat a ", " on the red bench with a"
    first, second = model.propose(
        [("dog " * 50 + before, after + " dog" * 50), ("an apple " * 9 + before, after + " cat")]
    )
    assert first == second != model.propose([(" and an umbrella is blue a ", " holding cats")])[0]
    assert model.windowed == 2
    assert model.propose([("a ", " on")]) and model.windowed == 2


def test_half_precision_fills_as_much(noisy, noisy_filler, parser):
    docs = list(parser.parse(CAPTIONS))
    half = MaskFiller(noisy, parser=parser, top_k=6, dtype="bfloat16")
    made, expected = half.fill(docs, num_negatives=2), noisy_filler.fill(docs, num_negatives=2)
    assert sum(map(len, made)) > 0.8 * sum(map(len, expected))


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_batches_hold_each_row_once_and_bound_their_tokens(batch_size):
    lengths = [random.Random(0).randrange(1, 500) for _ in range(50)] + [10_000]
    batches = list(length_sorted_batches(lengths, batch_size))
    assert sorted(sum(batches, [])) == list(range(51))
    for batch in batches:
        assert len(batch) <= batch_size
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= 64 * batch_size


# Errors


def test_model_that_cannot_be_found(parser, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=r"'nobody/no-such-model'(.|\n)*folder .* connect"):
        MaskFiller("nobody/no-such-model", parser=parser)


def test_checkpoint_without_the_output_layer(tmp_path, parser):
    folder = language_models.roberta(tmp_path, {"Ġdog": 1})
    AutoModelForMaskedLM.from_pretrained(folder).roberta.save_pretrained(folder)
    with pytest.raises(ValueError, match="predicts at random"):
        MaskFiller(folder, parser=parser)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parts": ["noun", "adverb"]}, "adverb"),
        ({"parts": "noun"}, "expected a sequence"),
        ({"parts": []}, "expected a sequence"),
        ({"parts": ["noun", "noun"]}, "each once"),
        ({"top_k": 0}, "top_k is 0"),
        ({"batch_size": 0}, "batch_size 0"),
    ],
)
def test_settings_are_checked(noisy, parser, settings, message):
    with pytest.raises(ValueError, match=message):
        MaskFiller(noisy, parser=parser, **settings)


def test_number_of_negatives_is_checked(noisy_filler):
    with pytest.raises(ValueError, match="num_negatives: found 0"):
        noisy_filler.fill([], num_negatives=0)
