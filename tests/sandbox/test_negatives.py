"""Hard negatives: false by one edit in words and in pixels, and labeled as what they are."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from hfcomp.data.columns import NEGATIVE_KINDS
from hfcomp.sandbox.captions import RELATIONS, Caption
from hfcomp.sandbox.negatives import DRAWABILITY, EDITS, applicable_kinds, draw_negative
from hfcomp.sandbox.rendering import changed_cells, encode_mask, render
from hfcomp.sandbox.scenes import MOST_OBJECTS, Scene, Thing

from .drawn import ADDING, drawn_negatives
from .eyes import differing_cells
from .reader import is_true

SCENE = Scene(
    (Thing("ring", "red", "small", "plain", (0, 0)), Thing("star", "blue", "large", "plain", (0, 2))), "navy"
)
SWAPPING = ("swap_att", "swap_obj", "swap_rel")
RELATING = ("swap_obj", "swap_rel", "replace_rel", "add_rel")
_RELATION = re.compile(r"(to the )?(left|right) of|above|over|below|under")
_RELATION_WORD = re.compile(r"left|right|above|over|below|under")
# Which fields of a thing an edit changes, and of how many things.
CHANGES = {
    "swap_att": ({"color"}, 2),
    "swap_obj": ({"cell"}, 2),
    "swap_rel": ({"cell"}, 2),
    "replace_att": ({"color"}, 1),
    "replace_size": ({"size"}, 1),
    "replace_texture": ({"texture"}, 1),
    "replace_count": ({"twins"}, 1),
    "replace_obj": ({"shape"}, 1),
    "replace_rel": ({"cell"}, None),
    "add_att": ({"size", "texture"}, 1),
    "add_obj": (set(), 0),
    "add_rel": ({"cell"}, None),
}
FIELDS = ("shape", "color", "size", "texture", "cell", "twins", "jitter")


def plain_words(text):
    """The words, with articles, numbers of the verb and plurals that follow another word levelled."""
    level = {"an": "a", "are": "is", "crosses": "cross"}
    return [level.get(word, re.sub(r"^(?!across)(\w+[^s])s$", r"\1", word)) for word in text.split()]


def test_every_kind_is_drawn():
    assert {negative.kind for _, _, negative in drawn_negatives()} == set(EDITS) == set(CHANGES)


def test_negatives_are_false_of_the_scene_and_true_of_the_counterfactual():
    for scene, caption, negative in drawn_negatives():
        text = negative.caption.text(negative.scene)
        assert not is_true(text, scene)
        assert is_true(text, negative.scene)
        assert is_true(caption.text(scene), negative.scene) == (negative.kind in ADDING)


def test_counterfactual_scenes_are_scenes_of_the_world():
    for scene, _, negative in drawn_negatives():
        things = negative.scene.things
        assert len(things) == len(scene.things) + (negative.kind == "add_obj")
        assert negative.scene.objects <= MOST_OBJECTS
        cells = [cell for t in things for cell in t.cells] + list(negative.scene.specks)
        for values in ([t.shape for t in things], [t.color for t in things], cells):
            assert len(set(values)) == len(values)


def test_only_the_edit_changes_in_the_scene():
    for scene, _, negative in drawn_negatives():
        assert replace(negative.scene, things=scene.things) == scene
        pairs = list(zip(scene.things, negative.scene.things, strict=False))
        fields, number = CHANGES[negative.kind]
        changed = [{field for field in FIELDS if getattr(a, field) != getattr(b, field)} for a, b in pairs]
        assert set().union(*changed) <= fields
        assert sum(map(bool, changed)) == number or number is None and any(changed)


def test_only_the_edit_changes_in_the_words():
    for scene, caption, negative in drawn_negatives():
        before, after = caption.text(scene), negative.caption.text(negative.scene)
        assert before != after
        if negative.kind in ("swap_att", "swap_obj"):
            assert sorted(plain_words(before)) == sorted(plain_words(after))
        elif negative.kind in ("swap_rel", "replace_rel"):
            assert _RELATION.sub("-", before) == _RELATION.sub("-", after)
        elif negative.kind == "add_rel":
            assert re.sub(r"\b(and|with)\b", "-", before) == _RELATION.sub("-", after)
        elif negative.kind.startswith("replace"):
            pairs = zip(plain_words(before), plain_words(after), strict=True)
            assert [a for a, b in pairs if a != b] == [negative.keyword]
        else:
            added = plain_words(after)
            for word in plain_words(before):
                added.remove(word)
            assert negative.keyword in added
            assert added == [negative.keyword] or negative.kind == "add_obj" and added[0] in ("and", "with")


def test_keyword_stands_in_the_caption_that_the_kind_edits():
    for scene, caption, negative in drawn_negatives():
        before = plain_words(caption.text(scene))
        after = plain_words(negative.caption.text(negative.scene))
        if negative.kind in ADDING:
            assert negative.keyword in after and negative.keyword not in before
        else:
            assert negative.keyword in before
        assert bool(_RELATION_WORD.fullmatch(negative.keyword)) == (negative.kind in RELATING)


def test_images_differ_exactly_where_the_mask_is_white():
    rows = drawn_negatives()
    originals, edits = render([scene for scene, _, _ in rows]), render([negative.scene for _, _, negative in rows])
    for (scene, _, negative), original, edit in zip(rows, originals, edits, strict=True):
        cells = changed_cells(scene, negative.scene)
        assert cells and differing_cells(original, edit) == cells
    mask = np.asarray(Image.open(io.BytesIO(encode_mask(cells))))
    assert differing_cells(mask, np.zeros_like(mask)) == cells


def test_labels():
    labels = {}
    for _, _, negative in drawn_negatives():
        labels.setdefault(negative.kind, set()).add((negative.column_kind, negative.category))
        assert negative.drawability == DRAWABILITY[negative.keyword]
        assert 1 <= negative.drawability <= 5
    assert all(len(label_set) == 1 for label_set in labels.values())
    by_kind = {kind: label_set.pop() for kind, label_set in labels.items()}
    assert {kind: category for kind, (_, category) in by_kind.items()} == {
        "swap_att": "attribute",
        "swap_obj": "relation",
        "swap_rel": "relation",
        "replace_att": "attribute",
        "replace_size": "attribute",
        "replace_texture": "attribute",
        "replace_count": "attribute",
        "replace_obj": "object",
        "replace_rel": "relation",
        "add_att": "attribute",
        "add_obj": "object",
        "add_rel": "relation",
    }
    assert {column_kind for column_kind, _ in by_kind.values()} <= set(NEGATIVE_KINDS)
    assert {kind for kind, (column_kind, _) in by_kind.items() if kind != column_kind} == {
        "replace_size",
        "replace_texture",
        "replace_count",
    }


def test_replaced_relations_keep_their_wording_style():
    for _, caption, negative in drawn_negatives():
        if negative.kind == "replace_rel":
            style = RELATIONS[caption.relations[0]].index(caption.links[0])
            assert negative.caption.links == (RELATIONS[negative.caption.relations[0]][style],)
            assert negative.caption.relations != caption.relations


def test_relations_become_any_other():
    pairs = {
        (*caption.relations, *negative.caption.relations)
        for _, caption, negative in drawn_negatives()
        if negative.kind == "replace_rel"
    }
    assert len(pairs) == 4 * 3


def test_kinds_that_a_caption_does_not_allow_are_refused():
    caption = Caption("", (0, 1), ("and",))
    assert applicable_kinds(SCENE, caption) == (
        "swap_att", "replace_att", "replace_obj", "add_att", "add_obj", "add_rel",
    )  # fmt: skip
    with pytest.raises(ValueError, match="replace_size"):
        draw_negative(np.random.default_rng(0), SCENE, caption, "replace_size")


def test_equal_relations_are_not_swapped():
    things = (*SCENE.things, Thing("heart", "pink", "small", "plain", (0, 1)))
    scene = replace(SCENE, things=things)
    same, other = Caption("", (0, 1, 2), ("left of", "left of")), Caption("", (2, 0, 1), ("right of", "left of"))
    assert "swap_rel" not in applicable_kinds(scene, same)
    assert "swap_rel" in applicable_kinds(scene, other)
