"""What is wrong in real training data, in known doses: edits that do not show, false captions, true negatives."""

from dataclasses import dataclass, replace

import numpy as np

from hfcomp.sandbox.captions import paraphrase
from hfcomp.sandbox.drawing import DrawnRow
from hfcomp.sandbox.negatives import draw_negative
from hfcomp.sandbox.rendering import changed_cells
from hfcomp.sandbox.scenes import JITTERS, Cell, Scene, is_novel

# Sizes, numbers, relations and "plain" are below; shapes, colors and "striped" above.
STEP = 4.0


@dataclass(frozen=True)
class Noise:
    """How often a training row is wrong as real data is; each a probability in 0 to 1.

    Attributes:
        edit: that a counterfactual image does not show its change, for words of drawability 3 or less. It falls in a
            straight line to 0 at 5: a generator draws another shape more reliably than another relation.
        caption: that the caption has a false word, as in noisy text.
        false_negative: that the negative is another wording of the caption, and its image another shot of the scene.
        edit_step: whether `edit` is a step instead: all of it for words of drawability below `STEP`, else 0.
    """

    edit: float = 0.0
    caption: float = 0.0
    false_negative: float = 0.0
    edit_step: bool = False

    def __post_init__(self) -> None:
        for name in ("edit", "caption", "false_negative"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} noise is a probability from 0 to 1, not {getattr(self, name)!r}.")

    def of_edit(self, drawability: float) -> float:
        """The probability that an edit of a word does not show, from its drawability of 1 to 5."""
        if self.edit_step:
            return self.edit * (drawability < STEP)
        return self.edit * min(1.0, (5 - drawability) / 2)


def with_noise(generator: np.random.Generator, row: DrawnRow, noise: Noise) -> DrawnRow:
    """The clean row with what chance makes wrong, named in `noise`."""
    # Three numbers for every row, noisy or not, and a separate generator for what a noisy row draws besides: a dose of
    # noise changes the rows it hits and moves no later one. Runs with different doses train on the same scenes.
    caption, false_negative, edit = generator.random(3).tolist()
    generator = generator.spawn(1)[0]
    negative, found = row.negatives[0], []
    # An edit that does not show leaves the same things half a pixel aside, like an editor that draws them once more.
    drawn_again = _drawn_again(generator, row.scene, changed_cells(row.scene, negative.scene))
    if caption < noise.caption:
        row = replace(row, said=_misread(generator, row))
        found.append("caption")
    if false_negative < noise.false_negative:
        true = replace(negative, caption=paraphrase(generator, row.caption), scene=row.scene)
        row = replace(row, negatives=(true, *row.negatives[1:]), shown=drawn_again)
        found.append("false_negative")
    elif edit < noise.of_edit(negative.drawability):
        row = replace(row, shown=drawn_again)
        found.append("edit")
    return replace(row, noise=tuple(found))


def _misread(generator: np.random.Generator, row: DrawnRow) -> Scene:
    """A scene with one mentioned shape or color replaced, which no negative describes and training could show."""
    # Otherwise the false caption would equal a negative, or reveal a novel combination of the evaluation.
    negatives = {negative.caption.text(negative.scene) for negative in row.negatives}
    while True:
        kind = "replace_obj" if generator.random() < 0.5 else "replace_att"
        wrong = draw_negative(generator, row.scene, row.caption, kind).scene
        if row.caption.text(wrong) not in negatives and not is_novel(wrong.things):
            return wrong


def _drawn_again(generator: np.random.Generator, scene: Scene, cells: frozenset[Cell]) -> Scene:
    """The same scene with the things in these cells elsewhere within them."""
    jitters = generator.integers(JITTERS, size=(len(scene.things), 2)).tolist()
    things = tuple(
        replace(thing, jitter=tuple(jitter)) if cells & set(thing.cells) else thing
        for thing, jitter in zip(scene.things, jitters, strict=True)
    )
    return replace(scene, things=things)
