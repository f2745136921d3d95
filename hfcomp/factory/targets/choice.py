"""Chooses the possible targets of a caption: the top k by rating, in an order drawn from the softmax of ratings.

Concrete Jungle (arXiv 2604.13313), section 2.2: "Top-K sampling is first performed to ensure the preference towards
higher concreteness scores, then [the score] is defined by simple rule based sampling to balance" the categories. The
paper does not state k, the temperature, or how the two steps interact.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from hfcomp.factory.targets.candidates import ATTRIBUTE, CATEGORIES, OBJECT, RELATION, Candidate
from hfcomp.negatives.concreteness import ConcretenessRatings

# The paper's three datasets: D_hc, D_lc and D_wo.
Mode = Literal["high", "low", "random"]
Order = Literal["top_k", "category_first", "sample"]
MODES: dict[Mode, str] = {
    "high": "keywords among the most concrete of a caption",
    "low": "keywords among the least concrete of a caption",
    "random": "any keyword of a caption",
}
# The configurations of ConcreteBatch, each with its mode.
CONFIGS: dict[str, Mode] = {"high_concreteness": "high", "low_concreteness": "low", "random": "random"}
ORDERS: tuple[Order, ...] = get_args(Order)


_DEFAULTS: dict[Mode, tuple[Order, int]] = {"high": ("top_k", 3), "low": ("sample", 8), "random": ("sample", 3)}


@dataclass(frozen=True)
class Choice:
    """The rule for choosing a caption's possible targets. `Choice.of` fills in the defaults of a mode.

    Attributes:
        mode: `high` prefers concrete words. `low` mirrors it: the k lowest ratings, and the softmax of the negated
            rating. This is our choice, because the paper does not say how it makes D_lc. `random` gives every
            candidate the same probability, including words without a rating.
        order: `top_k` takes k candidates first and chooses the category among theirs. `category_first` chooses the
            category among those of all candidates, then k candidates of it. `sample` takes the first of the k drawn
            candidates, whatever its category.
        k: Number of candidates that take part. The paper gives none.
        temperature: Temperature of the softmax of ratings. 1 is the paper's softmax(C); lower values favor the first
            candidates more.
    """

    mode: Mode
    order: Order
    k: int
    temperature: float = 1.0

    def __post_init__(self) -> None:
        for name, known in (("mode", tuple(MODES)), ("order", ORDERS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: found {getattr(self, name)!r}, expected one of {', '.join(known)}.")
        if self.k < 1 or not 0 < self.temperature < math.inf:
            raise ValueError(f"found k={self.k} and temperature={self.temperature}, expected numbers above 0.")

    @classmethod
    def of(
        cls, mode: Mode = "high", *, order: Order | None = None, k: int | None = None, temperature: float = 1.0
    ) -> Choice:
        """The choice of a mode.

        The defaults are our choice; they come closest to each mode's mean and median rating in the paper's Table 1.
        `high` applies the category rule among the top 3. `low` and `random` apply no category rule: relations have the
        lowest ratings and would be nearly all targets (the paper's prompt for `random` mixes the categories too).
        `low` uses 8 candidates, which is nearly all.

        Args:
            order: Defaults to `top_k` for `high`, otherwise to `sample`.
            k: Defaults to 3 for `high` and 8 for `low`. For `random` it is 3, but `sample` does not depend on it.
        """
        usual, number = _DEFAULTS.get(mode, ("top_k", 3))
        return cls(mode, order or usual, number if k is None else k, temperature)

    def targets(self, candidates: Sequence[Candidate], rng: random.Random) -> list[Candidate]:
        """The possible targets of a caption: at most one per category, in the order drawn.

        Args:
            candidates: Candidates of the caption. Candidates without a rating take part only in `random`.
            rng: Random numbers of the caption, see `hfcomp.negatives.negative.caption_rng`. Each candidate takes one
                number, so another k or temperature uses the same numbers.
        """
        # Sorting by rating / temperature + Gumbel noise draws from the softmax without replacement.
        noise = [-math.log(max(rng.expovariate(1.0), 1e-300)) for _ in candidates]
        keys = {
            place: self._score(candidate) / self.temperature + noise[place]
            for place, candidate in enumerate(candidates)
            if candidate.rating is not None or self.mode == "random"
        }
        if self.order == "category_first":
            pools = [[place for place in keys if candidates[place].category == category] for category in CATEGORIES]
        else:
            pools = [list(keys)]
        # The pools decide which candidates take part; the keys decide the order in which they are drawn.
        left = [place for pool in pools for place in self._top(pool, candidates, keys)]
        first: dict[str, Candidate] = {}
        for place in sorted(left, key=lambda place: -keys[place]):
            first.setdefault(candidates[place].category, candidates[place])
        targets = list(first.values())
        return targets[:1] if self.order == "sample" else targets

    def _score(self, candidate: Candidate) -> float:
        if self.mode == "random" or candidate.rating is None:
            return 0.0
        return candidate.rating if self.mode == "high" else -candidate.rating

    def _top(self, pool: list[int], candidates: Sequence[Candidate], keys: dict[int, float]) -> list[int]:
        """The k best of a pool, ties in order; for `random` the first k drawn."""

        def rank(place: int) -> float:
            return -keys[place] if self.mode == "random" else -self._score(candidates[place])

        return sorted(pool, key=rank)[: self.k]


def balanced_categories(rows: Iterable[Sequence[str]], *, attribute_share: float = 0.5) -> Iterator[str]:
    """Decides the category of each row, in the order of the rows.

    Concrete Jungle, Appendix A.1: "Due to the relative sparseness of relational descriptions, we prioritize the
    relation type if it exists. We apply deficit-based quota sampling to balance the attribute and object class." We
    read this as follows: of the rows without a relation, `attribute_share` should be attributes and the rest objects.
    A row that allows both gets the category that is furthest below its quota, counting this row and all earlier rows;
    ties go to the row's first category. A row that allows only one category gets it, and counts.

    A decision depends on two counts of earlier rows, so it is the same however the rows were made.

    Args:
        rows: Possible categories of each row, the preferred one first.
        attribute_share: Share of attributes among the rows without a relation; our choice is half.

    Returns:
        The category of each row; empty for a row without any.
    """
    if not 0 <= attribute_share <= 1:
        raise ValueError(f"attribute_share: found {attribute_share}, expected 0 to 1.")
    return _decide(rows, {ATTRIBUTE: attribute_share, OBJECT: 1 - attribute_share})


def _decide(rows: Iterable[Sequence[str]], shares: dict[str, float]) -> Iterator[str]:
    counts = dict.fromkeys(shares, 0)
    for possible in rows:
        if RELATION in possible or not possible:
            yield RELATION if possible else ""
            continue
        decided = 1 + sum(counts.values())
        # max returns the first of equal categories.
        chosen = max(possible, key=lambda category: shares[category] * decided - counts[category])
        counts[chosen] += 1
        yield chosen


# Concreteness of keywords by mode (Concrete Jungle, Table 1). The table does not give the shares of categories.
PAPER_MEAN_AND_MEDIAN = {"high": (4.77, 4.85), "low": (3.81, 3.89), "random": (4.29, 4.63)}


@dataclass(frozen=True)
class TargetSummary:
    """A summary of a dataset's targets.

    Attributes:
        targets: Number of targets.
        rated: Number of targets with a rating.
        mean: Mean of the ratings, 1 to 5; NaN without ratings.
        median: Median of the ratings; NaN without ratings.
        shares: Share of each category among the targets.
        expressions: Share of targets whose entry is a two-word expression.
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
        rows: Category and rated word of each target; the word is empty without an entry.
        ratings: Table that contains the rated words.
    """
    categories: Counter[str] = Counter()
    values: list[float] = []
    expressions = 0
    for category, word in rows:
        categories[category] += 1
        expressions += " " in word
        rating = ratings.lookup(word) if word else None
        if rating is not None:
            values.append(rating)
    total = sum(categories.values())
    return TargetSummary(
        targets=total,
        rated=len(values),
        mean=statistics.fmean(values) if values else float("nan"),
        median=statistics.median(values) if values else float("nan"),
        shares={category: categories[category] / total if total else 0.0 for category in CATEGORIES},
        expressions=expressions / total if total else 0.0,
    )
