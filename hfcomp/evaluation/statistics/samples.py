"""Samples: the items that a measure is the mean of, the same ones for all models."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.evaluation.statistics.bootstrap import ImageBootstrap
from hfcomp.evaluation.statistics.measures import Measure
from hfcomp.evaluation.statistics.outcomes import LINE, NO_SEED, STRATUM, Line

Cell = Any
"""A model, or where a study has several of a name, what tells them apart: `(setting, arm)`, for example."""
Column = tuple[Cell, int]
"""A cell and a seed."""
SIGNED = ("correlation", "kendall", "tau")
"""Words in the names of metrics that go from -1 to 1."""


@dataclass(frozen=True)
class Items:
    """Items of C models: values and ties `[n, C]`, images and chance `[n]`; strata `[n]` where there are any."""

    values: NDArray[np.float64]
    ties: NDArray[np.bool_]
    images: NDArray[Any]
    chance: NDArray[np.float64]
    strata: NDArray[Any] | None = None

    def parts(self) -> list[Items]:
        """The items of each stratum."""
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
    """The mean of the means of parts.

    Attributes:
        columns: the C models.
        parts: of items.
        weights: what the mean of each part counts.
        bounds: of an item's value.
    """

    columns: list[Column]
    parts: list[Items]
    weights: list[float]
    bounds: tuple[float, float] | None

    @property
    def subsets(self) -> list[tuple[NDArray[np.float64], NDArray[Any]]]:
        """Values and images of each part, as `ImageBootstrap` takes them."""
        return [(part.values, part.images) for part in self.parts]

    @cached_property
    def seeds(self) -> dict[Cell, dict[int, int]]:
        """The column of each seed of each cell."""
        found: dict[Cell, dict[int, int]] = {}
        for index, (cell, seed) in enumerate(self.columns):
            found.setdefault(cell, {})[seed] = index
        return found

    def mean(self, kind: str = "values") -> NDArray[np.float64]:
        """`[C]`: of values or of ties; of chance a single number."""
        means = [getattr(part, kind).mean(axis=0) for part in self.parts]
        # exact for a single part, where a product of weights would round
        weighted = means[0] if len(means) == 1 else np.tensordot(self.weights, np.stack(means), axes=1)
        return weighted if len(means) == 1 else weighted / sum(self.weights)

    def facts(self) -> dict[str, Any]:
        """Chance (`None` where an item has none), and the numbers of items and images."""
        chance = float(self.mean("chance"))
        images = len(np.unique(np.concatenate([part.images for part in self.parts])))
        items = sum(len(part.images) for part in self.parts)
        return {"chance": None if math.isnan(chance) else chance, "items": items, "images": images}

    def changes(self, cells: Sequence[Cell], others: Sequence[Cell]) -> list[list[NDArray[np.float64]]]:
        """For each seed the paired differences `[n]` of the mean of some cells and that of others, part by part.

        A cell without a seed stands beside every seed of the others.

        Raises:
            ValueError: for a cell that lacks a seed which another has.
        """
        known = {cell: self.seeds[cell] for cell in (*cells, *others)}
        seeds = list(dict.fromkeys(seed for own in known.values() for seed in own if seed != NO_SEED)) or [NO_SEED]
        for cell, own in known.items():
            absent = [seed for seed in seeds if seed not in own and NO_SEED not in own]
            if absent:
                raise ValueError(f"{cell}: no outcomes of seed {absent[0]}, which another has. Score all seeds.")

        def mean(part: Items, side: Sequence[Cell], seed: int) -> NDArray[np.float64]:
            columns = [part.values[:, known[cell].get(seed, known[cell].get(NO_SEED))] for cell in side]
            return sum(columns) / len(columns)

        return [[mean(part, cells, seed) - mean(part, others, seed) for part in self.parts] for seed in seeds]


class Samples:
    """The samples of measures, and the draws of their images.

    Args:
        table: of `Outcomes`, with `column`, the number of each row's model, and `image`, that of its image.
        columns: the models.
        images: which images a draw is taken from, as in `summarize`.
        every: whether all models need all items; else a measure is of the models that have any of its own.
    """

    def __init__(self, table: pd.DataFrame, columns: list[Column], images: str, *, every: bool) -> None:
        self._table, self._columns, self._images, self._every = table, columns, images, every
        self._rows: Mapping[Line, NDArray[np.intp]] = table.groupby(LINE, sort=False).indices
        self._items: dict[tuple[Line, tuple[int, ...]], Items] = {}
        self._drawn: tuple[Any, ImageBootstrap | None] = None, None

    def sample(self, measure: Measure) -> Sample:
        """The items of a measure.

        Raises:
            ValueError: for items that one model has and another lacks, or values that are not finite.
        """
        chosen = range(len(self._columns))
        if not self._every:
            there = {number for line in measure.lines for number in self._part(line)["column"].unique()}
            chosen = [number for number in chosen if number in there]
        items = [self._of_line(line, tuple(chosen)) for line in measure.lines]
        weights = measure.weights or [1.0] * len(items)
        if measure.pooled:
            items, weights = [_pooled(items)], [1.0]
        strata = [one.parts() for one in items]
        shared = [weight / len(own) for weight, own in zip(weights, strata, strict=True) for _ in own]
        parts = [part for own in strata for part in own]
        bounds = measure.bounds or _bounds(" ".join(line[2] for line in measure.lines), parts)
        return Sample([self._columns[number] for number in chosen], parts, shared, bounds)

    def bootstrap(self, measure: Measure) -> ImageBootstrap:
        """The draws for a measure; those of the last one are kept, as the next is mostly of the same images."""
        key, table = None, self._table
        if self._images == "benchmark":
            key = sorted({line[0] for line in measure.lines})
        elif self._images == "measure":
            key = measure.lines
        if self._drawn[1] is None or self._drawn[0] != key:
            if self._images == "benchmark":
                table = table[table["benchmark"].isin(key)]
            elif self._images == "measure":
                table = table.iloc[np.concatenate([self._rows[line] for line in key])]
            self._drawn = key, ImageBootstrap(table["image"].to_numpy())
        return self._drawn[1]

    def _part(self, line: Line) -> pd.DataFrame:
        if line not in self._rows:
            raise ValueError(f"{' / '.join(line)}: none of the models was scored on it.")
        return self._table.iloc[self._rows[line]]

    def _of_line(self, line: Line, chosen: tuple[int, ...]) -> Items:
        """The items of some columns, in the order of the first."""
        if (line, chosen) not in self._items:
            where, names = " / ".join(map(str, line)), [column_name(self._columns[number]) for number in chosen]
            self._items[line, chosen] = _aligned(self._part(line), chosen, names, where)
        return self._items[line, chosen]


def column_name(column: Column) -> str:
    """`setting/seed/arm` of a model, as far as it has these."""
    cell, seed = column
    parts = [str(part) for part in cell] if isinstance(cell, tuple) else [str(cell)]
    return "/".join([*parts[:-1], *([] if seed == NO_SEED else [str(seed)]), parts[-1]])


def _pooled(items: Sequence[Items]) -> Items:
    names = ["values", "ties", "images", "chance", *(["strata"] if items[0].strata is not None else [])]
    return Items(*(np.concatenate([getattr(one, name) for one in items]) for name in names))


def _bounds(metrics: str, parts: Sequence[Items]) -> tuple[float, float] | None:
    """What an item can have at least and at most; `None` where some values say that it is something else."""
    low = -1.0 if set(SIGNED) & set(re.findall(r"[a-z]+", metrics.lower())) else 0.0
    inside = min(part.values.min() for part in parts) >= low and max(part.values.max() for part in parts) <= 1
    return (low, 1.0) if inside else None


def _aligned(part: pd.DataFrame, chosen: Sequence[int], names: Sequence[str], where: str) -> Items:
    """The outcomes of all models in the order of the first model's items."""
    tables = {number: own.set_index("item") for number, own in part.groupby("column", sort=False)}
    of_model = [tables.get(number, part.iloc[:0].set_index("item")) for number in chosen]
    first = of_model[0]
    for index, (name, own) in enumerate(zip(names, of_model, strict=True)):
        if not own.index.is_unique:
            twice = own.index[own.index.duplicated()][0]
            raise ValueError(f"{where}: item {twice!r} of model {name!r} is there twice. Score each item once.")
        if not own.index.equals(first.index):
            _check_subset(first, own, names[0], name, where)
            _check_subset(own, first, name, names[0], where)
            of_model[index] = own.loc[first.index]
    images = first["image"].to_numpy()
    for name, own in zip(names, of_model, strict=True):
        moved = own["image"].to_numpy() != images
        bad = ~np.isfinite(own["value"].to_numpy(dtype=np.float64))
        if moved.any():
            item = first.index[moved][0]
            raise ValueError(f"{where}: item {item!r} has another image for {name!r} than for {names[0]!r}.")
        if bad.any():
            raise ValueError(f"{where}: item {first.index[bad][0]!r} of model {name!r} has no finite value.")
    values = np.stack([own["value"].to_numpy(dtype=np.float64) for own in of_model], axis=1)
    ties = np.stack([own["tie"].to_numpy(dtype=bool) for own in of_model], axis=1)
    strata = first[STRATUM].to_numpy() if first[STRATUM].notna().all() else None
    return Items(values, ties, images, first["chance"].to_numpy(dtype=np.float64), strata)


def _check_subset(table: pd.DataFrame, other: pd.DataFrame, has: str, lacks: str, where: str) -> None:
    absent = table.index.difference(other.index)
    if len(absent):
        raise ValueError(
            f"{where}: item {absent[0]!r} is there for model {has!r} and missing for {lacks!r} ({len(absent):,} such "
            "items). Score all models on the same items."
        )
