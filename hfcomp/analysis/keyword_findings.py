"""Results of a study of concepts: numbers at every checkpoint, tables, and findings of Rösch et al. 2024."""

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
NEEDED = (ACCURACY, RETRIEVAL)  # needed for every concept
SHOWN, OPPOSITE, OPEN = "shown", "the opposite is shown", "open"
# Bounds for "hardly" and "enough": the largest losses and gains in the paper's Table 3, as fractions. LOCATION_GAIN is
# our choice.
RETRIEVAL_LOSS = 0.04
FURTHER_NEGATIVES = 0.03
FURTHER_EPOCHS = 0.02
LOCATION_GAIN = 0.05
VISUAL_GAINS = {"object": "1 to 3", "color": "6 to 7", "size": "28 to 30"}
ACCURACY_GAINS = {"object": "7 to 8", "color": "11 to 13", "location": "29 to 30", "size": "13 to 16"}
PLAIN_GAINS = {"object": "20", "color": "21 to 23", "location": "1 to 4", "size": "5 to 8"}
RETRIEVAL_GAINS = {"object": "15 to 16", "color": "11", "location": "12", "size": "11 to 12"}

Point = tuple[str, int]
"""Model of the study: a run (`base`, `plain`, `HN1` and so on) at a step; the base is at step 0."""
LineNames = Mapping[str, tuple[str, str]]
"""Benchmark and metric by line name: `accuracy`, `retrieval`, and optionally `visual` and further lines."""


@dataclass(frozen=True)
class ConceptResults:
    # Lines from `summarize` by line name. Their models and contrasts are points. Lines that were not scored for this
    # concept are missing.
    lines: dict[str, dict[str, Any]]
    numbers: Sequence[int]  # numbers of hard negatives, ascending
    every: int  # steps between checkpoints
    per_epoch: int  # steps per epoch
    last: int  # last step

    @property
    def epochs(self) -> range:
        return range(self.per_epoch, self.last + 1, self.per_epoch)

    def final(self, run: str) -> Point:
        return run, BASE_STEP if run == BASE else self.last


@dataclass(frozen=True)
class Finding:
    """Statement of the paper, with the study's numbers and verdict."""

    concept: str
    statement: str
    paper: str  # the paper's numbers, in points
    value: float  # this study's difference, 0 to 1
    low: float
    high: float
    # SHOWN if the whole interval is on the statement's side of its threshold, OPPOSITE if it is on the other side,
    # otherwise OPEN.
    verdict: str


def check_lines(outcomes: Mapping[str, Outcomes | pd.DataFrame], lines: LineNames) -> None:
    """Checks with the outcomes of the base, before any training, that every line of a study is scored."""
    by_concept = {concept: Outcomes.of(table) for concept, table in outcomes.items()}
    scored = {
        concept: {measure.name for measure in _measures(own, concept, lines)} for concept, own in by_concept.items()
    }
    for name, (benchmark, metric) in lines.items():
        missing = [concept for concept in outcomes if name not in scored[concept]]
        # Accuracy and retrieval are needed for every concept, any other line for at least one concept.
        if missing and (name in NEEDED or len(missing) == len(outcomes)):
            known = sorted({(aspect[0], aspect[2]) for concept in missing for aspect in by_concept[concept].aspects})
            listed = "; ".join(f"{benchmark}, {metric}" for benchmark, metric in known)
            place = f"{benchmark!r}, {metric!r} for {', '.join(missing)}"
            raise ValueError(f"{name}: nothing was scored for {place}. Scored: {listed}.")


def summarize_concept(
    outcomes: Outcomes | pd.DataFrame, concept: str, lines: LineNames, *, numbers: Sequence[int], checkpoints: int
) -> ConceptResults:
    """Computes the lines of a concept at every step, and the differences used by the findings and the report."""
    outcomes = Outcomes.of(outcomes)
    # The base has its own step, which is not a checkpoint.
    steps = sorted(set(outcomes.table["step"].tolist()) - {BASE_STEP})
    # Checkpoints are evenly spaced, so the first step is the interval.
    every, last, measures = steps[0], steps[-1], _measures(outcomes, concept, lines)
    base, plain, hard = (BASE, BASE_STEP), (PLAIN, last), [(f"HN{number}", last) for number in numbers]
    early, first_epoch = ((hard[0][0], step) for step in (every, every * checkpoints))
    pairs = [
        (plain, base),
        *((trained, plain) for trained in hard),
        (hard[-1], hard[0]),
        (early, base),
        (hard[0], first_epoch),
    ]
    contrasts = {pair: ([pair[0]], [pair[1]]) for pair in pairs}
    summaries = summarize(outcomes, by=("arm", "step"), measures=measures, contrasts=contrasts, images="measure")
    named = dict(zip((measure.name for measure in measures), summaries, strict=True))
    return ConceptResults(named, numbers, every, every * checkpoints, last)


def _measures(outcomes: Outcomes, concept: str, lines: LineNames) -> list[Measure]:
    """Lists the existing lines: all subsets of retrieval, and the concept's subset of the others."""
    measures = []
    for name, (benchmark, metric) in lines.items():
        metric_lines = [line for line in outcomes.aspects if (line[0], line[2]) == (benchmark, metric)]
        selected = [line for line in metric_lines if name == RETRIEVAL or line[1] == concept]
        measures += [Measure(name, [tuple(selected)])] if selected else []
    return measures


def final_differences(results: Mapping[str, ConceptResults]) -> list[dict[str, Any]]:
    """Compares the last models with plain training, and plain training with the base, on every line.

    The primary endpoint is accuracy on the concept, for runs with hard negatives compared with plain training. Its p
    is corrected by Holm over runs and concepts (`p_holm`). All others get `q` of Benjamini and Hochberg.

    Returns:
        One entry per `concept`, `line`, `run` and `reference`, with `value`, `low`, `high`, `p`, and `p_holm` or `q`.
    """
    changes = []
    for concept, concept_results in results.items():
        for name, line in concept_results.lines.items():
            for run in (PLAIN, *(f"HN{number}" for number in concept_results.numbers)):
                reference = BASE if run == PLAIN else PLAIN
                change = line["contrasts"].get((concept_results.final(run), concept_results.final(reference)))
                if change is not None:
                    comparison = {"concept": concept, "line": name, "run": run, "reference": reference}
                    changes.append({**comparison, **{key: change[key] for key in ("value", "low", "high", "p")}})
    primary = [(change["line"], change["reference"]) == (ACCURACY, PLAIN) for change in changes]
    adjust(
        *(
            [change for change, first in zip(changes, primary, strict=True) if first == wanted]
            for wanted in (True, False)
        )
    )
    return changes


def concept_findings(concept: str, results: ConceptResults, further: Sequence[str] = ()) -> Iterator[Finding]:
    """Yields the paper's findings that the study can test. `further` names lines in addition to the paper's three."""
    test = partial(_finding, concept, results)
    every, per_epoch, last = results.every, results.per_epoch, results.last
    few, many = (f"HN{results.numbers[index]}" for index in (0, -1))
    base, trained, hard = (BASE, BASE_STEP), (PLAIN, last), (few, last)
    gains = PLAIN_GAINS.get(concept, "-")
    yield test(RETRIEVAL, "plain training finds more images", RETRIEVAL_GAINS.get(concept, "-"), trained, base)
    plain, bound = "plain training helps", None
    # The paper's gain is only 1 to 4 points here, so the statement is an upper bound.
    if concept == "location":
        plain, bound = "plain training hardly helps (at most 5 points, our bound)", LOCATION_GAIN
    yield test(ACCURACY, plain, gains, trained, base, most=bound)
    words = f"{few} helps more than plain training"
    yield test(ACCURACY, words, ACCURACY_GAINS.get(concept, "-"), hard, trained)
    cost = f"{few} costs at most 4 points of plain training's retrieval"
    yield test(RETRIEVAL, cost, "-4 to 0", hard, trained, least=-RETRIEVAL_LOSS)
    early = f"{few} already helps after 1/{per_epoch // every} of an epoch"
    yield test(ACCURACY, early, "Fig. 4", (few, every), base)
    # With a single epoch, there are no later epochs to compare.
    if last > per_epoch:
        enough = f"one epoch of {few} is enough (later ones add at most 2 points)"
        yield test(ACCURACY, enough, "0 to 2", hard, (few, per_epoch), most=FURTHER_EPOCHS)
    # With a single number of negatives, there is nothing to compare.
    if many != few:
        more = f"{many} adds at most 3 points to {few}"
        yield test(ACCURACY, more, "1 to 3", (many, last), hard, most=FURTHER_NEGATIVES)
    if VISUAL in results.lines:
        yield test(
            VISUAL, f"{words} when each image chooses its text (Eq. 2)", VISUAL_GAINS.get(concept, "-"), hard, trained
        )
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
    """Tests whether `point` minus `reference` on a line is above `least`, or below `most` if it is given."""
    change = results.lines[line]["contrasts"][point, reference]
    low, high = change["low"], change["high"]
    # With an upper bound, the statement holds below it.
    above, below = (low > least, high < least) if most is None else (high < most, low > most)
    verdict = SHOWN if above else OPPOSITE if below else OPEN
    return Finding(concept, statement, paper, change["value"], low, high, verdict)


NUMBER = ("value", "low", "high", "tie_rate")
NAMES = {"accuracy": "accuracy on the concept", "visual": "seen from the images (Eq. 2)"}
VERDICTS = {
    SHOWN: "Shown: the whole interval is on the paper's side",
    OPPOSITE: "Contradicted: the whole interval is on the other side",
    OPEN: "Open: the interval includes the bound",
}


@dataclass(frozen=True)
class StudyResults:
    names: LineNames
    concepts: dict[str, ConceptResults]
    differences: list[dict[str, Any]]
    findings: list[Finding]

    def lines(self) -> Iterator[Line]:
        """Yields lines like the paper's Tables 3 to 5: one per number, concept and epoch, with runs as models.

        Lines of the last epoch also have the differences between the last models and plain training, and between plain
        training and the base.
        """
        for name, concept, results in self._scored_results():
            changes = [change for change in self.differences if (change["concept"], change["line"]) == (concept, name)]
            minus = {change["run"]: {change["reference"]: change} for change in changes}
            models = results.lines[name]["models"]
            for epoch, step in enumerate(results.epochs, start=1):
                # The base has a single point, so repeat it in every epoch.
                points = {run: models.get((run, BASE_STEP if run == BASE else step)) for run in self._runs()}
                differences = minus if step == results.last else {}
                yield self._line(name, concept, f"epoch {epoch}", points) | {"differences": differences}

    def tie_lines(self) -> Iterator[Line]:
        """Yields a line per number and concept with each run's checkpoint that has the most ties."""
        for name, concept, results in self._scored_results():
            models = results.lines[name]["models"]
            by_run = {run: [point for (other, _), point in models.items() if other == run] for run in self._runs()}
            worst = {
                run: max(points, key=lambda point: point["tie_rate"], default=None) for run, points in by_run.items()
            }
            yield self._line(name, concept, "checkpoint with the most ties", worst)

    def _runs(self) -> list[str]:
        numbers = sorted({number for results in self.concepts.values() for number in results.numbers})
        return [BASE, PLAIN, *(f"HN{number}" for number in numbers)]

    def _scored_results(self) -> Iterator[tuple[str, str, ConceptResults]]:
        for name in self.names:
            yield from (
                (name, concept, results) for concept, results in self.concepts.items() if name in results.lines
            )

    def _line(self, name: str, concept: str, what: str, models: dict[str, Any]) -> Line:
        line = self.concepts[concept].lines[name]
        return {
            "benchmark": NAMES.get(name, name),
            "subset": f"{concept}, {what}",
            "metric": ", ".join(self.names[name]),
            "aspect": GENERAL if name == RETRIEVAL else COMPOSITION,
            **{key: line[key] for key in ("items", "images", "chance")},
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
    findings = [finding for concept, own in concepts.items() for finding in concept_findings(concept, own, further)]
    return StudyResults(names, concepts, final_differences(concepts), findings)


def concept_contents(results: ConceptResults) -> dict[str, Any]:
    lines = {
        name: [
            {"run": run, "step": step, "epochs": step / results.per_epoch, **{key: numbers[key] for key in NUMBER}}
            for (run, step), numbers in line["models"].items()
        ]
        for name, line in results.lines.items()
    }
    return {"steps_per_epoch": results.per_epoch, "lines": lines}


def verdict_lines(findings: Sequence[Finding]) -> Iterator[Lines]:
    for verdict, words in VERDICTS.items():
        texts = []
        for finding in (finding for finding in findings if finding.verdict == verdict):
            paper = "" if finding.paper == "-" else f" (paper: {finding.paper})"
            texts.append(f"{finding.concept}: {finding.statement}: {with_interval(asdict(finding), sign='+')}{paper}")
        yield Lines(texts, words)


def checkpoint_table(concept: str, results: ConceptResults) -> Table:
    accuracy, retrieval = (results.lines[name]["models"] for name in (ACCURACY, RETRIEVAL))
    rows = []
    for (run, step), estimate in accuracy.items():
        numbers = with_interval(estimate), with_interval(retrieval[run, step])
        rows.append([run, f"{step / results.per_epoch:.2f}", f"{step:,}", *numbers])
    return Table(concept, ["run", "epochs", "step", ACCURACY, RETRIEVAL], rows)


def study_figure(name: str, title: str, results: StudyResults) -> Figure:
    """Draws accuracy against retrieval, with one panel per concept and one path per run, like the paper's Fig. 4."""
    runs = {concept: [PLAIN, *(f"HN{number}" for number in own.numbers)] for concept, own in results.concepts.items()}
    axes = f"{results.names[RETRIEVAL][1]}, percent", f"{results.names[ACCURACY][1]} on the concept, percent"
    panels = []
    for concept, own in results.concepts.items():
        paths, line = {run: _path(own, run) for run in [*runs[concept], BASE]}, own.lines[ACCURACY]
        chance, number = line["chance"], counts([{"benchmark": "", "items": line["items"], "images": line["images"]}])
        panels.append(Paths(f"{concept}, {number} (chance {100 * chance:.1f}, dotted)", axes, paths, chance))
    caption = (
        "Numbers: epochs. Small points: checkpoints in between. Bars: 95% intervals of the base and the last models."
    )
    return Figure(name, title, panels, caption, styles=STYLES)


def _path(results: ConceptResults, run: str) -> list[Stop]:
    """Returns every checkpoint of a run, starting with the base. Ends of epochs are labeled with their number."""
    across, up = (results.lines[name]["models"] for name in (RETRIEVAL, ACCURACY))
    own = sorted((point for point in up if point[0] in (BASE, run)), key=lambda point: point[1])
    marks = {step: str(epoch) for epoch, step in enumerate(results.epochs, start=1)}
    return [
        Stop(across[point], up[point], marks.get(point[1], ""), run == BASE or point[1] == results.last)
        for point in own
    ]
