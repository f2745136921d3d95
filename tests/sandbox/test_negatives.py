from dataclasses import replace

import numpy as np
import pytest

from hfcomp.sandbox.captions import RELATIONS, Caption, draw_caption, words
from hfcomp.sandbox.negatives import EDITS, SYNTHETIC_CONCRETENESS, applicable_kinds, draw_negative
from hfcomp.sandbox.rendering import CELL, render
from hfcomp.sandbox.scenes import Scene, Thing, draw_scene

from .reader import is_true

SCENE = Scene((Thing("ring", "red", "small", 0, 0), Thing("star", "blue", "large", 0, 2)), "navy")


def draw_captions(seed=0, count=600):
    generator = np.random.default_rng(seed)
    for i in range(count):
        scene = draw_scene(generator, 1 + i % 3)
        yield generator, scene, draw_caption(generator, scene, relation=0.7, size=0.5, background=0.3)


def draw_negatives():
    for generator, scene, caption in draw_captions():
        for kind in applicable_kinds(caption):
            yield scene, caption, draw_negative(generator, scene, caption, kind)


def test_captions_are_true_of_their_scenes():
    texts = set()
    for _, scene, caption in draw_captions():
        assert is_true(caption.text(scene), scene)
        texts.add(caption.text(scene))
    spoken = {word for text in texts for word in text.split()}
    assert spoken == set(words())


def test_caption_in_words():
    caption = Caption("a photo of", (1, 0), "to the right of", True, "on a {} background")
    text = "a photo of a large blue star to the right of a small red ring on a navy background"
    assert caption.text(SCENE) == text
    assert caption.relation == "right"


def test_negatives_are_false_of_the_scene_and_true_of_the_counterfactual():
    kinds = set()
    for scene, caption, negative in draw_negatives():
        assert not is_true(negative.caption.text(negative.scene), scene)
        assert is_true(negative.caption.text(negative.scene), negative.scene)
        assert not is_true(caption.text(scene), negative.scene)
        kinds.add(negative.kind)
    assert kinds == set(EDITS)


def test_counterfactual_scenes_are_scenes_of_the_world():
    for scene, _, negative in draw_negatives():
        things = negative.scene.things
        assert len(things) == len(scene.things)
        for values in ({t.shape for t in things}, {t.colour for t in things}, {(t.row, t.column) for t in things}):
            assert len(values) == len(things)


def test_only_the_edit_changes():
    for scene, caption, negative in draw_negatives():
        before, after = caption.text(scene).split(), negative.caption.text(negative.scene).split()
        assert negative.keyword in before
        if negative.kind in ("swap_att", "swap_obj"):
            assert sorted(before) == sorted(after) and before != after
        elif negative.kind != "replace_rel":
            assert [a for a, b in zip(before, after, strict=True) if a != b] == [negative.keyword]
        assert replace(negative.scene, things=scene.things) == scene


def test_images_differ_only_in_the_cells_of_changed_things():
    originals, negatives = zip(*((scene, negative.scene) for scene, _, negative in draw_negatives()), strict=True)
    changed = (render(originals) != render(negatives)).reshape(-1, 3, CELL, 3, CELL, 3).any(axis=(2, 4, 5))
    for scene, negative, cells in zip(originals, negatives, changed, strict=True):
        pairs = [(a, b) for a, b in zip(scene.things, negative.things, strict=True) if a != b]
        expected = {(thing.row, thing.column) for pair in pairs for thing in pair}
        assert {tuple(cell) for cell in np.argwhere(cells).tolist()} == expected


def test_labels():
    seen = {}
    for _, _, negative in draw_negatives():
        seen.setdefault(negative.kind, set()).add((negative.column_kind, negative.category))
        assert negative.concreteness == SYNTHETIC_CONCRETENESS[negative.keyword]
    assert seen == {
        "swap_att": {("swap_att", "attribute")},
        "replace_att": {("replace_att", "attribute")},
        "replace_size": {("replace_att", "attribute")},
        "replace_obj": {("replace_obj", "object")},
        "replace_rel": {("replace_rel", "relation")},
        "swap_obj": {("swap_obj", "relation")},
    }


def test_replaced_relations_keep_their_wording_style():
    for _, caption, negative in draw_negatives():
        if negative.kind == "replace_rel":
            style = RELATIONS[caption.relation].index(caption.link)
            assert negative.caption.link == RELATIONS[negative.caption.relation][style]
            assert negative.caption.relation != caption.relation


def test_kinds_that_a_caption_does_not_allow_are_refused():
    caption = Caption("", (0, 1), "and")
    assert applicable_kinds(caption) == ("swap_att", "replace_att", "replace_obj")
    with pytest.raises(ValueError, match="replace_size"):
        draw_negative(np.random.default_rng(0), SCENE, caption, "replace_size")
