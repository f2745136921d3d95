"""Numbers of a run, a sweep and a search: lines, averages, the primary endpoint, and the mean of general abilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from hfcomp.statistics.measures import (
    GENERAL,
    Average,
    Measure,
    all_measures,
    headline_measures,
    mean_of_lines,
    primary_measure,
    search_measure,
    usable_averages,
)
from hfcomp.statistics.outcomes import NO_SEED, Outcomes
from hfcomp.statistics.significance import adjust
from hfcomp.statistics.summary import BASE, Contrasts, correct, summarize

Result = dict[str, Any]
RANGE = ("value", "lowest", "highest", "seeds")


def summarize_run(
    outcomes: Outcomes | pd.DataFrame,
    models: list[str],
    *,
    primary: str | None,
    declared: Mapping[str, Sequence[Average]],
    planned: Sequence[tuple[str, str]] = (),
) -> tuple[list[Result], Result | None]:
    """Computes the lines of a run, with averages over subsets and the primary endpoint, and the general lines' mean.

    Args:
        outcomes: Outcomes of all models. Several seeds are paired by seed, see `difference_over_seeds`.
        models: Models in the order of the report, the method last.
        primary: As in `primary_measure`.
        declared: As in `primary_measure`.
        planned: Comparisons on the primary endpoint that the run is made for, as in `correct`.

    Returns:
        Lines as returned by `summarize`. The primary line, which is put first if it is not among the others, has
        `primary`, its name. Then the mean of general abilities, if there are several.
    """
    outcomes = Outcomes.of(outcomes)
    measure = primary_measure(outcomes, primary, declared)
    measures = all_measures(outcomes.aspects, usable_averages(outcomes, declared))
    lines = summarize(outcomes, models=models, references=models[:-1], measures=measures)
    if measure is not None:
        place = next((index for index, other in enumerate(measures) if _is_same(other, measure)), None)
        if place is None:
            own = replace(measure, labels=_labels(measure, outcomes))
            lines[:0] = summarize(outcomes, models=models, references=models[:-1], measures=[own], images="measure")
        lines[place or 0]["primary"] = measure.name
    # Only once all lines exist, because the correction depends on their number. The mean below is not corrected,
    # because its lines are already counted here.
    correct(lines, planned)
    general = [line for line, aspect in outcomes.aspects.items() if aspect == GENERAL]
    if len(general) < 2:
        return lines, None
    means = [mean_of_lines("general average", general)]
    return lines, summarize(outcomes, models=models, references=models[:-1], measures=means, images="measure")[0]


def summarize_settings(
    outcomes: Mapping[str, Outcomes],
    variants: Sequence[str],
    *,
    reference: str,
    contrasts: Contrasts,
    primary: str | None,
    declared: Mapping[str, Sequence[Average]],
    benchmarks: Sequence[str] = (),
) -> dict[str, tuple[list[Result], Result | None]]:
    """Computes the lines of a sweep by setting, the primary endpoint first, and the mean of its general lines.

    Outcomes are given by setting, for `base` and the variants with their seeds. A difference to the reference, or a
    contrast (named by what stands for its model and its reference), is paired by item and by seed.
    `difference_over_seeds` shows what other images and other seeds would change; with one seed, only what other images
    would. The p-values of the primary endpoint get Holm's correction for the number of variants and settings, and
    those of contrasts for their number; all others get q of Benjamini and Hochberg.

    Lines are those of `summarize` plus `name`, the name of their measure. With several seeds, a variant has `value`,
    `lowest`, `highest` and `seeds`, and the base, which has no seeds, its `value`. Raises ValueError for a benchmark
    or a primary endpoint that was not evaluated.
    """
    first = next(iter(outcomes.values()))
    judged = primary_measure(first, primary, declared)
    measures = headline_measures(first, benchmarks, judged, declared)
    general = [measure.lines[0] for measure in measures if first.aspects[measure.lines[0]] == GENERAL]
    means = [mean_of_lines("general average", general)] if len(general) > 1 else []
    pairs = {(variant, reference): ([variant], [reference]) for variant in variants if variant != reference}
    pairs |= dict(contrasts)
    results: dict[str, tuple[list[Result], Result | None]] = {}
    for setting, own in outcomes.items():
        several = len({*own.table["seed"]} - {NO_SEED}) > 1
        options: dict[str, Any] = {"contrasts": pairs, "images": "all", "intervals": not several}
        lines = summarize(own, models=[BASE, *variants], measures=[*measures, *means], **options)
        for line in lines:
            for (variant, other), change in line.pop("contrasts").items():
                line["differences"].setdefault(variant, {})[other] = change
            if several:
                line["models"] = {
                    name: {key: cell[key] for key in RANGE if key in cell} for name, cell in line["models"].items()
                }
        average = lines.pop() if means else None
        for line, measure in zip(lines, measures, strict=True):
            line |= {**_labels(measure, own), "name": measure.name}
            line |= {"primary": measure.name} if measure is judged else {}
        results[setting] = lines, average
    _correct_settings([line for lines, _ in results.values() for line in lines], reference)
    return results


def _correct_settings(lines: Sequence[Result], reference: str) -> None:
    """Corrects the differences to the reference for their number, and the contrasts for theirs, in place."""
    for against_reference in (True, False):
        changes = [
            (line, change)
            for line in lines
            for minus in line["differences"].values()
            for other, change in minus.items()
            if (other == reference) == against_reference
        ]
        primary = [change for line, change in changes if "primary" in line]
        adjust(primary, [change for line, change in changes if "primary" not in line])


def _is_same(candidate: Measure, measure: Measure) -> bool:
    """Whether a report's measure is the requested one, which may be a pattern that matches a single line."""
    if candidate.name == measure.name:
        return True
    return len(measure.lines) == 1 and not candidate.is_average and candidate.lines == measure.lines


def _labels(measure: Measure, outcomes: Outcomes) -> dict[str, Any]:
    """Labels a mean of lines of several metrics or benchmarks like a line."""
    benchmarks = list(dict.fromkeys(line[0] for line in measure.lines))
    return {
        "benchmark": ", ".join(benchmarks),
        "subset": f"average of {len(measure.lines)} lines",
        "metric": measure.name.partition(": ")[2] or measure.name,
        "aspect": outcomes.aspects[measure.lines[0]],
        **measure.labels,
    }


@dataclass(frozen=True)
class Score:
    """A number.

    Attributes:
        value: Mean of the lines' means, each with the same weight. A line with strata counts as the mean of theirs.
        low: Lower end of a 95% image-clustered bootstrap interval, NaN with one image; `high` is the upper end.
        benchmarks: Titles of the lines' benchmarks.
    """

    value: float
    low: float
    high: float
    benchmarks: tuple[str, ...] = ()


def score(outcomes: Outcomes | pd.DataFrame, measure: str) -> Score:
    """Computes the value of a measure, as in `search_measure`, for one model."""
    outcomes = Outcomes.of(outcomes)
    chosen = search_measure(outcomes, measure)
    (line,) = summarize(outcomes, measures=[chosen], images="measure")
    (cell,) = line["models"].values()
    benchmarks = tuple(dict.fromkeys(benchmark for benchmark, _, _ in chosen.lines))
    return Score(cell["value"], cell["low"], cell["high"], benchmarks)
