"""The numbers of sets of pairs: means, medians, correlations, each with its interval, and how sets differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from hfcomp.analysis.pairs.items import PairSet
from hfcomp.analysis.pairs.paper import published
from hfcomp.analysis.pairs.similarity import Numbers, Scores
from hfcomp.metrics.group import CHANCE
from hfcomp.metrics.units import Unit
from hfcomp.statistics import ImageBootstrap
from hfcomp.statistics.resampling import Median, Pearson, Spearman, draw_statistics, percentile_interval

PERCENT, RATING, LOGIT, COSINE, COUNT = Unit(100, 2, "%"), Unit(1, 2), Unit(1, 2), Unit(1, 4), Unit(1, 2)
SHARE, COSINES = (0.0, 1.0), (-1.0, 1.0)
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
BINS = {"concreteness": np.arange(1, 5.01, 0.5), "DINOScore": np.linspace(-1, 1, 21)}
"""Edges of the classes that means are shown of in figures."""
FEWEST = 3
"""Pairs that a correlation needs."""


@dataclass(frozen=True)
class Quantity:
    """A number of every pair, whose mean is reported.

    Attributes:
        name: as in `Scores`.
        unit: how it is shown.
        bounds: of a pair's value.
        chance: of a random scorer.
        title: of the row, where that is not the name.
    """

    name: str
    unit: Unit
    bounds: tuple[float, float] | None = None
    chance: float | None = None
    title: str = ""

    @property
    def row(self) -> str:
        """What the row is called in tables and in the paper's Table 1."""
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
    """A set with the numbers of its pairs.

    Attributes:
        pairs: the set.
        scores: by dual encoder; under "" what no dual encoder says.
    """

    pairs: PairSet
    scores: dict[str, Scores] = field(default_factory=dict)

    def find(self, model: str, name: str) -> Numbers | None:
        """`[n]`: a number that the model says of every pair, or that is known without one."""
        found = self.scores.get(model, Scores()).values.get(name)
        return self.scores[""].values.get(name) if found is None else found

    @property
    def models(self) -> list[str]:
        """The dual encoders."""
        return [model for model in self.scores if model]


class Summary:
    """The numbers of sets that are compared, from draws of images that all of them share.

    Images of one `image_id` are one image, whatever set they are in: a draw takes it with its pairs of all sets. What
    two sets share is thereby paired, and what they do not share is independent.

    Args:
        sets: by name.
        seed: of the draws.
        progress: whether to show bars.
    """

    def __init__(self, sets: Mapping[str, ScoredSet], *, seed: int = 0, progress: bool = False) -> None:
        self.sets, self._seed, self._progress = sets, seed, progress
        ids = [one.pairs.items["image_id"].to_numpy(dtype=str) for one in sets.values()]
        known, index = np.unique(np.concatenate(ids), return_inverse=True)
        ends = np.cumsum([len(one) for one in ids])[:-1]
        self._number = len(known)
        self.images: dict[str, NDArray[np.intp]] = dict(zip(sets, np.split(index, ends), strict=True))
        self._bootstrap = ImageBootstrap(np.arange(self._number), seed=seed)

    def lines(self) -> list[dict[str, Any]]:
        """A line for each number: `row`, `model`, `unit`, `chance`, `sets`, `differences`, `paper`, `in_table_1`.

        `sets` has the estimate of each set that has the number: `value`, `low`, `high`, `items`, `images`, and where
        it is a comparison `ties` and `tie_rate`. `differences` has those of two sets, `first` minus `second`.
        """
        models = list(dict.fromkeys(model for one in self.sets.values() for model in one.models))
        asked = [
            (place, quantity, model)
            for place, quantities in enumerate((PAPER_ROWS, FURTHER_ROWS))
            for quantity in quantities
            for model in ("", *models)
            if any(quantity.name in one.scores.get(model, Scores()).values for one in self.sets.values())
        ]
        numbers = [(quantity, model) for _, quantity, model in asked]
        means, differences = self._means(numbers), self._differences(numbers)
        found = [
            self._mean_line(quantity, model, means, differences) | {"in_table_1": place == 0}
            for place, quantity, model in asked
        ]
        medians = self._median_line()
        after = next((at for at, line in enumerate(found) if line["row"] == "mean concreteness"), -1) + 1
        return [*found[:after], *medians, *found[after:], *self._unique_line()]

    def _means(self, asked: Sequence[tuple[Quantity, str]]) -> dict[tuple[str, str, str], dict[str, Any]]:
        """By set, model and name."""
        groups = [
            (name, bounds, keys)
            for name in self.sets
            for bounds in dict.fromkeys(quantity.bounds for quantity, _ in asked)
            for keys in self._alike([one for one in asked if one[0].bounds == bounds], name)
        ]
        found = {}
        for name, bounds, keys in tqdm(groups, desc="intervals", disable=not self._progress, leave=False):
            columns, images = self._columns(name, keys)
            low, high = self._bootstrap.interval(columns, images, bounds=bounds)
            counts = {"items": len(images), "images": len(np.unique(images))}
            for column, key in enumerate(keys):
                ends = {"low": float(low[column]), "high": float(high[column])}
                found[name, *key] = {"value": float(columns[:, column].mean()), **ends, **counts}
        return found

    def _alike(self, asked: Sequence[tuple[Quantity, str]], *names: str) -> list[list[tuple[str, str]]]:
        """Numbers by model and name that the same pairs of each set have: they share one pass over the draws."""
        groups: dict[tuple[bytes, ...], list[tuple[str, str]]] = {}
        for quantity, model in asked:
            values = [self.sets[name].scores.get(model, Scores()).values.get(quantity.name) for name in names]
            there = [np.isfinite(own) for own in values if own is not None]
            if len(there) == len(names) and all(own.any() for own in there):
                groups.setdefault(tuple(own.tobytes() for own in there), []).append((model, quantity.name))
        return list(groups.values())

    def _columns(self, name: str, keys: Sequence[tuple[str, str]]) -> tuple[Numbers, NDArray[np.intp]]:
        """`[n, M]`, numbers that the same pairs of a set have, by model and name, and the images, in their order."""
        columns = np.stack([self.sets[name].scores[model].values[quantity] for model, quantity in keys], axis=1)
        there = np.flatnonzero(np.isfinite(columns[:, 0]))
        there = there[np.argsort(self.images[name][there], kind="stable")]
        return columns[there], self.images[name][there]

    def _differences(self, asked: Sequence[tuple[Quantity, str]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """Of the means of every two sets, by model and name."""
        groups = [(*pair, keys) for pair in combinations(self.sets, 2) for keys in self._alike(asked, *pair)]
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for first, second, keys in tqdm(groups, desc="differences", disable=not self._progress, leave=False):
            for key, difference in zip(keys, self._difference(first, second, keys), strict=True):
                found.setdefault(key, []).append({"first": first, "second": second, **difference})
        return found

    def _difference(self, first: str, second: str, keys: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
        """Of the means of two sets: paired where all images are the same, which is quicker and the same number.

        Else twice the mean of one set's values and the other's with the sign changed.
        """
        (values, images), (others, other_images) = (self._columns(name, keys) for name in (first, second))
        if np.array_equal(images, other_images):
            low, high = self._bootstrap.interval(values - others, images, bounds=None, difference=True)
        else:
            halves = [(values, images), (-others, other_images)]
            low, high = (2 * end for end in self._bootstrap.macro_interval(halves, bounds=None, difference=True))
        shared = len(np.intersect1d(images, other_images))
        for change, *ends in zip(values.mean(axis=0) - others.mean(axis=0), low, high, strict=True):
            found = dict(zip(("value", "low", "high"), map(float, (change, *ends)), strict=True))
            yield found | {"shared_images": shared}

    def _mean_line(
        self, quantity: Quantity, model: str, means: Mapping[Any, Any], differences: Mapping[Any, Any]
    ) -> dict[str, Any]:
        sets: dict[str, dict[str, Any]] = {}
        for name, one in self.sets.items():
            if (name, model, quantity.name) not in means:
                continue
            scores = one.scores[model]
            sets[name] = {**means[name, model, quantity.name]}
            if quantity.name in scores.ties:
                ties = scores.ties[quantity.name][np.isfinite(scores.values[quantity.name])]
                sets[name] |= {"ties": int(ties.sum()), "tie_rate": float(ties.mean())}
        return self._line(quantity, model, sets, differences.get((model, quantity.name), []))

    def _line(
        self, quantity: Quantity, model: str, sets: Mapping[str, Any], differences: Sequence[Mapping[str, Any]]
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
        }

    def mean(
        self, values: Numbers, images: NDArray[np.intp], bounds: tuple[float, float] | None = None
    ) -> dict[str, Any]:
        """The mean with its interval.

        Args:
            values: `[n]`, finite.
            images: `[n]`, numbers of the items' images.
            bounds: of a value.
        """
        low, high = self._bootstrap.interval(values, images, bounds=bounds)
        counts = {"items": len(values), "images": len(np.unique(images))}
        return {"value": float(values.mean()), "low": low, "high": high, **counts}

    def _median_line(self) -> Iterator[dict[str, Any]]:
        statistics, sets, images = {}, {}, {}
        for name in self.sets:
            for keys in self._alike([(PAPER_ROWS[0], "")], name):
                values, images[name] = self._columns(name, keys)
                statistics[name] = Median(values[:, 0], images[name])
                counts = {"items": len(values), "images": len(np.unique(images[name]))}
                sets[name] = {"value": float(np.median(values)), **counts}
        if not sets:
            return
        draws = self._draw(statistics)
        for name, own in sets.items():
            own["low"], own["high"] = self._interval(draws[name], own["images"])
        differences = []
        for first, second in combinations(sets, 2):
            shared = len(np.intersect1d(images[first], images[second]))
            low, high = percentile_interval(draws[first] - draws[second])
            change = {"first": first, "second": second, "value": sets[first]["value"] - sets[second]["value"]}
            differences.append(change | {"low": low, "high": high, "shared_images": shared})
        quantity = Quantity("concreteness", RATING, title="median concreteness")
        yield self._line(quantity, "", sets, differences) | {"in_table_1": True}

    def _unique_line(self) -> Iterator[dict[str, Any]]:
        """The number of different keywords, which is no mean and depends on the size of a set."""
        sets = {}
        for name, one in self.sets.items():
            keywords = one.pairs.items["keyword"].dropna().map(lambda text: " ".join(text.lower().split()))
            different = int(keywords[keywords != ""].nunique())
            if different:
                sets[name] = {"value": different, "items": int((keywords != "").sum())}
        if sets:
            quantity = Quantity("unique keywords", Unit(1, 0))
            yield self._line(quantity, "", sets, []) | {"in_table_1": True}

    def _draw(self, statistics: Mapping[Any, Any]) -> dict[Any, Numbers]:
        return draw_statistics(statistics, self._bootstrap.draws, progress=self._progress)

    def _interval(self, draws: Numbers, images: int) -> tuple[float, float]:
        return percentile_interval(draws) if images > 1 else (np.nan, np.nan)

    def correlations(self) -> list[dict[str, Any]]:
        """Of each set, model and pair of numbers: `pearson` and `spearman` with intervals, `items` and `images`."""
        found, statistics = [], {}
        everything = np.ones((1, self._number), dtype=np.uint8)
        for name, one in self.sets.items():
            for model in one.models or [""]:
                for first, second in CORRELATED:
                    pair = [one.find(model, first), one.find(model, second)]
                    if any(values is None for values in pair) or _again(one, model, first, second):
                        continue
                    there = np.isfinite(pair[0]) & np.isfinite(pair[1])
                    if there.sum() < FEWEST:
                        continue
                    images = self.images[name][there]
                    counts = {"items": int(there.sum()), "images": len(np.unique(images))}
                    of_model = model if _says(one, model, first, second) else ""
                    found.append({"set": name, "model": of_model, "first": first, "second": second, **counts})
                    for kind, statistic in (("pearson", Pearson), ("spearman", Spearman)):
                        own = statistic(*(values[there] for values in pair), images)
                        found[-1][kind] = {"value": float(own(everything)[0])}
                        statistics[len(found) - 1, kind] = own
        draws = self._draw(statistics) if statistics else {}
        for (number, kind), values in draws.items():
            low, high = self._interval(values, found[number]["images"])
            found[number][kind] |= {"low": low, "high": high}
        return found

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
                    found.append({"set": name, "words": label, "share": share, **self._keyword_means(name, chosen)})
        return found

    def _keyword_means(self, name: str, chosen: NDArray[np.bool_]) -> dict[str, Any]:
        means = {}
        for quantity in ("BERTScore", "word edit distance"):
            values = self.sets[name].find("", quantity)
            if values is not None and (there := chosen & np.isfinite(values)).any():
                means[quantity] = self.mean(values[there], self.images[name][there])
        return means

    def by_class(self, name: str, model: str, quantity: str, by: str) -> list[dict[str, Any]]:
        """Means of a number in classes of another one, each with `from`, `to` and the mean `middle` of the other.

        Args:
            name: of the set.
            model: whose numbers they are.
            quantity: whose means are taken.
            by: one of `BINS`.
        """
        values, others = (self.sets[name].find(model, one) for one in (quantity, by))
        if values is None or others is None:
            return []
        there, found = np.isfinite(values) & np.isfinite(others), []
        for low, high in zip(BINS[by][:-1], BINS[by][1:], strict=True):
            last = high == BINS[by][-1]
            chosen = there & (others >= low) & ((others <= high) if last else (others < high))
            if chosen.any():
                edges = {"from": float(low), "to": float(high), "middle": float(others[chosen].mean())}
                found.append(edges | self.mean(values[chosen], self.images[name][chosen]))
        return found

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


def _says(one: ScoredSet, model: str, *names: str) -> bool:
    """Whether one of the numbers is the model's."""
    return bool(model) and any(name in one.scores[model].values for name in names)


def _again(one: ScoredSet, model: str, first: str, second: str) -> bool:
    """Whether the same correlation stands with another model, as neither number is a model's."""
    return bool(one.models) and model != one.models[0] and not _says(one, model, first, second)
