"""The numbers of a study of concepts: accuracies at every checkpoint, paired differences at the ends of epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from hfcomp.analysis.keyword_findings import PLAIN, Finding, concept_findings
from hfcomp.experiments.plans import ACCURACY, RETRIEVAL, TradeoffPlan
from hfcomp.statistics.measures import Measure
from hfcomp.statistics.multiplicity import adjust
from hfcomp.statistics.outcomes import Outcomes
from hfcomp.statistics.summary import BASE, summarize

BASE_STEP = 0
NEEDED = (ACCURACY, RETRIEVAL)  # of every concept
SHARE = ("value", "low", "high", "tie_rate")


class Point(NamedTuple):
    """A model of the study: a run at a step; the base is at step 0."""

    run: str
    step: int


@dataclass(frozen=True)
class ConceptResults:
    """What came of a concept.

    Attributes:
        lines: of `summarize`, by what they stand for; one that was not scored for this concept is absent.
        per_epoch: steps of an epoch.
        last: the last step.
    """

    lines: dict[str, dict[str, Any]]
    per_epoch: int
    last: int

    @property
    def shares(self) -> dict[str, dict[Point, dict[str, float]]]:
        """Each model's mean on each line with its interval of 95 % and its rate of ties."""
        return {
            name: {Point(*cell): {key: found[key] for key in SHARE} for cell, found in line["models"].items()}
            for name, line in self.lines.items()
        }

    def difference(self, line: str, point: Point, reference: Point) -> dict[str, float]:
        """One model minus another, paired by item, with interval and sign-flip p, which agree; one of `_pairs`."""
        return {key: self.lines[line]["contrasts"][point, reference][key] for key in ("value", "low", "high", "p")}

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
    found = {concept: Outcomes.of(table) for concept, table in outcomes.items()}
    scored = {concept: {measure.name for measure in _measures(own, plan, concept)} for concept, own in found.items()}
    for name, line in plan.lines().items():
        missing = [concept for concept in outcomes if name not in scored[concept]]
        if missing and (name in NEEDED or len(missing) == len(outcomes)):
            known = sorted({(one[0], one[2]) for concept in missing for one in found[concept].aspects})
            listed = "; ".join(f"{benchmark}, {metric}" for benchmark, metric in known)
            place = f"{line.benchmark!r}, {line.metric!r} for {', '.join(missing)}"
            raise ValueError(f"{name}: nothing was scored as {place}. There is: {listed}.")


def summarize_tradeoff(outcomes: dict[str, pd.DataFrame], plan: TradeoffPlan) -> dict[str, ConceptResults]:
    """Lines of each concept.

    Args:
        outcomes: by concept; arms are runs.
        plan: of the study.

    Raises:
        ValueError: as `check_lines`.
    """
    check_lines(outcomes, plan)
    return {concept: _of_concept(Outcomes.of(table), concept, plan) for concept, table in outcomes.items()}


def _of_concept(outcomes: Outcomes, concept: str, plan: TradeoffPlan) -> ConceptResults:
    steps = sorted(set(outcomes.table["step"].tolist()) - {BASE_STEP})
    every, last = steps[0], steps[-1]
    measures = _measures(outcomes, plan, concept)
    contrasts = {pair: ([pair[0]], [pair[1]]) for pair in _pairs(plan.concepts[concept], every, plan.per_epoch, last)}
    lines = summarize(outcomes, by=("arm", "step"), measures=measures, contrasts=contrasts, images="measure")
    named = dict(zip([measure.name for measure in measures], lines, strict=True))
    return ConceptResults(named, per_epoch=every * plan.per_epoch, last=last)


def _measures(outcomes: Outcomes, plan: TradeoffPlan, concept: str) -> list[Measure]:
    """The lines that there are: of retrieval all subsets, of the others the concept's."""
    found = []
    for name, (benchmark, metric) in plan.lines().items():
        of_metric = [line for line in outcomes.aspects if (line[0], line[2]) == (benchmark, metric)]
        lines = of_metric if name == RETRIEVAL else [line for line in of_metric if line[1] == concept]
        if lines:
            found.append(Measure(name, lines, pooled=True))
    return found


def _pairs(numbers: list[int], every: int, per_epoch: int, last: int) -> list[tuple[Point, Point]]:
    """The models that are compared: at the end, and of the fewest hard negatives after a checkpoint and an epoch."""
    base, plain = Point(BASE, BASE_STEP), Point(PLAIN, last)
    hard = [Point(f"HN{number}", last) for number in numbers]
    few = hard[0]
    pairs = [(plain, base), *((one, plain) for one in hard), (hard[-1], few)]
    return [*pairs, (few._replace(step=every), base), (few, few._replace(step=every * per_epoch))]


def final(results: ConceptResults, run: str) -> Point:
    """A run's last model; the base is its own."""
    return Point(run, BASE_STEP if run == BASE else results.last)


def runs_of(results: dict[str, ConceptResults]) -> list[str]:
    """The runs of all concepts, in the order of the tables."""
    runs = {run for one in results.values() for line in one.lines.values() for run, _ in line["models"]}
    most = sorted((run for run in runs if run not in (BASE, PLAIN)), key=lambda run: int(run.removeprefix("HN")))
    return [BASE, PLAIN, *most]


def final_differences(results: dict[str, ConceptResults]) -> list[dict[str, Any]]:
    """The last models against plain training, and that against the base, on every line.

    The primary endpoint is accuracy on the concept: of the runs with hard negatives against plain training, p is
    corrected by Holm over runs and concepts (`p_holm`); all others get `q` of Benjamini and Hochberg.

    Args:
        results: of `summarize_tradeoff`.

    Returns:
        Of each `concept`, `line`, `run`, `reference`, and the numbers of `ConceptResults.difference`.
    """
    found = []
    for concept, one in results.items():
        for name, line in one.lines.items():
            for run in runs_of(results)[1:]:
                if final(one, run) in line["models"]:
                    reference = BASE if run == PLAIN else PLAIN
                    change = one.difference(name, final(one, run), final(one, reference))
                    found.append({"concept": concept, "line": name, "run": run, "reference": reference, **change})
    primary = [one for one in found if one["line"] == ACCURACY and one["reference"] == PLAIN]
    others = [one for one in found if not any(one is other for other in primary)]
    adjust(primary, others)
    return found


def findings(results: dict[str, ConceptResults], plan: TradeoffPlan) -> list[Finding]:
    """The paper's findings that the study has numbers for, concept by concept.

    Args:
        results: of `summarize_tradeoff`.
        plan: of the study.
    """
    return [
        finding
        for concept, one in results.items()
        for finding in concept_findings(
            concept,
            one.lines,
            numbers=plan.concepts[concept],
            every=one.per_epoch // plan.per_epoch,
            per_epoch=one.per_epoch,
            last=one.last,
            further=plan.further,
        )
    ]
