"""The numbers of a study of concepts: shares at every checkpoint, paired differences at the ends of epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.evaluation.statistics import ImageBootstrap
from hfcomp.evaluation.statistics.multiplicity import adjust
from hfcomp.experiments.plans import ACCURACY, RETRIEVAL, LineName, TradeoffPlan

BASE, PLAIN = "base", "plain"
BASE_STEP = 0
NEEDED = (ACCURACY, RETRIEVAL)  # of every concept
ITEM = ["benchmark", "subset", "metric", "item"]


class Point(NamedTuple):
    """A model of the study: a run at a step; the base is at step 0."""

    run: str
    step: int


@dataclass(frozen=True)
class Line:
    """The outcomes of one line: values `[n, M]` of every model, ties likewise, images `[n]`, chance."""

    points: list[Point]
    values: NDArray[np.float64]
    ties: NDArray[np.bool_]
    images: NDArray[Any]
    chance: float

    @cached_property
    def _bootstrap(self) -> ImageBootstrap:
        return ImageBootstrap(self.images)

    def shares(self) -> dict[Point, dict[str, float]]:
        """Each model's share with its interval of 95 %, which draws whole images, and its rate of ties."""
        lows, highs = self._bootstrap.interval(self.values, self.images)
        means, ties = self.values.mean(axis=0), self.ties.mean(axis=0)
        found = zip(self.points, means, lows, highs, ties, strict=True)
        return {
            point: {"value": float(mean), "low": float(low), "high": float(high), "tie_rate": float(tie)}
            for point, mean, low, high, tie in found
        }

    def difference(self, point: Point, reference: Point) -> dict[str, float]:
        """One model minus another, paired by item, with interval and sign-flip p, which agree."""
        change = self.values[:, [self.points.index(point)]] - self.values[:, [self.points.index(reference)]]
        found = self._bootstrap.macro_difference([(change, self.images)])
        return {key: float(value[0]) for key, value in found.items()}


@dataclass(frozen=True)
class ConceptResults:
    """What came of a concept.

    Attributes:
        lines: by what they stand for; one that the evaluation does not have for this concept is absent.
        shares: of each line, by model.
        per_epoch: steps of an epoch.
        last: the last step.
    """

    lines: dict[str, Line]
    shares: dict[str, dict[Point, dict[str, float]]]
    per_epoch: int
    last: int

    def epochs(self) -> list[int]:
        """The steps at which epochs end."""
        return list(range(self.per_epoch, self.last + 1, self.per_epoch))

    def epoch(self, point: Point) -> float:
        """How many epochs a model has seen."""
        return point.step / self.per_epoch


def check_lines(outcomes: dict[str, pd.DataFrame], plan: TradeoffPlan) -> None:
    """Checks that what is scored has the lines of a study, which the outcomes of the base tell before any training.

    Args:
        outcomes: by concept, one row per item and metric.
        plan: of the study.

    Raises:
        ValueError: when a concept has no accuracy or retrieval, or no concept has another line, naming those that
            there are.
    """
    for name, line in plan.lines().items():
        missing = [concept for concept, table in outcomes.items() if not len(_rows(table, name, line, concept))]
        if missing and (name in NEEDED or len(missing) == len(outcomes)):
            table = pd.concat([outcomes[concept] for concept in missing])
            known = sorted(set(zip(table["benchmark"], table["metric"], strict=True)))
            listed = "; ".join(f"{benchmark}, {metric}" for benchmark, metric in known)
            place = f"{line.benchmark!r}, {line.metric!r} for {', '.join(missing)}"
            raise ValueError(f"{name}: nothing was scored as {place}. There is: {listed}.")


def summarize_tradeoff(outcomes: dict[str, pd.DataFrame], plan: TradeoffPlan) -> dict[str, ConceptResults]:
    """Lines and shares of each concept.

    Args:
        outcomes: by concept, one row per item, metric and model, with the columns `run` and `step`.
        plan: of the study.

    Raises:
        ValueError: as `check_lines`.
    """
    check_lines(outcomes, plan)
    return {concept: _concept_results(table, concept, plan) for concept, table in outcomes.items()}


def _concept_results(table: pd.DataFrame, concept: str, plan: TradeoffPlan) -> ConceptResults:
    parts = {name: _rows(table, name, line, concept) for name, line in plan.lines().items()}
    lines = {name: _line(rows) for name, rows in parts.items() if len(rows)}
    steps = sorted(set(table["step"]) - {BASE_STEP})
    shares = {name: line.shares() for name, line in lines.items()}
    return ConceptResults(lines, shares, per_epoch=steps[0] * plan.per_epoch, last=steps[-1])


def _rows(table: pd.DataFrame, name: str, line: LineName, concept: str) -> pd.DataFrame:
    """The rows of a line: of retrieval all subsets, of the others the concept's."""
    rows = table[(table["benchmark"] == line.benchmark) & (table["metric"] == line.metric)]
    return rows if name == RETRIEVAL else rows[rows["subset"] == concept]


def _line(rows: pd.DataFrame) -> Line:
    points = [Point(str(run), int(step)) for run, step in rows[["run", "step"]].drop_duplicates().to_numpy()]
    parts = {key: part.set_index(ITEM) for key, part in rows.groupby(["run", "step"], sort=False)}
    index = parts[points[0]].index
    values = np.stack([parts[point]["value"].reindex(index).to_numpy() for point in points], axis=1)
    ties = np.stack([parts[point]["tie"].reindex(index).to_numpy(dtype=bool) for point in points], axis=1)
    first = parts[points[0]]
    return Line(points, values, ties, first["image_id"].to_numpy(), float(first["chance"].mean()))


def final(results: ConceptResults, run: str) -> Point:
    """A run's last model; the base is its own."""
    return Point(run, BASE_STEP if run == BASE else results.last)


def curve(results: ConceptResults, line: str, run: str) -> list[tuple[Point, dict[str, float]]]:
    """A run's shares on a line by step, from the base on."""
    wanted: Sequence[Point] = [point for point in results.shares[line] if point.run in (BASE, run)]
    return [(point, results.shares[line][point]) for point in sorted(wanted, key=lambda point: point.step)]


def runs_of(results: dict[str, ConceptResults]) -> list[str]:
    """The runs of all concepts, in the order of the tables."""
    runs = {point.run: None for one in results.values() for line in one.lines.values() for point in line.points}
    most = sorted((run for run in runs if run not in (BASE, PLAIN)), key=lambda run: int(run.removeprefix("HN")))
    return [BASE, PLAIN, *most]


def final_differences(results: dict[str, ConceptResults]) -> list[dict[str, Any]]:
    """The last models against plain training, and that against the base, on every line.

    The primary endpoint is accuracy on the concept: of the runs with hard negatives against plain training, p is
    corrected by Holm over runs and concepts (`p_holm`); all others get `q` of Benjamini and Hochberg.

    Args:
        results: of `summarize_tradeoff`.

    Returns:
        Of each `concept`, `line`, `run`, `reference`, and the numbers of `Line.difference`.
    """
    found = []
    for concept, one in results.items():
        for name, line in one.lines.items():
            for run in runs_of(results)[1:]:
                if final(one, run) in line.points:
                    reference = BASE if run == PLAIN else PLAIN
                    change = line.difference(final(one, run), final(one, reference))
                    found.append({"concept": concept, "line": name, "run": run, "reference": reference, **change})
    primary = [one for one in found if one["line"] == ACCURACY and one["reference"] == PLAIN]
    others = [one for one in found if not any(one is other for other in primary)]
    adjust(primary, others)
    return found
