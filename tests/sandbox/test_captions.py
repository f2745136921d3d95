"""Captions: true, in the words of the grammar, paraphrased without a change of meaning, and cut into noun phrases."""

from dataclasses import replace

import numpy as np
import pytest

from hfcomp.sandbox.alt_text import PLACES, WORDS, draw_alt_text
from hfcomp.sandbox.captions import SIZE_WORDS, Caption, draw_caption, paraphrase, words
from hfcomp.sandbox.hierarchy import COLOR_FAMILIES, SHAPE_FAMILIES
from hfcomp.sandbox.scenes import Scene, Thing

from .drawn import ADDING, EVERYTHING, draw_scenes, drawn_captions, drawn_negatives
from .reader import is_tags, is_true, read

STAR = Thing("star", "blue", "large", "striped", (0, 2))
RING = Thing("ring", "orange", "small", "plain", (0, 0))
CROSSES = Thing("cross", "red", "small", "plain", (1, 1), ((2, 2),))


@pytest.mark.parametrize(
    ("things", "caption", "text"),
    [
        (
            (RING, STAR),
            Caption("a photo of", (1, 0), ("to the right of",), (0, 1), (), 0, False, "on a {} background"),
            "a photo of a large blue star to the right of a small orange ring on a navy background",
        ),
        (
            (RING, STAR, replace(CROSSES, cell=(2, 0), twins=())),
            Caption("", (0, 1, 2), ("left of", "above"), (), (1,), 1),
            "an orange ring left of a striped blue star and above a red cross",
        ),
        ((CROSSES, RING), Caption("there is", (0, 1), ("with",)), "there are two red crosses with an orange ring"),
        ((CROSSES, RING), Caption("there is", (1, 0), ("and",)), "there is an orange ring and two red crosses"),
        (
            (STAR,),
            Caption("", (0,), (), (0,), (0,), 1, True, "against a {} backdrop"),
            "a big striped blue star at the top right against a navy backdrop",
        ),
        ((replace(STAR, cell=(1, 1)),), Caption("", (0,), says_place=True), "a blue star in the middle"),
        ((replace(STAR, twins=((1, 1), (2, 2))),), Caption("an image of", (0,)), "an image of three blue stars"),
        (
            (RING, STAR, Thing("heart", "pink", "small", "plain", (2, 2))),
            Caption("", (0, 1, 2), ("with", "and")),
            "an orange ring with a blue star and a pink heart",
        ),
    ],
)
def test_caption_in_words(things, caption, text):
    scene = Scene(things, "navy")
    assert caption.text(scene) == text
    assert is_true(text, scene)


def test_captions_are_true_of_their_scenes():
    for scene, caption in drawn_captions():
        text = caption.text(scene)
        assert is_true(text, scene)
        assert all(len(said.colors) == len(said.shapes) == 1 for said in read(text).mentions)


@pytest.mark.parametrize(("forms", "tags"), [(WORDS, (0.05, 0.5)), (PLACES, (0.0, 0.0))])
def test_alt_texts_are_true_of_their_scenes(forms, tags):
    generator, texts = np.random.default_rng(0), set()
    for scene, caption in drawn_captions():
        if len(scene.things) == scene.objects or len(scene.things) == 1:
            text = draw_alt_text(generator, scene, caption, forms)
            assert is_true(text, scene)
            texts.add(text)
    lists = [text for text in texts if is_tags(text)]
    # What pretraining says of several things is mostly silent about what belongs to what.
    assert tags[0] <= len(lists) / len(texts) <= tags[1]
    assert {word for text in texts for word in text.split()} <= set(words())


def test_the_second_phase_names_one_of_several_things_and_its_place():
    generator = np.random.default_rng(0)
    several = [pair for pair in drawn_captions() if len(pair[0].things) == pair[0].objects > 1]
    texts = [draw_alt_text(generator, scene, caption, PLACES) for scene, caption in several]
    assert 0.7 < np.mean([" at the " in text or " in the middle" in text for text in texts]) < 1


def test_reader_tells_scenes_apart():
    # The reader that judges all else: most captions are false of another scene.
    pairs = drawn_captions()
    others = [scene for scene, _ in pairs[1:]]
    true = [is_true(caption.text(scene), other) for (scene, caption), other in zip(pairs, others, strict=False)]
    assert np.mean(true) < 0.01


@pytest.mark.parametrize(
    "text",
    [
        "a orange ring",
        "an red ring",
        "two red ring",
        "a red rings",
        "two red crosss",
        "there is two red rings",
        "there are a red ring",
        "a red striped ring",
        "a red ring and left of a blue star",
        "a red ring left of a blue star above a pink heart",
        "a red ring at the middle",
        "a warm round ring",
        "there is red and blue figures",
    ],
)
def test_reader_knows_its_language(text):
    with pytest.raises(AssertionError):
        read(text)


def test_every_word_of_the_grammar_is_said():
    texts = [caption.text(scene) for scene, caption in drawn_captions()]
    texts += [caption.generalized_text(scene) for scene, caption in drawn_captions()]
    said = {word for text in texts for word in text.split()}
    assert said <= set(words())
    # The names of levels have words that no caption says; they are read beside captions all the same.
    assert set(words()) - said <= {"one", "figures", "curved", "straight", "assorted", "motley"}


def test_what_is_asked_for_is_said():
    generator = np.random.default_rng(0)
    for scene in draw_scenes(4, 120):
        full, bare = draw_caption(generator, scene, **EVERYTHING), draw_caption(generator, scene)
        reading = read(full.text(scene))
        assert reading.background and all(mention.size and mention.texture for mention in reading.mentions)
        assert bool(reading.place) == (len(scene.things) == 1 and scene.objects == 1)
        if len(scene.things) == 2:
            assert bool(full.relations) == (scene.objects == 2)
        reading = read(bare.text(scene))
        assert not reading.background and not reading.place and not bare.relations
        assert not any(mention.size or mention.texture for mention in reading.mentions)


def test_three_things_in_a_corner_are_all_mentioned():
    generator = np.random.default_rng(0)
    corners = draw_scenes(4, 120)[5::6]
    assert {len(draw_caption(generator, scene, relation=1, three=1).mentioned) for scene in corners} == {3}


def test_paraphrases_are_true_and_worded_differently():
    generator = np.random.default_rng(0)
    for scene, caption in drawn_captions():
        text, other = caption.text(scene), paraphrase(generator, caption).text(scene)
        assert is_true(other, scene)
        assert other != text and content(other) == content(text)


def content(text):
    """The statements of a caption, regardless of order and words."""
    reading = read(text)
    return frozenset(reading.mentions), bool(reading.place), reading.background


def test_paraphrases_change_every_size_relation_and_background():
    generator = np.random.default_rng(0)
    sizes = {word for pair in SIZE_WORDS.values() for word in pair}
    for scene in draw_scenes(7, 120):
        caption = draw_caption(generator, scene, **EVERYTHING)
        first, second = caption.text(scene).split(), paraphrase(generator, caption).text(scene).split()
        assert not sizes & set(first) & set(second)
        assert ("background" in first) != ("background" in second)
        assert not {"above", "below"} & set(first) & set(second)
        assert ("to" in first) != ("to" in second) or not {"left", "right"} & set(first) or not caption.relations


def test_paraphrases_say_the_same_of_other_scenes():
    generator = np.random.default_rng(0)
    for scene, caption, negative in drawn_negatives():
        assert is_true(paraphrase(generator, caption).text(scene), negative.scene) == (negative.kind in ADDING)
        false = paraphrase(generator, negative.caption).text(negative.scene)
        assert is_true(false, negative.scene) and not is_true(false, scene)


def test_noun_phrases_cut_the_text():
    for scene, caption in drawn_captions():
        text = caption.text(scene)
        phrases, spans = caption.concepts(scene)
        assert [[text[start:end] for start, end in places] for places in spans] == [[phrase] for phrase in phrases]
        assert [read(phrase).mentions[0] for phrase in phrases] == list(read(text).mentions)


def test_generalized_captions_are_true_and_name_no_shape_or_color():
    for scene, caption in drawn_captions():
        general, reading = caption.generalized_text(scene), read(caption.text(scene))
        assert is_true(general, scene)
        for general_mention, mention in zip(read(general).mentions, reading.mentions, strict=True):
            assert mention.shapes <= general_mention.shapes and mention.colors <= general_mention.colors
        assert not {thing.shape for thing in scene.things} & set(general.split())


def test_generalized_captions_are_the_same_within_families_and_no_further():
    for scene, caption in drawn_captions():
        siblings = [
            replace(thing, shape=sibling(thing.shape, SHAPE_FAMILIES), color=sibling(thing.color, COLOR_FAMILIES))
            for thing in scene.things
        ]
        assert caption.generalized_text(replace(scene, things=tuple(siblings))) == caption.generalized_text(scene)
        first = caption.mentioned[0]
        siblings[first] = replace(siblings[first], color="green" if is_warm(siblings[first]) else "red")
        assert caption.generalized_text(replace(scene, things=tuple(siblings))) != caption.generalized_text(scene)


def sibling(name, families):
    """The next name of the same family."""
    family = next(names for names in families.values() if name in names)
    return family[(family.index(name) + 1) % len(family)]


def is_warm(thing):
    return thing.color in COLOR_FAMILIES["warm"]
