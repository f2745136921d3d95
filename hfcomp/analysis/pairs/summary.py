"""The numbers of sets of pairs: means, medians, correlations, each with its interval, and how sets differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from hfcomp.analysis.pairs.items import PairSet, published
from hfcomp.analysis.pairs.similarity import Numbers, Scores
from hfcomp.metrics.group import CHANCE
from hfcomp.metrics.units import Unit
from hfcomp.statistics.resampling import Median, Pearson, Spearman
from hfcomp.statistics.wide import WideTables

PERCENT, RATING, LOGIT, COSINE, COUNT = Unit(100, 2, "%"), Unit(1, 2), Unit(1, 2), Unit(1, 4), Unit(1, 2)
SHARE, COSINES = (0.0, 1.0), (-1.0, 1.0)
BY_KEYWORD = ("BERTScore", "word edit distance")
KEYWORD_WORDS = {"1": (1, 1), "2": (2, 2), "3 or more": (3, np.inf)}
CORRELATED = (
    ("CLIP-L", "BERTScore"),
    ("CLIP-V", "DINOScore"),
    ("I2T logit gap", "concreteness"),
    ("T2I logit gap", "concreteness"),
    ("T2I logit gap", "DINOScore"),
    ("BERTScore", "concreteness"),
    ("DINOScore", "concreteness"),
    ("BERTScore", "words of the keyword"),
    ("word edit distance", "words of the keyword"),
)
# The end of `np.arange` is excluded, so it lies above 5.
BINS = {"concreteness": np.arange(1, 5.01, 0.5), "DINOScore": np.linspace(-1, 1, 21)}
"""Edges of the classes that means are shown of in figures."""
FEWEST = 3
"""Pairs that a correlation needs."""


@dataclass(frozen=True)
class Quantity:
    """A number of every pair, whose mean is reported."""

    name: str  # in `Scores`
    unit: Unit
    bounds: tuple[float, float] | None = None  # of a pair's value
    chance: float | None = None  # of a random scorer
    title: str = ""  # of the row, if it is not the name

    @property
    def row(self) -> str:
        return self.title or self.name


PAPER_ROWS = (
    Quantity("concreteness", RATING, (1.0, 5.0), title="mean concreteness"),
    Quantity("I2T accuracy", PERCENT, SHARE, 1 / 2),
    Quantity("T2I accuracy", PERCENT, SHARE, 1 / 2),
    Quantity("BERTScore", COSINE),
    Quantity("CLIP-L", COSINE, COSINES),
    Quantity("DINOScore", COSINE, COSINES),
    Quantity("CLIP-V", COSINE, COSINES),
)
FURTHER_ROWS = (
    Quantity("I2T logit gap", LOGIT),
    Quantity("T2I logit gap", LOGIT),
    Quantity("pair accuracy", PERCENT, SHARE, 1 / 2),
    Quantity("both images", PERCENT, SHARE, CHANCE["text"]),
    Quantity("both captions", PERCENT, SHARE, CHANCE["image"]),
    Quantity("group", PERCENT, SHARE, CHANCE["group"]),
    Quantity("word edit distance", COUNT),
    Quantity("bi-gram keywords", PERCENT, SHARE),
    Quantity("longer keywords", PERCENT, SHARE),
)


@dataclass(frozen=True, eq=False)
class ScoredSet:
    """A set with the numbers of its pairs."""

    pairs: PairSet
    scores: dict[str, Scores] = field(default_factory=dict)  # by dual encoder; under "" what needs no dual encoder

    def find(self, model: str, name: str) -> Numbers | None:
        """`[n]`: a number that the model says of every pair, or that is known without one."""
        return self.columns.get(self.column(model, name))

    def find_all(self, model: str, *names: str) -> list[Numbers] | None:
        """The numbers of the pairs that have all of them; `None` if no pair has."""
        found = [self.find(model, name) for name in names]
        if any(values is None for values in found):
            return None
        there = np.logical_and.reduce([np.isfinite(values) for values in found])
        return [values[there] for values in found] if there.any() else None

    def says(self, model: str, *names: str) -> bool:
        return bool(model) and any((model, name) in self.columns for name in names)

    def column(self, model: str, name: str) -> tuple[str, str]:
        return (model if (model, name) in self.columns else ""), name

    @property
    def columns(self) -> dict[tuple[str, str], Numbers]:
        return {(model, name): own for model, scores in self.scores.items() for name, own in scores.values.items()}

    @property
    def models(self) -> list[str]:
        return [model for model in self.scores if model]


class Summary:
    """The numbers of sets that are compared, from draws of images that all of them share."""

    def __init__(self, sets: Mapping[str, ScoredSet], *, seed: int = 0, progress: bool = False) -> None:
        self.sets = sets
        tables = {name: one.columns for name, one in sets.items()}
        images = {name: one.pairs.items["image_id"] for name, one in sets.items()}
        self.tables = WideTables(tables, images, seed=seed, progress=progress)

    def lines(self) -> list[dict[str, Any]]:
        """A line for each number: `row`, `model`, `unit`, `chance`, `sets`, `differences`, `paper`, `in_table_1`.

        `sets` has the estimate of each set that has the number: `value`, `low`, `high`, `items`, `images`, and where
        it is a comparison `ties` and `tie_rate`. `differences` has those of two sets, `first` minus `second`.
        """
        models = list(dict.fromkeys(model for one in self.sets.values() for model in one.models))
        known = {column for one in self.sets.values() for column in one.columns}
        asked = [
            (quantity, model)
            for quantity in (*PAPER_ROWS, *FURTHER_ROWS)
            for model in ("", *models)
            if (model, quantity.name) in known
        ]
        means = self.tables.means({(model, quantity.name): quantity.bounds for quantity, model in asked})
        differences = self.tables.differences((model, quantity.name) for quantity, model in asked)
        found = []
        for quantity, model in asked:
            column = model, quantity.name
            sets = {
                name: means[name, column] | one.scores[model].tied(quantity.name)
                for name, one in self.sets.items()
                if (name, column) in means
            }
            found.append(self._line(quantity, model, sets, differences.get(column, []), quantity in PAPER_ROWS))
            # In Table 1 the median is below the mean.
            if quantity is PAPER_ROWS[0]:
                found += self._median_line()
        return [*found, *self._unique_line()]

    def _line(
        self, quantity: Quantity, model: str, sets: Mapping[str, Any], differences: Sequence[Any], in_table_1: bool
    ) -> dict[str, Any]:
        paper = {name: published(quantity.row, one.pairs.config) for name, one in self.sets.items()}
        return {
            "row": quantity.row,
            "model": model,
            "unit": quantity.unit,
            "chance": quantity.chance,
            "sets": dict(sets),
            "differences": list(differences),
            "paper": {name: value for name, value in paper.items() if value is not None},
            "in_table_1": in_table_1,
        }

    def _median_line(self) -> Iterator[dict[str, Any]]:
        medians = {}
        for name, one in self.sets.items():
            ratings = one.find("", "concreteness")
            if ratings is not None and (there := np.isfinite(ratings)).any():
                medians[name] = Median(ratings[there], self.tables.images[name][there])
        found = self.tables.resample(medians)
        sets = {
            name: {"value": one.value, "items": len(medians[name].images), "images": len(one.images)} | one.bounds()
            for name, one in found.items()
        }
        differences = []
        for (first, one), (second, other) in combinations(found.items(), 2):
            change = {"first": first, "second": second, "value": (one - other).value} | (one - other).bounds()
            differences.append(change | {"shared_images": len(np.intersect1d(one.images, other.images))})
        if sets:
            quantity = Quantity("concreteness", RATING, title="median concreteness")
            yield self._line(quantity, "", sets, differences, in_table_1=True)

    def _unique_line(self) -> Iterator[dict[str, Any]]:
        """The number of different keywords, which is no mean and depends on the size of a set."""
        sets = {}
        for name, one in self.sets.items():
            # Keywords that differ only in case or blanks are one.
            keywords = one.pairs.items["keyword"].dropna().map(lambda text: " ".join(text.lower().split()))
            different = int(keywords[keywords != ""].nunique())
            if different:
                sets[name] = {"value": different, "items": int((keywords != "").sum())}
        if sets:
            yield self._line(Quantity("unique keywords", Unit(1, 0)), "", sets, [], in_table_1=True)

    def correlations(self) -> list[dict[str, Any]]:
        """Of each set, model and pair of numbers: `pearson` and `spearman` with intervals, `items` and `images`."""
        found: list[dict[str, Any]] = []
        statistics = {}
        for name, model, first, second in self._correlated():
            one = self.sets[name]
            pair = [one.find(model, first), one.find(model, second)]
            there = np.isfinite(pair[0]) & np.isfinite(pair[1])
            if there.sum() < FEWEST:
                continue
            images = self.tables.images[name][there]
            counts = {"items": int(there.sum()), "images": len(np.unique(images))}
            of_model = model if one.says(model, first, second) else ""
            for kind, statistic in (("pearson", Pearson), ("spearman", Spearman)):
                statistics[len(found), kind] = statistic(*(values[there] for values in pair), images)
            found.append({"set": name, "model": of_model, "first": first, "second": second, **counts})
        for (number, kind), one in self.tables.resample(statistics).items():
            found[number][kind] = {"value": one.value} | one.bounds()
        return found

    def _correlated(self) -> Iterator[tuple[str, str, str, str]]:
        """Set, model and both numbers of every correlation; one of numbers without a model stands once."""
        for name, one in self.sets.items():
            for place, model in enumerate(one.models or [""]):
                for first, second in CORRELATED:
                    is_known = all(one.find(model, number) is not None for number in (first, second))
                    if is_known and (place == 0 or one.says(model, first, second)):
                        yield name, model, first, second

    def by_keyword(self) -> list[dict[str, Any]]:
        """By set and number of words of the keyword: share of pairs, and the means of BERTScore and edit distance."""
        found = []
        for name, one in self.sets.items():
            words = one.find("", "words of the keyword")
            if words is None:
                continue
            for label, (least, most) in KEYWORD_WORDS.items():
                chosen = (words >= least) & (words <= most)
                if chosen.any():
                    share = float(chosen.sum() / np.isfinite(words).sum())
                    means = {
                        quantity: self.tables.mean(name, ("", quantity), chosen)
                        for quantity in BY_KEYWORD
                        if (values := one.find("", quantity)) is not None and np.isfinite(values[chosen]).any()
                    }
                    found.append({"set": name, "words": label, "share": share, **means})
        return found

    def by_class(self, quantities: Sequence[str], by: str) -> list[dict[str, Any]]:
        """Means of every set's and model's numbers in classes of another number, one of `BINS`.

        A class has `from`, `to` and the mean `middle` of the other number.
        """
        return [
            {"set": name, "model": model, "of": quantity, "by": by, "classes": classes}
            for name, one in self.sets.items()
            for model in one.models
            for quantity in quantities
            if (classes := list(self._classes(name, model, quantity, by)))
        ]

    def _classes(self, name: str, model: str, quantity: str, by: str) -> Iterator[dict[str, Any]]:
        one = self.sets[name]
        values, others = one.find(model, quantity), one.find(model, by)
        if values is None or others is None:
            return
        there = np.isfinite(values) & np.isfinite(others)
        for low, high in zip(BINS[by][:-1], BINS[by][1:], strict=True):
            # The last class includes its upper edge, which is a possible rating.
            last = high == BINS[by][-1]
            chosen = there & (others >= low) & ((others <= high) if last else (others < high))
            if chosen.any():
                edges = {"from": float(low), "to": float(high), "middle": float(others[chosen].mean())}
                yield edges | self.tables.mean(name, one.column(model, quantity), chosen)

    def categories(self) -> list[dict[str, Any]]:
        """By set, the share of each category of negatives, or of each kind where a set names no categories."""
        found = []
        for name, one in self.sets.items():
            column = next((kind for kind in ("category", "kind") if one.pairs.items[kind].fillna("").any()), None)
            if column is None:
                continue
            labels = one.pairs.items[column].fillna("").replace("", "none")
            for label, count in sorted(labels.value_counts().items(), key=lambda part: (-part[1], part[0])):
                found.append({"set": name, column: label, "items": int(count), "share": float(count / len(labels))})
        return found
