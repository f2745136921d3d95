"""A caption and a set of images, one of which it describes: is that one scored strictly higher? (SPEC)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.protocols.parts import concatenated
from hfcomp.evaluation.spec import ROWS_AT_A_TIME, Measured, ScoringProtocol
from hfcomp.metrics.choice import choose, pair_scores


@dataclass(frozen=True)
class ImageChoice(ScoringProtocol):
    """Columns `image`, `candidates` and `caption`: the caption's own image against the others of its set.

    The images of a set are those of the rows with the same name in `candidates`, each distinct one counted once. A row
    without a caption is a candidate only.
    """

    optional_texts = ("caption",)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return ("image choice",)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """The metric "image choice"; chance is 1/K among K images."""
        found, columns = embedded.images["image"], embedded.items.rows
        rivals = _rivals(columns["candidates"][:], found.index)
        asked = np.array([bool(text) for text in columns["caption"]])
        rows = np.flatnonzero(asked & (rivals >= 0).any(axis=1))
        outcomes = []
        for start in range(0, len(rows), ROWS_AT_A_TIME):
            part = rows[start : start + ROWS_AT_A_TIME]
            text, mask = embedded.text("caption", part), rivals[part] >= 0
            other = found.vectors[np.where(mask, rivals[part], 0)]
            outcomes.append(choose(pair_scores(text, embedded.image("image", part)), pair_scores(text, other), mask))
        outcome = concatenated(outcomes)
        chance = 1 / (1 + (rivals[rows] >= 0).sum(axis=1))
        yield Measured("image choice", outcome.correct, outcome.tie, chance, rows=rows)


def _rivals(names: list[str], image: NDArray[np.integer]) -> NDArray[np.integer]:
    """`[n, K]`, the other images of each row's set; -1 where it has fewer than K."""
    of_set = np.unique(np.asarray(names, dtype=object), return_inverse=True)[1]
    members = [np.unique(image[of_set == number]) for number in range(int(of_set.max(initial=-1)) + 1)]
    found = np.full((len(names), max(1, *map(len, members))), -1)
    for row, number in enumerate(of_set):
        others = members[number][members[number] != image[row]]
        found[row, : len(others)] = others
    return found
