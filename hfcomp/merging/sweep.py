"""A sweep: scores the points between a base and a tuned model on two proxies and chooses one by a rule."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hfcomp.data.image_ids import photograph_key
from hfcomp.evaluation.points import point_name
from hfcomp.merging.choice import TOLERANCE, Point, Rule, choose_point, non_dominated, rule_text
from hfcomp.statistics.average import Average
from hfcomp.statistics.measures import (
    GENERAL,
    Measure,
    all_measures,
    find_measure,
    mean_of_lines,
    primary_measure,
    usable_averages,
)
from hfcomp.statistics.outcomes import Outcomes
from hfcomp.statistics.summary import summarize

POINTS = 11
# Alphas from the base to the tuned model in steps of a tenth, as in WiSE-FT
ALPHAS = tuple(index / (POINTS - 1) for index in range(POINTS))
BASE_POINT = point_name(0.0)


@dataclass(frozen=True)
class Proxies:
    """The measures by which points are compared, one number each."""

    composition: Measure
    general: Measure


@dataclass(frozen=True)
class SweepResult:
    """The scores of all points, and the chosen one."""

    lines: tuple[dict[str, Any], dict[str, Any]]  # composition and general lines of `summarize`; points are models
    points: list[Point]  # in the order of their alphas
    chosen: Point
    rule: str  # the rule in words

    @property
    def front(self) -> list[Point]:
        return non_dominated(self.points)

    def facts(self) -> dict[str, Any]:
        return {
            "alpha": self.chosen.alpha,
            "rule": self.rule,
            "composition": self.lines[0]["name"],
            "general": self.lines[1]["name"],
            "items": [line["items"] for line in self.lines],
            "images": [line["images"] for line in self.lines],
            "points": [{**point._asdict(), "dominated": point not in self.front} for point in self.points],
        }


def few_images_warnings(swept: SweepResult) -> list[str]:
    # With fewer than 100 images, a single image weighs more than the default tolerance of one percentage point.
    return [
        f"the choice by {line['name']} rests on only {line['images']:,} images. A single image counts for more than "
        "one percentage point, so other images may choose a different point. Use more images."
        for line in swept.lines
        if line["images"] * TOLERANCE < 1
    ]


def find_proxies(
    outcomes: Outcomes,
    declared: Mapping[str, Sequence[Average]],
    *,
    primary: str | None = None,
    composition: str | None = None,
    general: str | None = None,
) -> Proxies:
    """Finds the two measures by which points are compared.

    Args:
        outcomes: Outcomes of any model.
        declared: Averages in use, by title of the benchmark.
        primary: Primary measure of a recipe, instead of `composition`.
        composition: Measure such as `benchmark: metric`, named as in a recipe's `primary`; by default the strictest
            metric of the first compositional benchmark, over its subsets.
        general: Measure named in the same way; by default the mean of all general lines, each with the same weight.

    Raises:
        ValueError: If a measure is not scored, or nothing compositional or nothing general is scored.
    """
    averages = usable_averages(outcomes, declared)
    measures = {measure.name: measure for measure in all_measures(outcomes.aspects, averages)}
    lines = [line for line, aspect in outcomes.aspects.items() if aspect == GENERAL]
    if composition is not None:
        improved = find_measure(composition, measures, where="composition")
    else:
        improved = primary_measure(outcomes, primary, declared)
    if improved is None:
        raise ValueError("No composition is scored. Add a compositional benchmark, such as sugarcrepe.")
    if general is None and not lines:
        raise ValueError("No general ability is scored. Add a general benchmark, such as coco2017_retrieval.")
    mean = mean_of_lines(f"mean of {len(lines)} general lines", lines) if general is None else None
    return Proxies(improved, mean or find_measure(general or "", measures, where="general"))


def choose(
    outcomes: Outcomes,
    proxies: Proxies,
    alphas: Sequence[float] = ALPHAS,
    *,
    rule: Rule = "tolerance",
    tolerance: float = TOLERANCE,
) -> SweepResult:
    """Chooses a point by its scores on the items reserved for this.

    Args:
        outcomes: Outcomes of all points, named as in `PointsEmbedder.score`.
        proxies: Return value of `find_proxies`.
        alphas: Alphas of the points, including 0.
        rule: `tolerance` or `mean`, see `choose_point`.
        tolerance: Allowed loss of the general score.
    """
    names = [point_name(alpha) for alpha in alphas]
    measures = [proxies.composition, proxies.general]
    summary = summarize(outcomes, models=names, references=[BASE_POINT], measures=measures, images="measure")
    lines = tuple({**line, "name": measure.name} for line, measure in zip(summary, measures, strict=True))
    scores = [[line["models"][name]["value"] for line in lines] for name in names]
    points = [Point(alpha, *pair) for alpha, pair in zip(alphas, scores, strict=True)]
    chosen = choose_point(points, rule, tolerance)
    return SweepResult((lines[0], lines[1]), points, chosen, rule_text(rule, tolerance))


def split_halves(outcomes: Outcomes) -> tuple[Outcomes, Outcomes]:
    """Splits the items by image into a half to choose with and a half to report."""
    names = outcomes.table["image_id"]
    # Use a hash of the photograph instead of a random draw, so an image is in the same half in every benchmark, under
    # all of its names, and in every run.
    keys = {name: photograph_key(name).encode() for name in names.unique()}
    first = {name: hashlib.sha256(key).digest()[0] % 2 == 0 for name, key in keys.items()}
    in_first = names.map(first).astype(bool)
    parts = tuple(Outcomes(outcomes.table[rows]) for rows in (in_first, ~in_first))
    for line in outcomes.aspects:
        if any(line not in part.aspects for part in parts):
            raise ValueError(
                f"{' / '.join(line)}: its images cannot be split into a half that chooses the point and a half "
                "that is reported. Remove the benchmark, or use more of its data."
            )
    return parts[0], parts[1]
