"""Summarizes datasets of pairs: means, medians and correlations with intervals, and differences between datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from hfcomp.analysis.pairs.items import PairSet, published_number
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
# `np.arange` excludes its end, so the end lies above 5.
BINS = {"concreteness": np.arange(1, 5.01, 0.5), "DINOScore": np.linspace(-1, 1, 21)}
"""Bin edges for the means shown in figures."""
FEWEST = 3
"""Minimum number of pairs for a correlation."""


@dataclass(frozen=True)
class Quantity:
    """A number known for every pair, whose mean is reported."""

    name: str  # key in `Scores`
    unit: Unit
    bounds: tuple[float, float] | None = None  # range of a pair's value
    chance: float | None = None  # expected value of a random scorer
    title: str = ""  # title of the row, if it differs from the name

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
    """A dataset with the numbers of its pairs."""

    pairs: PairSet
    scores: dict[str, Scores] = field(
        default_factory=dict
    )  # by dual encoder; "" for numbers that need no dual encoder

    def find(self, model: str, name: str) -> Numbers | None:
        """Returns the values `[n]` of a number from a model, or of one that needs no model."""
        return self.columns.get(self.column(model, name))

    def find_all(self, model: str, *names: str) -> list[Numbers] | None:
        """Returns the values of pairs that have all the named numbers; `None` if there is no such pair."""
        columns = [self.find(model, name) for name in names]
        if any(values is None for values in columns):
            return None
        present = np.logical_and.reduce([np.isfinite(values) for values in columns])
        return [values[present] for values in columns] if present.any() else None

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
    """Numbers of the compared datasets, all computed from the same resampled images."""

    def __init__(self, sets: Mapping[str, ScoredSet], *, seed: int = 0, progress: bool = False) -> None:
        self.sets = sets
        tables = {name: scored.columns for name, scored in sets.items()}
        images = {name: scored.pairs.items["image_id"] for name, scored in sets.items()}
        self.tables = WideTables(tables, images, seed=seed, progress=progress)

    def lines(self) -> list[dict[str, Any]]:
        """Returns a line per number: `row`, `model`, `unit`, `chance`, `sets`, `differences`, `paper`, `in_table_1`.

        `sets` holds the estimate for each dataset with the number: `value`, `low`, `high`, `items`, `images`, and for
        comparisons also `ties` and `tie_rate`. `differences` holds estimates of `first` minus `second`.
        """
        models = list(dict.fromkeys(model for scored in self.sets.values() for model in scored.models))
        existing = {column for scored in self.sets.values() for column in scored.columns}
        columns = [
            (quantity, model)
            for quantity in (*PAPER_ROWS, *FURTHER_ROWS)
            for model in ("", *models)
            if (model, quantity.name) in existing
        ]
        means = self.tables.means({(model, quantity.name): quantity.bounds for quantity, model in columns})
        differences = self.tables.differences((model, quantity.name) for quantity, model in columns)
        lines = []
        for quantity, model in columns:
            column = model, quantity.name
            sets = {
                name: means[name, column] | scored.scores[model].tie_counts(quantity.name)
                for name, scored in self.sets.items()
                if (name, column) in means
            }
            lines.append(self._line(quantity, model, sets, differences.get(column, []), quantity in PAPER_ROWS))
            # Table 1 lists the median below the mean.
            if quantity is PAPER_ROWS[0]:
                lines += self._median_line()
        return [*lines, *self._unique_line()]

    def _line(
        self, quantity: Quantity, model: str, sets: Mapping[str, Any], differences: Sequence[Any], in_table_1: bool
    ) -> dict[str, Any]:
        paper = {name: published_number(quantity.row, scored.pairs.config) for name, scored in self.sets.items()}
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
        for name, scored in self.sets.items():
            ratings = scored.find("", "concreteness")
            if ratings is not None and (present := np.isfinite(ratings)).any():
                medians[name] = Median(ratings[present], self.tables.images[name][present])
        estimates = self.tables.resample(medians)
        sets = {
            name: {"value": median.value, "items": len(medians[name].images), "images": len(median.images)}
            | median.bounds()
            for name, median in estimates.items()
        }
        differences = []
        for (first, estimate), (second, other) in combinations(estimates.items(), 2):
            change = estimate - other
            shared = len(np.intersect1d(estimate.images, other.images))
            difference = {"first": first, "second": second, "value": change.value} | change.bounds()
            differences.append(difference | {"shared_images": shared})
        if sets:
            quantity = Quantity("concreteness", RATING, title="median concreteness")
            yield self._line(quantity, "", sets, differences, in_table_1=True)

    def _unique_line(self) -> Iterator[dict[str, Any]]:
        """Yields the number of different keywords, which is not a mean and depends on the size of a dataset."""
        sets = {}
        for name, scored in self.sets.items():
            # Keywords that differ only in case or spaces count as one.
            keywords = scored.pairs.items["keyword"].dropna().map(lambda text: " ".join(text.lower().split()))
            different = int(keywords[keywords != ""].nunique())
            if different:
                sets[name] = {"value": different, "items": int((keywords != "").sum())}
        if sets:
            yield self._line(Quantity("unique keywords", Unit(1, 0)), "", sets, [], in_table_1=True)

    def correlations(self) -> list[dict[str, Any]]:
        """Returns `pearson` and `spearman` with intervals, `items` and `images` by dataset, model and two numbers."""
        correlations: list[dict[str, Any]] = []
        statistics = {}
        for name, model, first, second in self._correlated_numbers():
            scored = self.sets[name]
            pair = [scored.find(model, first), scored.find(model, second)]
            present = np.isfinite(pair[0]) & np.isfinite(pair[1])
            if present.sum() < FEWEST:
                continue
            images = self.tables.images[name][present]
            counts = {"items": int(present.sum()), "images": len(np.unique(images))}
            model_name = model if scored.says(model, first, second) else ""
            for kind, statistic in (("pearson", Pearson), ("spearman", Spearman)):
                statistics[len(correlations), kind] = statistic(*(values[present] for values in pair), images)
            correlations.append({"set": name, "model": model_name, "first": first, "second": second, **counts})
        for (number, kind), estimate in self.tables.resample(statistics).items():
            correlations[number][kind] = {"value": estimate.value} | estimate.bounds()
        return correlations

    def _correlated_numbers(self) -> Iterator[tuple[str, str, str, str]]:
        """Yields dataset, model and both numbers of every correlation, only once if neither number needs a model."""
        for name, scored in self.sets.items():
            for index, model in enumerate(scored.models or [""]):
                for first, second in CORRELATED:
                    is_known = all(scored.find(model, number) is not None for number in (first, second))
                    if is_known and (index == 0 or scored.says(model, first, second)):
                        yield name, model, first, second

    def by_keyword(self) -> list[dict[str, Any]]:
        """Returns the share of pairs and the means of BERTScore and edit distance by dataset and keyword length."""
        groups = []
        for name, scored in self.sets.items():
            words = scored.find("", "words of the keyword")
            if words is None:
                continue
            for label, (least, most) in KEYWORD_WORDS.items():
                selected = (words >= least) & (words <= most)
                if selected.any():
                    share = float(selected.sum() / np.isfinite(words).sum())
                    means = {
                        quantity: self.tables.mean(name, ("", quantity), selected)
                        for quantity in BY_KEYWORD
                        if (values := scored.find("", quantity)) is not None and np.isfinite(values[selected]).any()
                    }
                    groups.append({"set": name, "words": label, "share": share, **means})
        return groups

    def by_class(self, quantities: Sequence[str], by: str) -> list[dict[str, Any]]:
        """Returns the means of numbers by dataset and model within bins of another number from `BINS`.

        A bin has `from`, `to` and the mean of the other number as `middle`.
        """
        return [
            {"set": name, "model": model, "of": quantity, "by": by, "classes": classes}
            for name, scored in self.sets.items()
            for model in scored.models
            for quantity in quantities
            if (classes := list(self._bin_means(name, model, quantity, by)))
        ]

    def _bin_means(self, name: str, model: str, quantity: str, by: str) -> Iterator[dict[str, Any]]:
        scored = self.sets[name]
        values, others = scored.find(model, quantity), scored.find(model, by)
        if values is None or others is None:
            return
        present = np.isfinite(values) & np.isfinite(others)
        for low, high in zip(BINS[by][:-1], BINS[by][1:], strict=True):
            # The last bin includes its upper edge, which is a possible rating.
            last = high == BINS[by][-1]
            selected = present & (others >= low) & ((others <= high) if last else (others < high))
            if selected.any():
                edges = {"from": float(low), "to": float(high), "middle": float(others[selected].mean())}
                yield edges | self.tables.mean(name, scored.column(model, quantity), selected)

    def categories(self) -> list[dict[str, Any]]:
        """Returns by dataset the share of each category of negatives, or of each kind if there are no categories."""
        shares = []
        for name, scored in self.sets.items():
            column = next((kind for kind in ("category", "kind") if scored.pairs.items[kind].fillna("").any()), None)
            if column is None:
                continue
            labels = scored.pairs.items[column].fillna("").replace("", "none")
            for label, count in sorted(labels.value_counts().items(), key=lambda part: (-part[1], part[0])):
                shares.append({"set": name, column: label, "items": int(count), "share": float(count / len(labels))})
        return shares
