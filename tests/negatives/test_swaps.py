from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hfcomp.data.columns import NEGATIVE_KINDS
from hfcomp.negatives.swaps import SWAPS, swap_negatives
from hfcomp.sandbox.captions import draw_caption
from hfcomp.sandbox.scenes import draw_scene
from tests.parsing.gold import gold


def swap_texts(tagged, *swaps):
    return {negative.text for negative in swap_negatives(gold(tagged), swaps=swaps or SWAPS, num_negatives=1000)}


def sandbox_captions(number):
    generator = np.random.default_rng(5)
    captions = []
    for index in range(number):
        scene = draw_scene(generator, 1 + index % 3, counted=index % 6 == 0)
        drawn = draw_caption(
            generator, scene, relation=0.7, size=0.5, texture=0.3, background=0.2, place=0.5, three=0.5
        )
        captions.append(drawn.text(scene))
    return captions


def coco_captions(number):
    folder = os.environ.get("HFCOMP_REAL_DATA")
    if not folder:
        pytest.skip("HFCOMP_REAL_DATA is not set; it names a folder with coco/captions_val2017.json")
    annotations = json.loads((Path(folder) / "coco" / "captions_val2017.json").read_text(encoding="utf-8"))[
        "annotations"
    ]
    return [annotation["caption"] for annotation in annotations[:: len(annotations) // number]]


def parse(captions):
    pytest.importorskip("textblob")
    from hfcomp.parsing import RuleParser

    return list(RuleParser().parse(captions))


@pytest.fixture(scope="module", params=[sandbox_captions, coco_captions], ids=["sandbox", "coco"])
def docs(request):
    return parse(request.param(300))


# What changes places

ON = "A/DT man/NN on/IN a/DT red/JJ bench/NN ./."


def test_nouns():
    assert swap_texts(ON, "nouns") == {"A bench on a red man ."}


def test_noun_phrases_take_their_determiner_and_modifiers_along():
    assert swap_texts(ON, "noun_phrases") == {"A red bench on a man ."}
    assert swap_texts("two/CD small/JJ cubes/NNS above/IN the/DT red/JJ balls/NNS", "noun_phrases") == {
        "the red balls above two small cubes"
    }


def test_adjectives():
    assert swap_texts("a/DT red/JJ cube/NN above/IN a/DT blue/JJ ball/NN", "adjectives") == {
        "a blue cube above a red ball"
    }


def test_verbs():
    sitting = "A/DT man/NN is/VBZ sitting/VBG on/IN a/DT bench/NN while/IN|SCONJ a/DT dog/NN is/VBZ standing/VBG ./."
    assert swap_texts(sitting, "verbs") == {"A man is standing on a bench while a dog is sitting ."}


def test_verb_groups_of_unlike_form():
    caption = "A/DT man/NN is/VBZ sitting/VBG in/IN a/DT car/NN and/CC a/DT dog/NN stands/VBZ in/IN a/DT field/NN"
    assert swap_texts(caption, "verbs") == {"A man stands in a car and a dog is sitting in a field"}


def test_a_negative_says_what_it_changed():
    (negative,) = swap_negatives(gold(ON), swaps=("noun_phrases",))
    assert (negative.kind, negative.category) == ("swap_obj", "object")
    assert (negative.keyword, negative.replacement) == ("A man", "a red bench")
    assert negative.spans == ((0, 5), (9, 20))


@pytest.mark.parametrize(
    ("swap", "kind", "category"),
    [
        ("nouns", "swap_obj", "object"),
        ("adjectives", "swap_att", "attribute"),
        ("noun_phrases", "swap_obj", "object"),
        ("verbs", "swap_rel", "relation"),
    ],
)
def test_kinds(swap, kind, category):
    caption = (
        "a/DT big/JJ man/NN riding/VBG a/DT red/JJ horse/NN behind/IN a/DT tall/JJ woman/NN pulling/VBG a/DT cart/NN"
    )
    negatives = swap_negatives(gold(caption), swaps=(swap,), num_negatives=3)
    assert negatives and {(negative.kind, negative.category) for negative in negatives} == {(kind, category)}
    assert kind in NEGATIVE_KINDS


# Words that belong together


def test_compounds_move_as_one():
    assert swap_texts("a/DT fire/NN hydrant/NN on/IN a/DT street/NN", "nouns") == {"a street on a fire hydrant"}
    assert swap_texts("a/DT hot/JJ dog/NN on/IN a/DT plate/NN", "nouns") == {"a plate on a hot dog"}
    assert swap_texts("a/DT t/NN ~-/HYPH ~shirt/NN on/IN a/DT bed/NN", "nouns") == {"a bed on a t-shirt"}


def test_nothing_moves_out_of_a_fixed_pair_or_a_word_with_a_hyphen():
    assert not swap_texts("a/DT hot/JJ dog/NN on/IN a/DT red/JJ plate/NN", "adjectives")
    assert not swap_texts("a/DT blue/JJ ~-/HYPH ~green/JJ ball/NN on/IN a/DT red/JJ plate/NN", "adjectives")


def test_a_shade_moves_with_its_color():
    assert swap_texts("a/DT dark/JJ blue/JJ ball/NN on/IN a/DT small/JJ plate/NN", "adjectives") == {
        "a small ball on a dark blue plate"
    }


def test_phrases_joined_by_of_move_as_one():
    caption = "a/DT group/NN of/IN people/NNS on/IN a/DT bench/NN"
    assert swap_texts(caption, "noun_phrases") == {"a bench on a group of people"}
    assert not swap_texts(caption, "nouns")


def test_places_and_pictures_are_no_things():
    assert swap_texts(
        "a/DT photo/NN of/IN a/DT dog/NN in/IN the/DT middle/NN of/IN a/DT field/NN", "noun_phrases"
    ) == {"a photo of a field in the middle of a dog"}
    close_up = "a/DT close/JJ up/NN of/IN a/DT dog/NN on/IN a/DT mat/NN"
    assert swap_texts(close_up, "noun_phrases", "nouns") == {"a close up of a mat on a dog"}


def test_words_that_lack_a_space_between_stay():
    assert not swap_texts("a/DT horse/NN pulling/VBG a/DT carriage.on/NN", "nouns", "noun_phrases")
    assert swap_texts("a/DT dog/NN under/IN a/DT 3.5mm/NN")


def test_possessive_phrases_stay_where_their_owner_is():
    assert not swap_texts("a/DT man/NN wearing/VBG his/PRP$ hat/NN", "noun_phrases")
    assert not swap_texts("a/DT dog/NN ~'s/POS tail/NN", "nouns")


# Grammar


def test_articles_are_mended():
    assert swap_texts("An/DT orange/JJ ball/NN on/IN a/DT red/JJ box/NN", "adjectives") == {
        "A red ball on an orange box"
    }
    assert swap_texts("an/DT owl/NN on/IN a/DT roof/NN", "nouns") == {"a roof on an owl"}


def test_capitals_stay_at_the_start_and_names_keep_theirs():
    assert swap_texts("Dogs/NNS behind/IN cats/NNS", "nouns") == {"Cats behind dogs"}
    assert swap_texts("Anna/NNP behind/IN Paul/NNP", "nouns") == {"Paul behind Anna"}
    assert swap_texts("TV/NN behind/IN glass/NN", "nouns") == {"Glass behind TV"}


@pytest.mark.parametrize(
    "caption",
    [
        "a/DT dog/NN behind/IN two/CD cats/NNS",
        "Anna/NNP behind/IN the/DT dog/NN",
        "a/DT dog/NN on/IN grass/NN",
        "a/DT dog/NN on/IN the/DT snow/NN",
    ],
)
def test_nouns_that_do_not_fit_stay(caption):
    assert not swap_texts(caption, "nouns")


def test_phrases_keep_the_number_of_the_verb():
    assert not swap_texts("A/DT dog/NN is/VBZ behind/IN two/CD cats/NNS", "noun_phrases")
    assert not swap_texts("A/DT group/NN of/IN people/NNS are/VBP behind/IN a/DT dog/NN", "noun_phrases")


def test_no_second_color_or_size():
    assert not swap_texts("a/DT big/JJ red/JJ ball/NN on/IN a/DT blue/JJ box/NN", "adjectives") & {
        "a blue red ball on a big box"
    }
    assert swap_texts("a/DT black/JJ and/CC white/JJ cat/NN on/IN a/DT red/JJ box/NN", "adjectives") == {
        "a red and white cat on a black box",
        "a black and red cat on a white box",
    }
    assert not swap_texts("a/DT black/JJ and/CC white/JJ cat/NN on/IN a/DT big/JJ box/NN", "adjectives")
    # not "a white and white bus"
    assert not swap_texts("an/DT orange/JJ and/CC white/JJ bus/NN behind/IN a/DT white/JJ car/NN", "adjectives")


def test_verbs_with_an_object_do_not_change_with_verbs_without():
    assert not swap_texts("A/DT man/NN sitting/VBG on/IN a/DT bench/NN eating/VBG a/DT sandwich/NN", "verbs")


def test_participles_before_nouns_are_no_verbs():
    assert not swap_texts("a/DT parked/VBN car/NN behind/IN a/DT running/VBG dog/NN", "verbs")


# Swaps that would leave the caption true


@pytest.mark.parametrize(
    "caption",
    [
        "a/DT cat/NN and/CC a/DT dog/NN",
        "a/DT cat/NN ~,/, a/DT dog/NN and/CC a/DT bird/NN",
        "a/DT cat/NN or/CC a/DT dog/NN on/IN|ADP it/PRP",
        "a/DT cat/NN next/JJ|ADV to/IN a/DT dog/NN",
        "a/DT cat/NN is/VBZ sitting/VBG next/JJ|ADV to/IN a/DT dog/NN",
        "a/DT cat/NN that/WDT is/VBZ beside/IN a/DT dog/NN",
        "a/DT man/NN with/IN a/DT dog/NN",
        "a/DT man/NN talking/VBG to/IN a/DT woman/NN",
        "a/DT man/NN kissing/VBG a/DT woman/NN",
        "several/JJ dogs/NNS and/CC cats/NNS",
        "a/DT group/NN of/IN dogs/NNS next/JJ|ADV to/IN some/DT cats/NNS",
        "the/DT cat/NN has/VBZ a/DT dog/NN right/RB next/JJ|ADV to/IN it/PRP",
        "a/DT plate/NN with/IN an/DT orange/NN and/CC a/DT fork/NN",
        "a/DT dog/NN above/IN a/DT dog/NN",
        "a/DT couch/NN above/IN a/DT sofa/NN",
        "a/DT man/NN above/IN a/DT person/NN",
    ],
)
def test_nothing_that_keeps_the_meaning(caption):
    assert not swap_texts(caption)


@pytest.mark.parametrize(
    ("caption", "swap", "texts"),
    [
        ("a/DT cat/NN and/CC a/DT dog/NN", "nouns", {"a dog and a cat"}),
        ("a/DT group/NN of/IN dogs/NNS", "nouns", {"a dogs of group"}),
        ("a/DT dog/NN above/IN a/DT dog/NN", "nouns", set()),
        ("many/JJ dogs/NNS in/IN the/DT same/JJ park/NN", "adjectives", {"same dogs in the many park"}),
        (
            "a/DT black/JJ cat/NN and/CC a/DT dog/NN and/CC a/DT red/JJ cup/NN",
            "noun_phrases",
            {"a red cup and a dog and a black cat"},
        ),
    ],
)
def test_without_guards_any_two_different_parts_of_a_kind_are_swapped(caption, swap, texts):
    negatives = swap_negatives(gold(caption), swaps=[swap], num_negatives=9, guarded=False)
    assert {negative.text for negative in negatives} == texts


def test_parts_of_coordinated_phrases_do_change_the_meaning():
    assert swap_texts("a/DT black/JJ cat/NN and/CC a/DT white/JJ dog/NN") == {
        "a white cat and a black dog",
        "a black dog and a white cat",
    }
    assert swap_texts("two/CD cats/NNS and/CC three/CD dogs/NNS") == {"two dogs and three cats"}


def test_adjectives_of_equal_nouns_where_order_does_not_matter():
    assert not swap_texts("a/DT red/JJ ball/NN and/CC a/DT blue/JJ ball/NN")
    assert swap_texts("a/DT red/JJ ball/NN above/IN a/DT blue/JJ ball/NN") == {"a blue ball above a red ball"}


def test_parallel_parts():
    assert not swap_texts("a/DT man/NN in/IN a/DT hat/NN and/CC a/DT woman/NN in/IN a/DT hat/NN", "noun_phrases") & {
        "a woman in a hat and a man in a hat"
    }


def test_what_stands_between_decides_and_not_the_last_word():
    assert "a dog has a cat in a box" in swap_texts("a/DT cat/NN has/VBZ a/DT dog/NN in/IN a/DT box/NN", "nouns")
    assert "a dog on a mat and a cat" in swap_texts("a/DT cat/NN on/IN a/DT mat/NN and/CC a/DT dog/NN", "nouns")
    assert "a bike running next to a dog" in swap_texts(
        "a/DT dog/NN running/VBG next/JJ|ADV to/IN a/DT bike/NN", "nouns"
    )
    assert "fruit filled with a bowl" in swap_texts("a/DT bowl/NN filled/VBN with/IN fruit/NN", "noun_phrases")


def test_verbs_of_one_subject_side_by_side():
    assert not swap_texts("a/DT man/NN sitting/VBG and/CC reading/VBG", "verbs")
    assert not swap_texts("a/DT man/NN sitting/VBG at/IN a/DT table/NN smiling/VBG", "verbs")


# Properties


def plain(text):
    return re.sub(r"\ban\b", "a", text.casefold())


def test_two_spans_change_places_and_all_else_stays(docs):
    number = 0
    for doc in docs:
        caption = doc.text
        for negative in swap_negatives(doc, num_negatives=5):
            (start, end), (second_start, second_end) = negative.spans
            assert end <= second_start
            first, second = caption[start:end], caption[second_start:second_end]
            assert (negative.keyword, negative.replacement) == (first, second)
            assert plain(negative.text) == plain(
                caption[:start] + second + caption[end:second_start] + first + caption[second_end:]
            )
            number += 1
    assert number > 300


def test_never_the_caption_and_never_twice(docs):
    for doc in docs:
        texts = [plain(negative.text) for negative in swap_negatives(doc, num_negatives=50)]
        assert len({plain(doc.text), *texts}) == len(texts) + 1


def test_words_stay_the_same_but_for_articles(docs):
    for doc in docs:
        for negative in swap_negatives(doc, swaps=("nouns", "adjectives"), num_negatives=5):
            assert Counter(re.findall(r"\w+", plain(negative.text))) == Counter(re.findall(r"\w+", plain(doc.text)))


def test_seed_and_caption_alone_decide(docs):
    few = docs[:60]
    forwards = [swap_negatives(doc, num_negatives=3, seed=4) for doc in few]
    backwards = [swap_negatives(doc, swaps=SWAPS[::-1], num_negatives=3, seed=4) for doc in few[::-1]]
    assert forwards == backwards[::-1]
    assert forwards != [swap_negatives(doc, num_negatives=3, seed=5) for doc in few]


def test_fewer_are_the_first_of_more(docs):
    for doc in docs[:60]:
        everything = swap_negatives(doc, num_negatives=40)
        assert all(swap_negatives(doc, num_negatives=number) == everything[:number] for number in (1, 2, 5))


def test_nouns_do_not_crowd_out_the_other_kinds():
    caption = (
        "a/DT big/JJ man/NN riding/VBG a/DT red/JJ horse/NN behind/IN a/DT woman/NN pulling/VBG a/DT cart/NN"
        " under/IN a/DT tree/NN above/IN a/DT house/NN over/IN a/DT bus/NN"
    )
    doc = gold(caption)
    kinds = Counter(swap_negatives(doc, seed=seed)[0].kind for seed in range(200))
    # a quarter each, and two for objects; four standard deviations of 50 are 25
    assert 25 < kinds["swap_att"] < 75 and 25 < kinds["swap_rel"] < 75


# Odd captions


@pytest.mark.parametrize(
    "caption", ["", "dog/NN", "🐕/SYM", "./.", "blue/JJ", "sitting/VBG", "A/DT cat/NN sits/VBZ ./."]
)
def test_captions_without_a_swap(caption):
    assert swap_negatives(gold(caption), num_negatives=3) == []


def test_the_same_noun_twenty_times():
    assert not swap_texts(" ".join(["a/DT dog/NN behind/IN"] * 20 + ["a/DT dog/NN"]))
    with_a_cat = swap_texts(" ".join(["a/DT dog/NN behind/IN"] * 20 + ["a/DT cat/NN"]), "nouns")
    assert len(with_a_cat) == 20


def test_letters_beyond_ascii_and_emoji():
    doc = gold("🐕/SYM ein/DT|DET Äpfelchen/NN hinter/IN dem/DT Café/NN 😀/SYM")
    (negative,) = swap_negatives(doc, swaps=("nouns",))
    assert negative.text == "🐕 ein Café hinter dem Äpfelchen 😀"
    assert [doc.text[start:end] for start, end in negative.spans] == ["Äpfelchen", "Café"]


def test_a_caption_of_300_words():
    words = " ".join(f"a/DT red{index}/JJ thing{index}/NN above/IN" for index in range(75))
    negatives = swap_negatives(gold(words), num_negatives=20)
    assert len(negatives) == 20


def test_odd_strings_parsed():
    captions = [
        "",
        " ",
        "dog",
        "🐕 🐈",
        "a dog\n",
        "«Ein» ñandú — straße",
        "the " * 300,
        "dog " * 20,
        "a\tcat  on a  mat.",
    ]
    for doc in parse(captions):
        for negative in swap_negatives(doc, num_negatives=3):
            assert negative.text != doc.text


# Requests


@pytest.mark.parametrize("swaps", [(), "nouns", ("nouns", "adverbs")])
def test_unknown_swaps_are_refused(swaps):
    with pytest.raises(ValueError, match="nouns, adjectives, noun_phrases, verbs"):
        swap_negatives(gold(ON), swaps=swaps)


def test_no_negatives_are_refused():
    with pytest.raises(ValueError, match="expected 1 or more"):
        swap_negatives(gold(ON), num_negatives=0)
