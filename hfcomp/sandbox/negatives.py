"""Exact hard negatives: a caption that is false of a scene by one edit, and the scene of which it is true."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hfcomp.sandbox.captions import RELATIONS, Caption, relation_between
from hfcomp.sandbox.scenes import COLOURS, GRID, SHAPES, SIZES, Scene, Thing

OPPOSITES = {"left": "right", "right": "left", "above": "below", "below": "above"}
# Synthetic ratings on the 1 to 5 scale of concreteness norms: made up here and in no way measured on people.
SYNTHETIC_CONCRETENESS = (
    dict.fromkeys(SHAPES, 4.9)
    | dict.fromkeys(COLOURS, 4.5)
    | dict.fromkeys(SIZES, 3.5)
    | dict.fromkeys(("left", "right", "above", "over", "below", "under"), 3.4)
)


@dataclass(frozen=True, slots=True)
class Negative:
    """A false caption and the scene that would make it true.

    Attributes:
        caption: the false caption; `caption.text(scene)` gives its words.
        scene: the counterfactual scene: the original with the edited things changed and nothing else.
        kind: a key of `EDITS`.
        keyword: the word of the true caption that the edit changes, a key of `SYNTHETIC_CONCRETENESS`. Where the two
            things exchange places it is the relation's word, since the relation is what becomes false.
    """

    caption: Caption
    scene: Scene
    kind: str
    keyword: str

    @property
    def column_kind(self) -> str:
        """The kind in the fixed vocabulary of data columns, which counts a size as an attribute."""
        return "replace_att" if self.kind == "replace_size" else self.kind

    @property
    def category(self) -> str:
        """`attribute`, `object` or `relation`: what becomes false."""
        return CATEGORIES[self.kind]

    @property
    def concreteness(self) -> float:
        """Synthetic concreteness of the keyword, 1 (abstract) to 5 (concrete)."""
        return SYNTHETIC_CONCRETENESS[self.keyword]


def applicable_kinds(caption: Caption) -> tuple[str, ...]:
    """The kinds of edit that this caption allows, in the order of `EDITS`."""
    allowed = {"replace_att", "replace_obj"}
    if len(caption.mentioned) == 2:
        allowed.add("swap_att")
    if caption.says_size:
        allowed.add("replace_size")
    if caption.relation:
        allowed |= {"replace_rel", "swap_obj"}
    return tuple(kind for kind in EDITS if kind in allowed)


def draw_negative(generator: np.random.Generator, scene: Scene, caption: Caption, kind: str) -> Negative:
    """Draw a hard negative.

    Args:
        generator: source of randomness, for what is edited and into what.
        scene: the original scene.
        caption: a caption that is true of it.
        kind: one of `applicable_kinds(caption)`.

    Returns:
        A negative whose caption is false of `scene` and true of its own scene.

    Raises:
        ValueError: the caption does not allow an edit of this kind.
    """
    if kind not in applicable_kinds(caption):
        raise ValueError(f"'{caption.text(scene)}' allows {applicable_kinds(caption)}, not {kind!r}.")
    return EDITS[kind](generator, scene, caption)


def _with_things(scene: Scene, changes: dict[int, Thing]) -> Scene:
    return replace(scene, things=tuple(changes.get(i, thing) for i, thing in enumerate(scene.things)))


def _pick(generator: np.random.Generator, options: Sequence):
    return options[int(generator.random() * len(options))]


def _swap_colours(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    i, j = caption.mentioned
    first, second = scene.things[i], scene.things[j]
    changes = {i: replace(first, colour=second.colour), j: replace(second, colour=first.colour)}
    return Negative(caption, _with_things(scene, changes), "swap_att", first.colour)


def _replace_colour(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    i = _pick(generator, caption.mentioned)
    # Only colours that the scene lacks, so that no two things of the new scene share one.
    taken = {thing.colour for thing in scene.things}
    colour = _pick(generator, [colour for colour in COLOURS if colour not in taken])
    changes = {i: replace(scene.things[i], colour=colour)}
    return Negative(caption, _with_things(scene, changes), "replace_att", scene.things[i].colour)


def _replace_size(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    i = _pick(generator, caption.mentioned)
    thing = scene.things[i]
    changes = {i: replace(thing, size=SIZES[1 - SIZES.index(thing.size)])}
    return Negative(caption, _with_things(scene, changes), "replace_size", thing.size)


def _replace_shape(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    i = _pick(generator, caption.mentioned)
    taken = {thing.shape for thing in scene.things}
    shape = _pick(generator, [shape for shape in SHAPES if shape not in taken])
    changes = {i: replace(scene.things[i], shape=shape)}
    return Negative(caption, _with_things(scene, changes), "replace_obj", scene.things[i].shape)


def _exchange_places(scene: Scene, caption: Caption) -> Scene:
    i, j = caption.mentioned
    first, second = scene.things[i], scene.things[j]
    moved = {
        i: replace(first, row=second.row, column=second.column),
        j: replace(second, row=first.row, column=first.column),
    }
    return _with_things(scene, moved)


def _relation_keyword(caption: Caption) -> str:
    return next(word for word in caption.link.split() if word in SYNTHETIC_CONCRETENESS)


def _replace_relation(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    """The opposite relation, by exchanging places, or one along the other axis, by moving the thing named first."""
    i, j = caption.mentioned
    first, second = scene.things[i], scene.things[j]
    options = {OPPOSITES[caption.relation]: [_exchange_places(scene, caption)]}
    taken = {(thing.row, thing.column) for thing in scene.things}
    for row, column in np.ndindex(GRID, GRID):
        moved = replace(first, row=row, column=column)
        relation = relation_between(moved, second)
        crosses = relation not in (None, caption.relation, OPPOSITES[caption.relation])
        if crosses and (row, column) not in taken:
            options.setdefault(relation, []).append(_with_things(scene, {i: moved}))
    relation = _pick(generator, tuple(options))
    style = RELATIONS[caption.relation].index(caption.link)
    false = replace(caption, link=RELATIONS[relation][style])
    return Negative(false, _pick(generator, options[relation]), "replace_rel", _relation_keyword(caption))


def _swap_things(generator: np.random.Generator, scene: Scene, caption: Caption) -> Negative:
    false = replace(caption, mentioned=caption.mentioned[::-1])
    return Negative(false, _exchange_places(scene, caption), "swap_obj", _relation_keyword(caption))


EDITS: dict[str, Callable[[np.random.Generator, Scene, Caption], Negative]] = {
    "swap_att": _swap_colours,
    "replace_att": _replace_colour,
    "replace_size": _replace_size,
    "replace_obj": _replace_shape,
    "replace_rel": _replace_relation,
    "swap_obj": _swap_things,
}
CATEGORIES = {
    "swap_att": "attribute",
    "replace_att": "attribute",
    "replace_size": "attribute",
    "replace_obj": "object",
    "replace_rel": "relation",
    "swap_obj": "relation",
}
