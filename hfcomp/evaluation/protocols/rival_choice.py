"""The name of a concept and its own image among a few that are not under it: does its own win?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.protocols.level_candidates import draw_rivals
from hfcomp.evaluation.protocols.level_choice import level_choice
from hfcomp.evaluation.spec import Measured, ScoringProtocol


@dataclass(frozen=True)
class RivalChoice(ScoringProtocol):
    """Columns `image` and those of `texts`, each the name of a concept of the image and a subset.

    `LevelChoice` asks for levels too, with images under several names, hard-negative groups and more candidates.

    Attributes:
        texts: the columns.
        candidates: images to choose from, the right one included; at least 2.
        seed: of the draw of rivals.
    """

    all_pairs = True

    texts: tuple[str, ...]
    candidates: int = 2
    seed: int = 0

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return ("image choice",)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """The metric "image choice"."""
        image = embedded.image("image", slice(None))
        for column in self.texts:
            rivals = draw_rivals(embedded.items.rows[column][:], self.candidates, self.seed)
            outcome = level_choice(embedded.text(column, slice(None)), image, rivals)
            subset = column.replace("_", " ")
            yield Measured("image choice", outcome.correct, outcome.tie, 1 / self.candidates, subset=subset)
