"""Exact hard negatives: captions that one edit makes false of a scene, with the scene of which they are true."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from hfcomp.sandbox.captions import (
    CONJUNCTIONS,
    COUNT_WORDS,
    OPPOSITES,
    RELATIONS,
    SIZE_WORDS,
    Caption,
    relation_between,
)
from hfcomp.sandbox.scenes import COLORS, JITTERS, MOST_OBJECTS, SHAPES, SIZES, TEXTURES, Scene, Thing

# How reliably an image editor draws a change of a word, from 1 (unreliable) to 5 (always): a made-up fact of this
# world. `edit_noise` follows it whatever ratings the rows have, because human ratings do not change images.
DRAWABILITY = (
    dict.fromkeys(SHAPES, 4.9)
    | dict.fromkeys(COLORS, 4.5)
    | {"striped": 4.1, "plain": 3.7}
    | dict.fromkeys(("two", "three"), 3.8)
    | dict.fromkeys(chain(*SIZE_WORDS.values()), 3.5)
    | dict.fromkeys(("left", "right", "above", "over", "below", "under"), 3.4)
)


@dataclass(frozen=True, slots=True)
class Negative:
    """False caption and the scene that would make it true.

    Attributes:
        caption: False caption; `caption.text(scene)` renders it.
        scene: Counterfactual scene: the original with only the edited things changed. For kinds that add, the true
            caption is also true of it.
        kind: Key of `EDITS`.
        keyword: Word of the true caption that the edit changes, or the word that it adds; a key of `DRAWABILITY`. If
            things exchange places, it is the word of the relation, because the relation becomes false.
    """

    caption: Caption
    scene: Scene
    kind: str
    keyword: str

    @property
    def column_kind(self) -> str:
        """The kind in the vocabulary of the data columns, which treats size, texture and number as attributes."""
        return "replace_att" if self.kind in ("replace_size", "replace_texture", "replace_count") else self.kind

    @property
    def category(self) -> str:
        """Category of what becomes false: `attribute`, `object` or `relation`."""
        return CATEGORIES[self.kind]

    @property
    def drawability(self) -> float:
        """Reliability, 1 to 5, with which an editor draws a change of the keyword."""
        return DRAWABILITY[self.keyword]


def applicable_kinds(scene: Scene, caption: Caption) -> tuple[str, ...]:
    """Returns the kinds of edits that a caption of a scene allows, in the order of `EDITS`."""
    things = [scene.things[index] for index in caption.mentioned]
    pair = len(things) == 2
    allowed = {
        "swap_att": len(things) > 1,
        "swap_obj": pair and bool(caption.relations),
        "swap_rel": len(set(caption.relations)) == 2,
        "replace_att": True,
        "replace_size": bool(caption.sized),
        "replace_texture": bool(caption.textured),
        "replace_count": len(scene.things) == 1 and things[0].count > 1,
        "replace_obj": True,
        "replace_rel": pair and bool(caption.relations),
        "add_att": not caption.sized or not caption.textured,
        "add_obj": _may_add_thing(scene, caption),
        "add_rel": pair and not caption.relations and relation_between(*things) is not None,
    }
    return tuple(kind for kind in EDITS if allowed[kind])


def _may_add_thing(scene: Scene, caption: Caption) -> bool:
    # Every thing is mentioned in an extensible list, and the scene has room for one more.
    says_all = len(caption.mentioned) == len(scene.things) and not caption.relations and not caption.says_place
    return says_all and scene.objects < MOST_OBJECTS


def draw_negative(generator: np.random.Generator, scene: Scene, caption: Caption, kind: str) -> Negative:
    """Draws a negative that is false of the scene and true of its own. The caption must allow the kind."""
    allowed = applicable_kinds(scene, caption)
    if kind not in allowed:
        raise ValueError(f"kind: found {kind!r}, but '{caption.text(scene)}' allows only {allowed}.")
    return EDITS[kind](generator, scene, caption)


def _with_things(scene: Scene, changes: dict[int, Thing]) -> Scene:
    return replace(scene, things=tuple(changes.get(i, thing) for i, thing in enumerate(scene.things)))


def _pick(generator: np.random.Generator, options: Sequence):
    return options[int(generator.random() * len(options))]


def _other_option(options: Sequence[str], present: str) -> str:
    return options[1 - options.index(present)]


def _swap_colors(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    i, j = caption.mentioned[:2]
    first, second = scene.things[i], scene.things[j]
    changes = {i: replace(first, color=second.color), j: replace(second, color=first.color)}
    return Negative(caption, _with_things(scene, changes), "swap_att", first.color)


def _exchange_places(scene: Scene, i: int, j: int) -> Scene:
    first, second = scene.things[i], scene.things[j]
    return _with_things(scene, {i: replace(first, cell=second.cell), j: replace(second, cell=first.cell)})


def _relation_keyword(link: str) -> str:
    return next(word for word in link.split() if word in DRAWABILITY)


def _swap_things(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    false = replace(caption, mentioned=caption.mentioned[::-1])
    return Negative(
        false, _exchange_places(scene, *caption.mentioned), "swap_obj", _relation_keyword(caption.links[0])
    )


def _swap_relations(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    """Turns "A left of B and above C" into "A above B and left of C" by exchanging the places of B and C."""
    _, j, k = caption.mentioned
    false = replace(caption, links=caption.links[::-1])
    return Negative(false, _exchange_places(scene, j, k), "swap_rel", _relation_keyword(caption.links[0]))


def _replace_trait(
    kind: str, trait: str, options: Sequence[str], generator: np.random.Generator, scene: Scene, caption: Caption
) -> Negative:
    """Replaces a thing's color or shape by one that the scene lacks, because no two things of a scene may share it."""
    i = _pick(generator, caption.mentioned)
    taken = {getattr(thing, trait) for thing in scene.things}
    changes = {trait: _pick(generator, [option for option in options if option not in taken])}
    false = _with_things(scene, {i: replace(scene.things[i], **changes)})
    return Negative(caption, false, kind, getattr(scene.things[i], trait))


def _replace_size(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    i = _pick(generator, caption.sized)
    thing = scene.things[i]
    changes = {i: replace(thing, size=_other_option(SIZES, thing.size))}
    return Negative(caption, _with_things(scene, changes), "replace_size", SIZE_WORDS[thing.size][caption.wording])


def _replace_texture(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    i = _pick(generator, caption.textured)
    thing = scene.things[i]
    changes = {i: replace(thing, texture=_other_option(TEXTURES, thing.texture))}
    return Negative(caption, _with_things(scene, changes), "replace_texture", thing.texture)


def _replace_count(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    # Two become three, three become two.
    (thing,) = scene.things
    twins = thing.twins[:1] if thing.count == 3 else (*thing.twins, _pick(generator, scene.free_cells()))
    changes = {0: replace(thing, twins=twins)}
    return Negative(caption, _with_things(scene, changes), "replace_count", COUNT_WORDS[thing.count])


def _false_relation(generator: np.random.Generator, scene: Scene, i: int, j: int) -> tuple[str, Scene]:
    """Draws a false relation with its scene: the opposite by exchanging places, or another by moving a thing."""
    first, second = scene.things[i], scene.things[j]
    true = relation_between(first, second)
    options = {OPPOSITES[true]: [_exchange_places(scene, i, j)]}
    for cell in scene.free_cells():
        moved = replace(first, cell=cell)
        relation = relation_between(moved, second)
        if relation not in (None, true, OPPOSITES[true]):
            options.setdefault(relation, []).append(_with_things(scene, {i: moved}))
    relation = _pick(generator, tuple(options))
    return relation, _pick(generator, options[relation])


def _replace_relation(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    relation, other = _false_relation(generator, scene, *caption.mentioned)
    style = RELATIONS[caption.relations[0]].index(caption.links[0])
    false = replace(caption, links=(RELATIONS[relation][style],))
    return Negative(false, other, "replace_rel", _relation_keyword(caption.links[0]))


def _add_relation(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    # "and" becomes a false relation, which holds in the new scene.
    relation, other = _false_relation(generator, scene, *caption.mentioned)
    link = RELATIONS[relation][CONJUNCTIONS.index(caption.links[0])]
    return Negative(replace(caption, links=(link,)), other, "add_rel", _relation_keyword(link))


def _add_attribute(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    # Add a size or texture that the caption does not mention and that differs from the thing's own.
    i = _pick(generator, caption.mentioned)
    thing = scene.things[i]
    field = _pick(generator, [name for name in ("sized", "textured") if not getattr(caption, name)])
    if field == "sized":
        changed = replace(thing, size=_other_option(SIZES, thing.size))
        keyword = SIZE_WORDS[changed.size][caption.wording]
    else:
        changed = replace(thing, texture=_other_option(TEXTURES, thing.texture))
        keyword = changed.texture
    return Negative(replace(caption, **{field: (i,)}), _with_things(scene, {i: changed}), "add_att", keyword)


def _add_thing(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    # The new thing is named last. Its shape and color are new, because things of a scene share neither.
    new = Thing(
        _pick(generator, [shape for shape in SHAPES if shape not in {t.shape for t in scene.things}]),
        _pick(generator, [color for color in COLORS if color not in {t.color for t in scene.things}]),
        _pick(generator, SIZES),
        _pick(generator, TEXTURES),
        _pick(generator, scene.free_cells()),
        jitter=(_pick(generator, range(JITTERS)), _pick(generator, range(JITTERS))),
    )
    index = len(scene.things)
    link = "and" if caption.links else _pick(generator, CONJUNCTIONS)
    false = replace(
        caption,
        mentioned=(*caption.mentioned, index),
        links=(*caption.links, link),
        sized=(*caption.sized, index) if caption.sized else (),
        textured=(*caption.textured, index) if caption.textured else (),
    )
    return Negative(false, replace(scene, things=(*scene.things, new)), "add_obj", new.shape)


EDITS: dict[str, Callable[[np.random.Generator, Scene, Caption], Negative]] = {
    "swap_att": _swap_colors,
    "swap_obj": _swap_things,
    "swap_rel": _swap_relations,
    "replace_att": partial(_replace_trait, "replace_att", "color", COLORS),
    "replace_size": _replace_size,
    "replace_texture": _replace_texture,
    "replace_count": _replace_count,
    "replace_obj": partial(_replace_trait, "replace_obj", "shape", SHAPES),
    "replace_rel": _replace_relation,
    "add_att": _add_attribute,
    "add_obj": _add_thing,
    "add_rel": _add_relation,
}
CATEGORIES = {
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
