"""Adds defects of real training data at known rates: invisible edits, false captions, negatives that are true."""

from dataclasses import dataclass, replace

import numpy as np

from hfcomp.sandbox.captions import paraphrase
from hfcomp.sandbox.drawing import DrawnRow
from hfcomp.sandbox.negatives import draw_negative
from hfcomp.sandbox.rendering import changed_cells
from hfcomp.sandbox.scenes import JITTERS, Cell, Scene, is_novel

# Drawability of sizes, numbers, relations and "plain" is below, that of shapes, colors and "striped" above.
STEP = 4.0


@dataclass(frozen=True)
class Noise:
    """Probabilities, each from 0 to 1, of defects in a training row that also occur in real data.

    Attributes:
        edit: Probability that a counterfactual image does not show its change, for words of drawability 3 or less. It
            falls linearly to 0 at 5, because a generator draws another shape more reliably than another relation.
        caption: Probability that the caption contains a false word, as in noisy text.
        false_negative: Probability that the negative paraphrases the caption, and its image shows the scene again.
        edit_step: Whether `edit` is a step instead: applied in full to words of drawability below `STEP`, otherwise
            not at all.
    """

    edit: float = 0.0
    caption: float = 0.0
    false_negative: float = 0.0
    edit_step: bool = False

    def __post_init__(self) -> None:
        for name in ("edit", "caption", "false_negative"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} noise: found {getattr(self, name)!r}, expected a probability from 0 to 1.")

    def edit_probability(self, drawability: float) -> float:
        """Returns the probability that an edit of a word is invisible, from its drawability of 1 to 5."""
        if self.edit_step:
            return self.edit * (drawability < STEP)
        return self.edit * min(1.0, (5 - drawability) / 2)


def add_noise(generator: np.random.Generator, row: DrawnRow, noise: Noise) -> DrawnRow:
    """Adds random defects to a clean row, and lists them in its `noise`."""
    # Draw three numbers for every row, noisy or not, and use a separate generator for further draws. Noise then
    # changes the affected rows but no later row, so runs with different noise train on the same scenes.
    caption, false_negative, edit = generator.random(3).tolist()
    generator = generator.spawn(1)[0]
    negative, defects = row.negatives[0], []
    # An invisible edit shifts the same things by half a pixel, like an editor that redraws them.
    redrawn = _redraw_things(generator, row.scene, changed_cells(row.scene, negative.scene))
    if caption < noise.caption:
        row = replace(row, described=_draw_false_scene(generator, row))
        defects.append("caption")
    if false_negative < noise.false_negative:
        true = replace(negative, caption=paraphrase(generator, row.caption), scene=row.scene)
        row = replace(row, negatives=(true, *row.negatives[1:]), shown=redrawn)
        defects.append("false_negative")
    elif edit < noise.edit_probability(negative.drawability):
        row = replace(row, shown=redrawn)
        defects.append("edit")
    return replace(row, noise=tuple(defects))


def _draw_false_scene(generator: np.random.Generator, row: DrawnRow) -> Scene:
    """Draws a scene with one mentioned shape or color replaced that no negative describes and training may show."""
    # Otherwise the false caption would equal a negative, or reveal a novel combination of the evaluation.
    negatives = {negative.caption.text(negative.scene) for negative in row.negatives}
    while True:
        kind = "replace_obj" if generator.random() < 0.5 else "replace_att"
        wrong = draw_negative(generator, row.scene, row.caption, kind).scene
        if row.caption.text(wrong) not in negatives and not is_novel(wrong.things):
            return wrong


def _redraw_things(generator: np.random.Generator, scene: Scene, cells: frozenset[Cell]) -> Scene:
    """Returns the scene with the things in these cells shifted within their cells."""
    jitters = generator.integers(JITTERS, size=(len(scene.things), 2)).tolist()
    things = tuple(
        replace(thing, jitter=tuple(jitter)) if cells & set(thing.cells) else thing
        for thing, jitter in zip(scene.things, jitters, strict=True)
    )
    return replace(scene, things=things)
