"""A sweep: the points between a base and a tuned model, scored on two proxies, and the one that a rule chooses."""

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
# Alphas from the base to the tuned model in steps of a tenth, as in WiSE-FT.
ALPHAS = tuple(index / (POINTS - 1) for index in range(POINTS))
BASE_POINT = point_name(0.0)


@dataclass(frozen=True)
class Proxies:
    """What a point is judged by, one number each."""

    composition: Measure
    general: Measure


@dataclass(frozen=True)
class Swept:
    """The scores of all points, and the chosen one."""

    lines: tuple[dict[str, Any], dict[str, Any]]  # composition and general abilities by `summarize`, a model a point
    points: list[Point]  # in the order of their alphas
    chosen: Point
    rule: str  # in words

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
            "points": [{**one._asdict(), "dominated": one not in self.front} for one in self.points],
        }


def few_images(swept: Swept) -> list[str]:
    # One image of fewer than 100 weighs more than the default tolerance of one percentage point.
    return [
        f"only {line['images']:,} images choose the point by {line['name']}: a single image is worth more than one "
        "percentage point, so other images may choose another point. Use more images."
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
    """The two measures that points are judged by.

    Args:
        outcomes: of any model.
        declared: averages in use, by title of the benchmark.
        primary: that of a recipe, in place of `composition`.
        composition: `benchmark: metric` and the like, as a recipe's `primary` names it; by default the strictest
            metric of the first benchmark of composition, over its subsets.
        general: likewise; by default the mean of all lines of general abilities, each with the same weight.

    Raises:
        ValueError: for a measure that is not scored, or where nothing of composition or of general abilities is.
    """
    known = {one.name: one for one in all_measures(outcomes.aspects, usable_averages(outcomes, declared))}
    lines = [line for line, aspect in outcomes.aspects.items() if aspect == GENERAL]
    if composition is not None:
        gained = find_measure(composition, known, where="composition")
    else:
        gained = primary_measure(outcomes, primary, declared)
    if gained is None:
        raise ValueError("nothing of composition is scored. Add a benchmark of it, such as sugarcrepe.")
    if general is None and not lines:
        raise ValueError("no general ability is scored. Add a benchmark of it, such as coco2017_retrieval.")
    mean = mean_of_lines(f"mean of {len(lines)} general lines", lines) if general is None else None
    return Proxies(gained, mean or find_measure(general or "", known, where="general"))


def choose(
    outcomes: Outcomes,
    proxies: Proxies,
    alphas: Sequence[float] = ALPHAS,
    *,
    rule: Rule = "tolerance",
    tolerance: float = TOLERANCE,
) -> Swept:
    """Chooses a point by its scores on the items that are for this alone.

    Args:
        outcomes: of all points, as `PointsEmbedder.score` names them.
        proxies: of `find_proxies`.
        alphas: of the points; 0 is among them.
        rule: `tolerance` or `mean`, see `choose_point`.
        tolerance: that may be lost of the general score.
    """
    names = [point_name(alpha) for alpha in alphas]
    measures = [proxies.composition, proxies.general]
    found = summarize(outcomes, models=names, references=[BASE_POINT], measures=measures, images="measure")
    lines = tuple({**line, "name": one.name} for line, one in zip(found, measures, strict=True))
    scores = [[line["models"][name]["value"] for line in lines] for name in names]
    points = [Point(alpha, *own) for alpha, own in zip(alphas, scores, strict=True)]
    chosen = choose_point(points, rule, tolerance)
    return Swept((lines[0], lines[1]), points, chosen, rule_text(rule, tolerance))


def halves(outcomes: Outcomes) -> tuple[Outcomes, Outcomes]:
    """The items of one half of the images, to choose by, and those of the other half, to report."""
    names = outcomes.table["image_id"]
    # A hash of the photograph decides, not a random draw: an image is in the same half in every benchmark, under all
    # of its names, and in every run.
    keys = {name: photograph_key(name).encode() for name in names.unique()}
    first = {name: hashlib.sha256(key).digest()[0] % 2 == 0 for name, key in keys.items()}
    chosen = names.map(first).astype(bool)
    parts = tuple(Outcomes(outcomes.table[kept]) for kept in (chosen, ~chosen))
    for line in outcomes.aspects:
        if any(line not in part.aspects for part in parts):
            raise ValueError(
                f"{' / '.join(line)}: its images cannot be halved into some that choose the point and some that are "
                "reported. Leave the benchmark out, or use more of its data."
            )
    return parts[0], parts[1]
