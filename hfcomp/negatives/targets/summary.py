"""What a set's targets are like: how concrete, and of which categories, beside what the paper has."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hfcomp.negatives.concreteness import ConcretenessRatings
from hfcomp.negatives.targets.candidates import CATEGORIES

PAPER_MEAN_AND_MEDIAN = {"high": (4.77, 4.85), "low": (3.81, 3.89), "random": (4.29, 4.63)}
"""Concreteness of the keywords by mode: Concrete Jungle, Table 1. It does not give the shares of the categories."""


@dataclass(frozen=True)
class TargetSummary:
    """The targets of a set.

    Attributes:
        targets: number of them.
        rated: how many have a rating.
        mean: of these ratings, 1 to 5; NaN without any.
        median: likewise.
        shares: of each category among the targets.
        expressions: share of targets that were found as an expression of two words.
    """

    targets: int
    rated: int
    mean: float
    median: float
    shares: Mapping[str, float]
    expressions: float

    def cells(self) -> list[str]:
        """Mean and median, and the shares in the order of `CATEGORIES`, as text."""
        return [f"{self.mean:.2f}", f"{self.median:.2f}", *(f"{self.shares[name]:.1%}" for name in CATEGORIES)]


def summarize_targets(rows: Iterable[tuple[str, str]], ratings: ConcretenessRatings) -> TargetSummary:
    """Summarizes targets.

    Args:
        rows: The category and the rated word of each; the word is empty where no entry was found.
        ratings: The table whose entries the rated words are.
    """
    categories: Counter[str] = Counter()
    found: list[float] = []
    expressions = 0
    for category, word in rows:
        categories[category] += 1
        expressions += " " in word
        rating = ratings.lookup(word) if word else None
        if rating is not None:
            found.append(rating)
    total = sum(categories.values())
    return TargetSummary(
        targets=total,
        rated=len(found),
        mean=statistics.fmean(found) if found else float("nan"),
        median=statistics.median(found) if found else float("nan"),
        shares={category: categories[category] / total if total else 0.0 for category in CATEGORIES},
        expressions=expressions / total if total else 0.0,
    )
