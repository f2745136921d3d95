"""A study of concepts: its numbers at every checkpoint, its report, and what it shows of Rösch et al. 2024."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pandas as pd

from hfcomp.experiments.experiment_config import STYLES
from hfcomp.reporting.figures import Figure, Paths, Stop
from hfcomp.reporting.format import with_interval
from hfcomp.reporting.lines import Line, counts
from hfcomp.reporting.report import Lines, Table
from hfcomp.statistics.measures import COMPOSITION, GENERAL, Measure
from hfcomp.statistics.outcomes import Outcomes
from hfcomp.statistics.significance import adjust
from hfcomp.statistics.summary import BASE, summarize

PLAIN = "plain"
BASE_STEP = 0
ACCURACY, RETRIEVAL, VISUAL = "accuracy", "retrieval", "visual"
NEEDED = (ACCURACY, RETRIEVAL)  # of every concept
SHOWN, OPPOSITE, OPEN = "shown", "the opposite is shown", "open"
# Bounds that define "hardly" and "enough" here: the largest losses and gains in the paper's Table 3, as fractions.
# LOCATION_GAIN is our choice.
RETRIEVAL_LOSS = 0.04
FURTHER_NEGATIVES = 0.03
FURTHER_EPOCHS = 0.02
LOCATION_GAIN = 0.05
VISUAL_GAINS = {"object": "1 to 3", "color": "6 to 7", "size": "28 to 30"}
ACCURACY_GAINS = {"object": "7 to 8", "color": "11 to 13", "location": "29 to 30", "size": "13 to 16"}
PLAIN_GAINS = {"object": "20", "color": "21 to 23", "location": "1 to 4", "size": "5 to 8"}
RETRIEVAL_GAINS = {"object": "15 to 16", "color": "11", "location": "12", "size": "11 to 12"}

Point = tuple[str, int]
"""A model of the study: a run (`base`, `plain`, `HN1` and so on) at a step; the base is at step 0."""
LineNames = Mapping[str, tuple[str, str]]
"""Benchmark and metric by what they stand for: `accuracy`, `retrieval`, and if any `visual` and further ones."""


@dataclass(frozen=True)
class ConceptResults:
    # Lines from `summarize`, by what they stand for. Their models and contrasts are points. Lines that were not scored
    # for this concept are missing.
    lines: dict[str, dict[str, Any]]
    numbers: Sequence[int]  # of hard negatives, ascending
    every: int  # steps between checkpoints
    per_epoch: int  # steps
    last: int  # step

    @property
    def epochs(self) -> range:
        return range(self.per_epoch, self.last + 1, self.per_epoch)

    def final(self, run: str) -> Point:
        return run, BASE_STEP if run == BASE else self.last


@dataclass(frozen=True)
class Finding:
    """A statement of the paper and what the study says of it."""

    concept: str
    statement: str
    paper: str  # the paper's numbers, in points
    value: float  # the difference here, 0 to 1
    low: float
    high: float
    # SHOWN if the whole interval is on the statement's side of its threshold, OPPOSITE if it is on the other side,
    # otherwise OPEN.
    verdict: str


def check_lines(outcomes: Mapping[str, Outcomes | pd.DataFrame], lines: LineNames) -> None:
    """Checks that every line of a study is scored, by the outcomes of the base: before anything is trained."""
    found = {concept: Outcomes.of(table) for concept, table in outcomes.items()}
    scored = {concept: {one.name for one in _measures(own, concept, lines)} for concept, own in found.items()}
    for name, (benchmark, metric) in lines.items():
        missing = [concept for concept in outcomes if name not in scored[concept]]
        # Accuracy and retrieval are needed for every concept, any other line for at least one.
        if missing and (name in NEEDED or len(missing) == len(outcomes)):
            known = sorted({(one[0], one[2]) for concept in missing for one in found[concept].aspects})
            listed = "; ".join(f"{benchmark}, {metric}" for benchmark, metric in known)
            place = f"{benchmark!r}, {metric!r} for {', '.join(missing)}"
            raise ValueError(f"{name}: nothing was scored as {place}. There is: {listed}.")


def summarize_concept(
    outcomes: Outcomes | pd.DataFrame, concept: str, lines: LineNames, *, numbers: Sequence[int], checkpoints: int
) -> ConceptResults:
    """The lines of a concept at every step, and the differences that the findings and the report are of."""
    outcomes = Outcomes.of(outcomes)
    # The base has a step of its own, which is not a checkpoint.
    steps = sorted(set(outcomes.table["step"].tolist()) - {BASE_STEP})
    # Checkpoints are equally far apart, so the step of the first one is the interval.
    every, last, measures = steps[0], steps[-1], _measures(outcomes, concept, lines)
    base, plain, hard = (BASE, BASE_STEP), (PLAIN, last), [(f"HN{number}", last) for number in numbers]
    early, first_epoch = ((hard[0][0], step) for step in (every, every * checkpoints))
    pairs = [
        (plain, base),
        *((one, plain) for one in hard),
        (hard[-1], hard[0]),
        (early, base),
        (hard[0], first_epoch),
    ]
    contrasts = {pair: ([pair[0]], [pair[1]]) for pair in pairs}
    found = summarize(outcomes, by=("arm", "step"), measures=measures, contrasts=contrasts, images="measure")
    named = dict(zip((measure.name for measure in measures), found, strict=True))
    return ConceptResults(named, numbers, every, every * checkpoints, last)


def _measures(outcomes: Outcomes, concept: str, lines: LineNames) -> list[Measure]:
    """The lines that there are: of retrieval all subsets, of the others the concept's."""
    found = []
    for name, (benchmark, metric) in lines.items():
        of_metric = [line for line in outcomes.aspects if (line[0], line[2]) == (benchmark, metric)]
        own = [line for line in of_metric if name == RETRIEVAL or line[1] == concept]
        found += [Measure(name, [tuple(own)])] if own else []
    return found


def final_differences(results: Mapping[str, ConceptResults]) -> list[dict[str, Any]]:
    """The last models against plain training, and that against the base, on every line.

    The primary endpoint is accuracy on the concept: of the runs with hard negatives against plain training, p is
    corrected by Holm over runs and concepts (`p_holm`); all others get `q` of Benjamini and Hochberg.

    Returns:
        Of each `concept`, `line`, `run` and `reference` `value`, `low`, `high`, `p`, and `p_holm` or `q`.
    """
    found = []
    for concept, one in results.items():
        for name, line in one.lines.items():
            for run in (PLAIN, *(f"HN{number}" for number in one.numbers)):
                reference = BASE if run == PLAIN else PLAIN
                change = line["contrasts"].get((one.final(run), one.final(reference)))
                if change is not None:
                    place = {"concept": concept, "line": name, "run": run, "reference": reference}
                    found.append({**place, **{key: change[key] for key in ("value", "low", "high", "p")}})
    primary = [(one["line"], one["reference"]) == (ACCURACY, PLAIN) for one in found]
    adjust(*([one for one, first in zip(found, primary, strict=True) if first == wanted] for wanted in (True, False)))
    return found


def concept_findings(concept: str, results: ConceptResults, further: Sequence[str] = ()) -> Iterator[Finding]:
    """The paper's findings that a study has numbers for; `further` are names of lines beside the paper's three."""
    test = partial(_finding, concept, results)
    every, per_epoch, last = results.every, results.per_epoch, results.last
    few, many = (f"HN{results.numbers[index]}" for index in (0, -1))
    base, trained, hard = (BASE, BASE_STEP), (PLAIN, last), (few, last)
    gains = PLAIN_GAINS.get(concept, "-")
    yield test(RETRIEVAL, "plain training finds more images", RETRIEVAL_GAINS.get(concept, "-"), trained, base)
    plain, bound = "plain training helps", None
    # The paper gains 1 to 4 points here, so the statement is an upper bound.
    if concept == "location":
        plain, bound = "plain training hardly helps (at most 5 points, our bound)", LOCATION_GAIN
    yield test(ACCURACY, plain, gains, trained, base, most=bound)
    words = f"{few} helps beyond plain training"
    yield test(ACCURACY, words, ACCURACY_GAINS.get(concept, "-"), hard, trained)
    cost = f"{few} costs at most 4 points of plain training's retrieval"
    yield test(RETRIEVAL, cost, "-4 to 0", hard, trained, least=-RETRIEVAL_LOSS)
    early = f"{few} helps after 1/{per_epoch // every} of an epoch already"
    yield test(ACCURACY, early, "Fig. 4", (few, every), base)
    # After a single epoch there are no later ones to compare.
    if last > per_epoch:
        enough = f"one epoch of {few} is enough (later ones add at most 2 points)"
        yield test(ACCURACY, enough, "0 to 2", hard, (few, per_epoch), most=FURTHER_EPOCHS)
    # With a single number of negatives there is nothing to compare.
    if many != few:
        more = f"{many} adds at most 3 points to {few}"
        yield test(ACCURACY, more, "1 to 3", (many, last), hard, most=FURTHER_NEGATIVES)
    if VISUAL in results.lines:
        yield test(VISUAL, f"{words}, seen from the images (Eq. 2)", VISUAL_GAINS.get(concept, "-"), hard, trained)
    for name in further:
        if name in results.lines:
            yield test(name, f"{words} on {name}", "Table 5", hard, trained)


def _finding(
    concept: str,
    results: ConceptResults,
    line: str,
    statement: str,
    paper: str,
    point: Point,
    reference: Point,
    *,
    least: float = 0.0,
    most: float | None = None,
) -> Finding:
    """Whether `point` minus `reference` on a line is above `least`, or with `most` below it."""
    change = results.lines[line]["contrasts"][point, reference]
    low, high = change["low"], change["high"]
    # With an upper bound the statement's side is below it.
    above, below = (low > least, high < least) if most is None else (high < most, low > most)
    verdict = SHOWN if above else OPPOSITE if below else OPEN
    return Finding(concept, statement, paper, change["value"], low, high, verdict)


NUMBER = ("value", "low", "high", "tie_rate")
NAMES = {"accuracy": "accuracy on the concept", "visual": "seen from the images (Eq. 2)"}
VERDICTS = {
    SHOWN: "Shown: the whole interval is on the paper's side",
    OPPOSITE: "Not shown, the opposite is: the whole interval is on the other side",
    OPEN: "Not shown, open: the interval holds the bound",
}


@dataclass(frozen=True)
class StudyResults:
    names: LineNames
    concepts: dict[str, ConceptResults]
    differences: list[dict[str, Any]]
    findings: list[Finding]

    def lines(self) -> Iterator[Line]:
        """The form of the paper's Tables 3 to 5: a line per number, concept and epoch, whose models are the runs.

        Those of the last epoch have the differences of the last models to plain training, and of that to the base.
        """
        for name, concept, results in self._scored():
            changes = [one for one in self.differences if (one["concept"], one["line"]) == (concept, name)]
            minus = {change["run"]: {change["reference"]: change} for change in changes}
            models = results.lines[name]["models"]
            for epoch, step in enumerate(results.epochs, start=1):
                # The base has a single point, which is repeated in every epoch.
                points = {run: models.get((run, BASE_STEP if run == BASE else step)) for run in self._runs()}
                differences = minus if step == results.last else {}
                yield self._line(name, concept, f"epoch {epoch}", points) | {"differences": differences}

    def tie_lines(self) -> Iterator[Line]:
        """A line per number and concept, of each run's checkpoint with the most ties, so that none is missed."""
        for name, concept, results in self._scored():
            models = results.lines[name]["models"]
            of_runs = {run: [found for (one, _), found in models.items() if one == run] for run in self._runs()}
            worst = {run: max(found, key=lambda one: one["tie_rate"], default=None) for run, found in of_runs.items()}
            yield self._line(name, concept, "checkpoint with the most ties", worst)

    def _runs(self) -> list[str]:
        numbers = sorted({number for one in self.concepts.values() for number in one.numbers})
        return [BASE, PLAIN, *(f"HN{number}" for number in numbers)]

    def _scored(self) -> Iterator[tuple[str, str, ConceptResults]]:
        for name in self.names:
            yield from ((name, concept, one) for concept, one in self.concepts.items() if name in one.lines)

    def _line(self, name: str, concept: str, what: str, models: dict[str, Any]) -> Line:
        found = self.concepts[concept].lines[name]
        return {
            "benchmark": NAMES.get(name, name),
            "subset": f"{concept}, {what}",
            "metric": ", ".join(self.names[name]),
            "aspect": GENERAL if name == RETRIEVAL else COMPOSITION,
            **{key: found[key] for key in ("items", "images", "chance")},
            "models": models,
        }


def summarize_study(
    outcomes: Mapping[str, pd.DataFrame],
    names: LineNames,
    *,
    numbers: Mapping[str, Sequence[int]],
    checkpoints: int,
    further: Sequence[str] = (),
) -> StudyResults:
    check_lines(outcomes, names)
    concepts = {
        concept: summarize_concept(table, concept, names, numbers=numbers[concept], checkpoints=checkpoints)
        for concept, table in outcomes.items()
    }
    findings = [found for concept, one in concepts.items() for found in concept_findings(concept, one, further)]
    return StudyResults(names, concepts, final_differences(concepts), findings)


def concept_contents(results: ConceptResults) -> dict[str, Any]:
    lines = {
        name: [
            {"run": run, "step": step, "epochs": step / results.per_epoch, **{key: found[key] for key in NUMBER}}
            for (run, step), found in line["models"].items()
        ]
        for name, line in results.lines.items()
    }
    return {"steps_per_epoch": results.per_epoch, "lines": lines}


def verdict_lines(findings: Sequence[Finding]) -> Iterator[Lines]:
    for verdict, words in VERDICTS.items():
        texts = []
        for one in (one for one in findings if one.verdict == verdict):
            paper = "" if one.paper == "-" else f" (paper: {one.paper})"
            texts.append(f"{one.concept}: {one.statement}: {with_interval(asdict(one), sign='+')}{paper}")
        yield Lines(texts, words)


def checkpoint_table(concept: str, results: ConceptResults) -> Table:
    accuracy, retrieval = (results.lines[name]["models"] for name in (ACCURACY, RETRIEVAL))
    rows = []
    for (run, step), found in accuracy.items():
        numbers = with_interval(found), with_interval(retrieval[run, step])
        rows.append([run, f"{step / results.per_epoch:.2f}", f"{step:,}", *numbers])
    return Table(concept, ["run", "epochs", "step", ACCURACY, RETRIEVAL], rows)


def study_figure(name: str, title: str, results: StudyResults) -> Figure:
    """Accuracy against retrieval, one panel a concept and one path a run: the form of the paper's Fig. 4."""
    runs = {concept: [PLAIN, *(f"HN{number}" for number in one.numbers)] for concept, one in results.concepts.items()}
    axes = f"{results.names[RETRIEVAL][1]}, percent", f"{results.names[ACCURACY][1]} on the concept, percent"
    panels = []
    for concept, one in results.concepts.items():
        paths, line = {run: _path(one, run) for run in [*runs[concept], BASE]}, one.lines[ACCURACY]
        chance, number = line["chance"], counts([{"benchmark": "", "items": line["items"], "images": line["images"]}])
        panels.append(Paths(f"{concept}, {number} (chance {100 * chance:.1f}, dotted)", axes, paths, chance))
    caption = (
        "Numbers: epochs. Small points: checkpoints between. Bars: 95% intervals of the base and of the last models."
    )
    return Figure(name, title, panels, caption, styles=STYLES)


def _path(results: ConceptResults, run: str) -> list[Stop]:
    """Every checkpoint of a run from the base on; ends of epochs carry their number."""
    across, up = (results.lines[name]["models"] for name in (RETRIEVAL, ACCURACY))
    own = sorted((point for point in up if point[0] in (BASE, run)), key=lambda point: point[1])
    marks = {step: str(epoch) for epoch, step in enumerate(results.epochs, start=1)}
    return [
        Stop(across[point], up[point], marks.get(point[1], ""), run == BASE or point[1] == results.last)
        for point in own
    ]
