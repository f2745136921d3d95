"""Samples: the items that a measure averages, the same for all models. Models are numbers here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.statistics.bootstrap import ImageBootstrap
from hfcomp.statistics.clusters import distinct
from hfcomp.statistics.measures import Measure
from hfcomp.statistics.outcomes import LINE, STRATUM, Line

SIGNED = ("correlation", "kendall", "tau")
"""Words in the names of metrics that range from -1 to 1."""
READ = ("column", "image", "value", "tie", "chance", STRATUM)
"""Columns of a table that are read unchanged."""
ALIKE = "Score all models on the same items."


class UnlikeItems(Exception):
    """Items that models do not share. `template` is a message with fields for the `model` and `other` of `columns`."""

    def __init__(self, where: str, template: str, columns: tuple[int, int], facts: Mapping[str, str]) -> None:
        super().__init__(where, template)
        self.where, self.template, self.columns, self.facts = where, template, columns, facts


@dataclass(frozen=True)
class Items:
    """Items of C models: values and ties `[n, C]`, images and chance `[n]`; and strata `[n]`, if any."""

    values: NDArray[np.float64]
    ties: NDArray[np.bool_]
    images: NDArray[Any]
    chance: NDArray[np.float64]
    strata: NDArray[Any] | None = None

    def parts(self) -> list[Items]:
        if self.strata is None:
            return [self]
        order = np.argsort(self.strata, kind="stable")
        _, starts = np.unique(self.strata[order], return_index=True)
        return [
            Items(self.values[rows], self.ties[rows], self.images[rows], self.chance[rows])
            for rows in np.split(order, starts[1:])
        ]


@dataclass(frozen=True)
class Sample:
    """A weighted mean of the means of parts.

    Attributes:
        columns: Numbers of the C models.
        weights: Weight of each part's mean.
        bounds: Bounds of an item's value.
    """

    columns: list[int]
    parts: list[Items]
    weights: list[float]
    bounds: tuple[float, float] | None

    @property
    def subsets(self) -> list[tuple[NDArray[np.float64], NDArray[Any]]]:
        """Values and images of each part, as `ImageBootstrap` expects them."""
        return [(part.values, part.images) for part in self.parts]

    def mean(self, kind: str = "values") -> NDArray[np.float64]:
        """`[C]`, the mean of values or ties; a single number for chance."""
        means = [getattr(part, kind).mean(axis=0) for part in self.parts]
        # A single part's mean stays exact; multiplying by a weight would round it.
        weighted = means[0] if len(means) == 1 else np.tensordot(self.weights, np.stack(means), axes=1)
        return weighted if len(means) == 1 else weighted / sum(self.weights)

    def facts(self) -> dict[str, Any]:
        """Returns chance (`None` if an item has none) and the numbers of items and images."""
        chance = float(self.mean("chance"))
        images = len(distinct(np.concatenate([part.images for part in self.parts]))[0])
        items = sum(len(part.images) for part in self.parts)
        return {"chance": None if math.isnan(chance) else chance, "items": items, "images": images}


class Samples:
    """Creates the samples of measures and the draws of their images.

    Args:
        table: Lines, items and the columns to read. `column` is the number of each row's model, `image` of its image.
        images: Set of images to draw from, as in `summarize`.
        every: Whether all models need all items. Otherwise, a measure covers the models that have any of its items.
    """

    def __init__(self, table: pd.DataFrame, columns: int, images: str, *, every: bool) -> None:
        self._columns, self._images, self._every = columns, images, every
        self._rows: Mapping[Line, NDArray[np.intp]] = table.groupby(LINE, sort=False).indices
        item, self._names = pd.factorize(table["item"])
        self._cells = {name: table[name].to_numpy() for name in READ} | {"item": item}
        self._of_line: dict[tuple[Line, tuple[int, ...]], Items] = {}
        self._drawn: tuple[Any, ImageBootstrap | None] = None, None

    def sample(self, measure: Measure) -> Sample:
        """Returns the items of a measure, or raises `UnlikeItems`."""
        absent = [line for line in measure.lines if line not in self._rows]
        if absent:
            raise ValueError(f"{measure.name}: no model was scored on {' / '.join(absent[0])}.")
        column = self._cells["column"]
        present = np.flatnonzero(np.bincount(np.concatenate([column[self._rows[line]] for line in measure.lines])))
        chosen = list(range(self._columns)) if self._every else present.tolist()
        of_line = {line: self._items(line, chosen) for line in measure.lines}
        items = [_pool([of_line[line] for line in pool]) for pool in measure.pools]
        weights = measure.weights or [1.0] * len(items)
        strata = [part.parts() for part in items]
        shared = [weight / len(own) for weight, own in zip(weights, strata, strict=True) for _ in own]
        parts = [part for own in strata for part in own]
        bounds = measure.bounds or _bounds(" ".join(line[2] for line in measure.lines), parts)
        return Sample(chosen, parts, shared, bounds)

    def bootstrap(self, measure: Measure) -> ImageBootstrap:
        # Keep only the last draws, because the next measure usually has the same images. Keeping all draws would take
        # a byte per draw and image for every benchmark.
        key: Any = None
        if self._images != "all":
            key = {line[0] for line in measure.lines} if self._images == "benchmark" else measure.lines
        if self._drawn[1] is None or self._drawn[0] != key:
            wanted = self._rows if key is None else [line for line in self._rows if line[0] in key or line in key]
            rows = np.concatenate([self._rows[line] for line in wanted])
            self._drawn = key, ImageBootstrap(self._cells["image"][rows])
        return self._drawn[1]

    def _items(self, line: Line, chosen: Sequence[int]) -> Items:
        # Cached because averages read the lines again
        key = line, tuple(chosen)
        if key not in self._of_line:
            cells = {name: column[self._rows[line]] for name, column in self._cells.items()}
            self._of_line[key] = _items(cells, self._names, chosen, " / ".join(line))
        return self._of_line[key]


def _pool(items: Sequence[Items]) -> Items:
    if len(items) == 1:
        return items[0]
    names = ["values", "ties", "images", "chance", *(["strata"] if items[0].strata is not None else [])]
    return Items(*(np.concatenate([getattr(part, name) for part in items]) for name in names))


def _bounds(metrics: str, parts: Sequence[Items]) -> tuple[float, float] | None:
    """Smallest and largest possible value of an item; `None` if some values contradict the assumed range."""
    low = -1.0 if set(SIGNED) & set(re.findall(r"[a-z]+", metrics.lower())) else 0.0
    inside = min(part.values.min() for part in parts) >= low and max(part.values.max() for part in parts) <= 1
    return (low, 1.0) if inside else None


def _items(cells: Mapping[str, NDArray[Any]], names: Sequence[str], chosen: Sequence[int], where: str) -> Items:
    """The items of a line by model, in order of appearance. `names` maps the numbers in `item` to names."""
    # A table of row numbers, items by models. Errors are detected in whole columns and reported for the first cell.
    item, items = pd.factorize(cells["item"])
    column, number = np.searchsorted(chosen, cells["column"]), len(cells["item"])
    rows = np.full((len(items), len(chosen)), -1)
    rows[item, column] = np.arange(number)
    duplicated = np.zeros(rows.shape, dtype=bool)
    again = rows[item, column] != np.arange(number)
    duplicated[item[again], column[again]] = True
    value, image, first = cells["value"][rows], cells["image"][rows], rows[:, 0]
    for bad, template in (
        (duplicated, "item {item} of model {model!r} is duplicated. Score each item once."),
        (rows < 0, "item {item} exists for model {other!r} but not for {model!r} ({count} such items). " + ALIKE),
        (image != image[:, :1], "item {item} has a different image for {model!r} than for {other!r}. " + ALIKE),
        (~np.isfinite(value), "item {item} of model {model!r} has no finite value."),
    ):
        if bad.any():
            row, model = np.argwhere(bad)[0]
            facts = {"item": repr(names[items[row]]), "count": f"{bad[:, model].sum():,}"}
            raise UnlikeItems(where, template, (chosen[model], chosen[(rows[row] >= 0).argmax()]), facts)
    strata, chance = cells[STRATUM][first], cells["chance"][first]
    return Items(value, cells["tie"][rows], image[:, 0], chance, None if pd.isna(strata).any() else strata)
