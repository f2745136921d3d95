from __future__ import annotations

import pytest

from hfcomp.negatives.paraphrases import CONVERSES, SYNONYMS
from hfcomp.negatives.rewordings import RULES, hard_positives
from hfcomp.sandbox.captions import RELATIONS
from tests.parsing.gold import gold

from .test_swaps import coco_captions, parse, sandbox_captions


def reword(tagged, *rules):
    return {rewording.text for rewording in hard_positives(gold(tagged), rules=rules or RULES, num_positives=100)}


@pytest.fixture(scope="module", params=[sandbox_captions, coco_captions], ids=["sandbox", "coco"])
def docs(request):
    return parse(request.param(150))


# Coordination


@pytest.mark.parametrize(
    ("caption", "other"),
    [
        ("a/DT cat/NN and/CC a/DT dog/NN ./.", "a dog and a cat ."),
        ("There/EX are/VBP a/DT cat/NN and/CC a/DT black/JJ dog/NN", "There are a black dog and a cat"),
        ("A/DT cat/NN and/CC a/DT dog/NN are/VBP asleep/JJ", "A dog and a cat are asleep"),
        ("a/DT table/NN with/IN forks/NNS and/CC knives/NNS", "a table with knives and forks"),
        ("a/DT table/NN with/IN an/DT apple/NN and/CC knife/NN", "a table with a knife and apple"),
    ],
)
def test_coordination(caption, other):
    assert reword(caption, "coordination") == {other}


@pytest.mark.parametrize(
    "caption",
    [
        "a/DT man/NN with/IN a/DT cat/NN and/CC a/DT dog/NN",
        "a/DT sink/NN and/CC a/DT toilet/NN with/IN the/DT lid/NN up/RB",
        "a/DT cat/NN ~,/, a/DT dog/NN and/CC a/DT bird/NN",
        "two/CD men/NNS and/CC women/NNS",
        "green/JJ beans/NNS and/CC carrots/NNS",
        "a/DT cup/NN of/IN coffee/NN and/CC cake/NN",
        "a/DT plate/NN and/CC food/NN",
        "fish/NN and/CC chips/NNS",
        "salt/NN and/CC pepper/NN",
    ],
)
def test_coordination_that_could_change_the_meaning_stays(caption):
    assert not reword(caption, "coordination")


# Converse relations


@pytest.mark.parametrize(
    ("caption", "other"),
    [
        ("a/DT red/JJ cube/NN left/RB of/IN an/DT owl/NN", "an owl right of a red cube"),
        ("A/DT cube/NN is/VBZ above/IN the/DT ball/NN ./.", "The ball is below a cube ."),
        ("a/DT photo/NN of/IN a/DT cube/NN over/IN two/CD balls/NNS", "a photo of two balls under a cube"),
        ("a/DT cat/NN next/RB to/IN a/DT dog/NN", "a dog next to a cat"),
        (
            "a/DT cube/NN to/IN the/DT left/NN of/IN a/DT ball/NN on/IN a/DT white/JJ background/NN",
            "a ball to the right of a cube on a white background",
        ),
    ],
)
def test_converse(caption, other):
    assert reword(caption, "converse") == {other}


@pytest.mark.parametrize(
    "caption",
    [
        "A/DT cube/NN is/VBZ above/IN two/CD balls/NNS",
        "There/EX is/VBZ a/DT cube/NN above/IN two/CD balls/NNS",
        "a/DT cat/NN in/IN front/NN of/IN a/DT television/NN",
        "a/DT cat/NN above/IN a/DT dog/NN in/IN a/DT box/NN",
        "a/DT cat/NN above/IN a/DT dog/NN and/CC left/RB of/IN a/DT bird/NN",
        "a/DT cat/NN sitting/VBG above/IN a/DT dog/NN",
        "a/DT cat/NN above/IN its/PRP$ owner/NN",
    ],
)
def test_what_says_more_than_the_relation_stays(caption):
    assert not reword(caption, "converse")


def test_the_converse_of_the_converse_is_the_relation_where_both_are_listed():
    for relation, other in CONVERSES.items():
        assert CONVERSES[other] == relation or relation in ("beneath", "underneath")
    for phrases in RELATIONS.values():
        assert set(phrases) <= set(CONVERSES)


# Prefixes


def test_a_bare_noun_phrase_gets_a_prefix():
    assert reword("A/DT dog/NN on/IN a/DT mat/NN", "prefix") == {
        "A photo of a dog on a mat",
        "A picture of a dog on a mat",
        "An image of a dog on a mat",
        "There is a dog on a mat",
    }
    assert "there are two dogs" in reword("two/CD dogs/NNS", "prefix")
    assert not any("here is" in text for text in reword("the/DT dogs/NNS", "prefix"))


def test_prefixes_change_and_go():
    assert reword("a/DT photo/NN of/IN a/DT dog/NN", "prefix") == {"a picture of a dog", "an image of a dog"}
    assert reword("There/EX is/VBZ an/DT owl/NN", "prefix") == {"An owl"}


@pytest.mark.parametrize(
    "caption",
    [
        "A/DT dog/NN sits/VBZ on/IN a/DT mat/NN",
        "a/DT close/JJ view/NN of/IN a/DT dog/NN",
        "a/DT close/JJ up/NN of/IN a/DT dog/NN",
        "his/PRP$ dog/NN",
        "A/DT dog/NN ./. A/DT cat/NN ./.",
        "There/EX is/VBZ a/DT dog/NN and/CC it/PRP sits/VBZ",
        "People/NNS line/VB up/RP for/IN food/NN",
    ],
)
def test_no_prefix_before_a_sentence(caption):
    assert not reword(caption, "prefix")


def test_capitals_stay_capitals():
    shouted = "A/DT DOG/NN NEXT/JJ|ADV TO/IN A/DT CAT/NN"
    assert reword(shouted, "converse") == {"A CAT NEXT TO A DOG"}
    assert "A PHOTO OF A DOG NEXT TO A CAT" in reword(shouted, "prefix")


# Synonyms


@pytest.mark.parametrize(
    ("caption", "others"),
    [
        ("a/DT big/JJ couch/NN", {"a large couch", "a big sofa"}),
        (
            "TV/NN next/RB to/IN two/CD bikes/NNS",
            {"Television next to two bikes", "TV beside two bikes", "TV next to two bicycles"},
        ),
        (
            "a/DT fridge/NN underneath/IN it/PRP",
            {"a refrigerator underneath it", "a fridge beneath it", "a fridge under it"},
        ),
        ("an/DT automobile/NN", {"a car"}),
        ("a/DT lot/NN of/IN dogs/NNS", {"many dogs"}),
    ],
)
def test_synonyms(caption, others):
    assert reword(caption, "synonym") == others


@pytest.mark.parametrize(
    "caption",
    [
        "Big/NNP Ben/NNP",
        "a/DT view/NN of/IN Big/JJ Ben/NNP",
        "a/DT big/JJ brother/NN",
        "a/DT little/JJ girl/NN",
        "a/DT little/JJ blurry/JJ",
        "a/DT little/JJ bit/NN",
        "TV/NN show/NN",
        "two/CD dogs/NNS next/RB to/IN each/DT other/JJ",
        "a/DT lot/NN of/IN food/NN",
        "a/DT couch/NN ~-/HYPH ~bed/NN ./.",
    ],
)
def test_synonyms_out_of_their_sense_stay(caption):
    assert not reword(caption, "synonym")


def test_no_synonym_leads_to_itself():
    assert all(" ".join(synonym.words) != synonym.other.lower() for synonym in SYNONYMS)


# Adjectives and contraction


def test_adjectives():
    assert reword("an/DT orange/JJ and/CC white/JJ cat/NN", "adjectives") == {"a white and orange cat"}


@pytest.mark.parametrize(
    "caption",
    [
        "a/DT black/JJ and/CC white/JJ photo/NN",
        "a/DT black/JJ and/CC white/JJ city/NN scene/NN",
        "a/DT very/RB big/JJ and/CC red/JJ cat/NN",
        "a/DT dark/JJ blue/JJ and/CC white/JJ cat/NN",
        "a/DT red/JJ ~,/, blue/JJ and/CC white/JJ flag/NN",
    ],
)
def test_adjectives_of_one_order_stay(caption):
    assert not reword(caption, "adjectives")


@pytest.mark.parametrize(
    ("caption", "other"),
    [
        ("a/DT dog/NN that/WDT is/VBZ lying/VBG on/IN a/DT mat/NN", "a dog lying on a mat"),
        ("A/DT dog/NN which/WDT is/VBZ on/IN a/DT mat/NN", "A dog on a mat"),
        ("A/DT dog/NN is/VBZ lying/VBG on/IN a/DT mat/NN ./.", "A dog lying on a mat ."),
    ],
)
def test_contraction(caption, other):
    assert reword(caption, "contraction") == {other}


@pytest.mark.parametrize(
    "caption",
    [
        "a/DT cat/NN that/WDT is/VBZ black/JJ",
        "A/DT dog/NN is/VBZ not/RB lying/VBG on/IN a/DT mat/NN",
        "A/DT dog/NN is/VBZ lying/VBG and/CC a/DT cat/NN is/VBZ sitting/VBG",
        "A/DT dog/NN is/VBZ black/JJ",
    ],
)
def test_contraction_that_would_leave_no_english_stays(caption):
    assert not reword(caption, "contraction")


# Properties


def test_spans_say_what_was_changed():
    (exchanged,) = hard_positives(gold("a/DT cat/NN and/CC a/DT dog/NN"), rules=("coordination",))
    assert exchanged.spans == ((0, 5), (10, 15)) and exchanged.rule == "coordination"
    (replaced,) = hard_positives(gold("a/DT couch/NN"), rules=("synonym",))
    assert replaced.spans == ((2, 7),)


def test_all_outside_the_spans_stays(docs):
    number = 0
    for doc in docs:
        for rewording in hard_positives(doc, num_positives=5):
            number += 1
            before = doc.text[: rewording.spans[0][0]].casefold().removesuffix("an ").removesuffix("a ")
            assert rewording.text.casefold().startswith(before)
            assert rewording.text.endswith(doc.text[rewording.spans[-1][1] :][1:])
    assert number > 300


def test_never_the_caption_and_never_twice(docs):
    for doc in docs:
        texts = [" ".join(rewording.text.casefold().split()) for rewording in hard_positives(doc, num_positives=50)]
        assert len({" ".join(doc.text.casefold().split()), *texts}) == len(texts) + 1


def test_seed_and_caption_alone_decide_and_fewer_are_the_first_of_more(docs):
    few = docs[:50]
    forwards = [hard_positives(doc, num_positives=4, seed=2) for doc in few]
    assert forwards == [hard_positives(doc, rules=RULES[::-1], num_positives=4, seed=2) for doc in few[::-1]][::-1]
    assert forwards != [hard_positives(doc, num_positives=4, seed=3) for doc in few]
    assert [rewordings[:1] for rewordings in forwards] == [hard_positives(doc, seed=2) for doc in few]


@pytest.mark.parametrize("caption", ["", "🐕/SYM", "./.", "running/VBG", " ".join(["the/DT"] * 300)])
def test_captions_without_another_wording(caption):
    assert hard_positives(gold(caption), num_positives=3) == []


def test_one_word_and_letters_beyond_ascii():
    assert reword("couch/NN", "synonym") == {"sofa"}
    assert reword("🐕/SYM Äpfelchen/NN auf/IN der/DT couch/NN", "synonym") == {"🐕 Äpfelchen auf der sofa"}


@pytest.mark.parametrize("rules", [(), "prefix", ("prefix", "back_translation")])
def test_unknown_rules_are_refused(rules):
    with pytest.raises(ValueError, match="coordination, converse, prefix"):
        hard_positives(gold("a/DT cat/NN"), rules=rules)


def test_no_positives_are_refused():
    with pytest.raises(ValueError, match="expected 1 or more"):
        hard_positives(gold("a/DT cat/NN"), num_positives=0)
