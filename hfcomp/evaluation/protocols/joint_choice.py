"""Choices among captions that count together: are all images of a pair, or of a set, described rightly? (What'sUp)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from hfcomp.evaluation.encoding.embedded import ScoredItems
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.spec import BenchmarkData, Measured


@dataclass(frozen=True)
class JointChoice(CaptionChoice):
    """[`CaptionChoice`] of every row, and of the rows together that share a subset and the value of a column.

    A model that prefers one caption whatever the image is right in one row of a set, and in no set.

    Attributes:
        groups: the columns, each with the number of rows of a group. One that lacks rows is not scored, and noted.
    """

    groups: tuple[tuple[str, int], ...] = (("pair", 2), ("set", 4))

    def notes(self, items: BenchmarkData) -> Iterable[str]:
        """How many groups lack rows."""
        for column, size in self.groups:
            short = sum(len(rows) != size for rows in _rows_of(items, column).values())
            if short:
                yield f"{column} accuracy leaves out {short:,} groups that do not have {size} rows"

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return (*super().metric_names, *(f"{column} accuracy" for column, _ in self.groups))

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """The metric "caption choice", then for each column its name and "accuracy", an entry per group."""
        for single in super().score(scored):
            yield single
            chance = np.broadcast_to(single.chance, len(single.value))
            for column, size in self.groups:
                groups = {name: rows for name, rows in _rows_of(scored.items, column).items() if len(rows) == size}
                rows = np.array(list(groups.values()), dtype=np.intp).reshape(-1, size)
                correct = single.value[rows].all(axis=1)
                tie = (single.value | single.tie)[rows].all(axis=1) & ~correct
                names = [name for _, name in groups]
                yield Measured(
                    f"{column} accuracy", correct, tie, chance[rows].prod(axis=1), rows=rows[:, 0], items=names
                )


def _rows_of(items: BenchmarkData, column: str) -> dict[tuple[str, str], list[int]]:
    """The rows of each group, by subset and name."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, name in enumerate(zip(items.rows["subset"][:], items.rows[column][:], strict=True)):
        found[name].append(row)
    return found
