"""The name of a concept and two images: does the image under that concept win? (CLEAR GLASS)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.engine import EmbeddedItems
from hfcomp.evaluation.spec import Measured, ScoringProtocol
from hfcomp.metrics.choice import ChoiceOutcome, choose, pair_scores


def draw_rivals(names: Sequence[str], candidates: int, seed: int) -> NDArray[np.intp]:
    """For each image, others that are not under the same concept.

    The released evaluation of the paper does not ask for that: its rivals often bear the anchor's own name, and such
    items have no answer.

    Args:
        names: `[n]`, the concept of each image on the level in question.
        candidates: images to choose from, the right one included; at least 2.
        seed: of the draw.

    Returns:
        `[n, candidates - 1]` indices of images, different ones in each row.

    Raises:
        ValueError: when some concept leaves fewer images than are asked for.
    """
    generator = np.random.default_rng(seed)
    concept = np.unique(np.asarray(names, dtype=object), return_inverse=True)[1]
    rivals = np.empty((len(names), candidates - 1), dtype=np.intp)
    for row, own in enumerate(concept):
        others = np.flatnonzero(concept != own)
        if len(others) < candidates - 1:
            raise ValueError(
                f"{len(others)} images are under another concept than {names[row]!r}: too few for a choice among "
                f"{candidates}. Lower the number of candidates or evaluate more images."
            )
        rivals[row] = generator.choice(others, candidates - 1, replace=False)
    return rivals


def level_choice(text: NDArray[np.float32], image: NDArray[np.float32], rivals: NDArray[np.intp]) -> ChoiceOutcome:
    """Whether a concept's name scores its own image strictly higher than every rival, in fp32.

    Args:
        text: `[n, D]`, the name of each image's concept, L2-normalised.
        image: `[n, D]`, L2-normalised.
        rivals: `[n, K]` of `draw_rivals`.

    Returns:
        Correct and tied items. Chance is 1 / (K + 1).
    """
    return choose(pair_scores(text, image), pair_scores(text, image[rivals]))


@dataclass(frozen=True)
class LevelChoice(ScoringProtocol):
    """Columns `image`, `level_1` to `level_4`: [`level_choice`] on every level of abstraction.

    Attributes:
        candidates: images to choose from, the right one included; chance is one in that many.
        seed: of the draw of rivals.
    """

    texts = ("level_1", "level_2", "level_3", "level_4")

    candidates: int = 2
    seed: int = 0

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """The metrics "level 1 image choice" and so on."""
        everyone = slice(None)
        for column in self.texts:
            names = embedded.items.rows[column][:]
            rivals = draw_rivals(names, self.candidates, self.seed)
            outcome = level_choice(embedded.text(column, everyone), embedded.image("image", everyone), rivals)
            metric = f"{column.replace('_', ' ')} image choice"
            yield Measured(metric, outcome.correct, outcome.tie, 1 / self.candidates)
