"""The report of a study of concepts: its numbers as lines, tables and a figure, and the findings that they show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from hfcomp.analysis.keyword_findings import (
    ACCURACY,
    BASE_STEP,
    OPEN,
    OPPOSITE,
    PLAIN,
    RETRIEVAL,
    SHOWN,
    ConceptResults,
    Finding,
    LineNames,
    check_lines,
    concept_findings,
    final_differences,
    summarize_concept,
)
from hfcomp.reporting.figures import Figure, Paths, Stop
from hfcomp.reporting.format import with_interval
from hfcomp.reporting.lines import Line, counts
from hfcomp.reporting.report import Lines, Table
from hfcomp.statistics.measures import COMPOSITION, GENERAL
from hfcomp.statistics.summary import BASE

NUMBER = ("value", "low", "high", "tie_rate")
NAMES = {"accuracy": "accuracy on the concept", "visual": "seen from the images (Eq. 2)"}
VERDICTS = {
    SHOWN: "Shown: the whole interval is on the paper's side",
    OPPOSITE: "Not shown, the opposite is: the whole interval is on the other side",
    OPEN: "Not shown, open: the interval holds the bound",
}


@dataclass(frozen=True)
class StudyResults:
    """The lines of a study of concepts by concept, the differences of the last models, and the paper's findings."""

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
    """The numbers of a study.

    Args:
        outcomes: by concept; their arms are runs.
        names: of the lines.
        numbers: of hard negatives by concept, rising.
        checkpoints: in an epoch.
        further: names of lines beside the paper's three.

    Raises:
        ValueError: as `check_lines`.
    """
    check_lines(outcomes, names)
    concepts = {
        concept: summarize_concept(table, concept, names, numbers=numbers[concept], checkpoints=checkpoints)
        for concept, table in outcomes.items()
    }
    findings = [found for concept, one in concepts.items() for found in concept_findings(concept, one, further)]
    return StudyResults(names, concepts, final_differences(concepts), findings)


def concept_contents(results: ConceptResults) -> dict[str, Any]:
    """What `tradeoff.json` says of a concept."""
    lines = {
        name: [
            {"run": run, "step": step, "epochs": step / results.per_epoch, **{key: found[key] for key in NUMBER}}
            for (run, step), found in line["models"].items()
        ]
        for name, line in results.lines.items()
    }
    return {"steps_per_epoch": results.per_epoch, "lines": lines}


def verdict_lines(findings: Sequence[Finding]) -> Iterator[Lines]:
    """The statements by verdict, with the difference here and the paper's."""
    for verdict, words in VERDICTS.items():
        texts = []
        for one in (one for one in findings if one.verdict == verdict):
            paper = "" if one.paper == "-" else f" (paper: {one.paper})"
            texts.append(f"{one.concept}: {one.statement}: {with_interval(asdict(one), sign='+')}{paper}")
        yield Lines(texts, words)


def checkpoint_table(concept: str, results: ConceptResults) -> Table:
    """Every point of the figure."""
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
        "Numbers: epochs. Small points: checkpoints between. Bars: 95 % intervals of the base and of the last models."
    )
    return Figure(name, title, panels, caption)


def _path(results: ConceptResults, run: str) -> list[Stop]:
    """Every checkpoint of a run from the base on; ends of epochs carry their number."""
    across, up = (results.lines[name]["models"] for name in (RETRIEVAL, ACCURACY))
    own = sorted((point for point in up if point[0] in (BASE, run)), key=lambda point: point[1])
    marks = {step: str(epoch) for epoch, step in enumerate(results.epochs, start=1)}
    return [
        Stop(across[point], up[point], marks.get(point[1], ""), run == BASE or point[1] == results.last)
        for point in own
    ]
