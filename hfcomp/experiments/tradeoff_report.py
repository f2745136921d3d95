"""From the numbers of a study of concepts to `tradeoff.json`, `report.md`, `figure.png` and the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from hfcomp.analysis.keyword_findings import (
    ACCURACY,
    BASE_STEP,
    OPEN,
    OPPOSITE,
    RETRIEVAL,
    SHOWN,
    ConceptResults,
    Finding,
    check_lines,
    concept_findings,
    final_differences,
    summarize_concept,
)
from hfcomp.experiments.plans import TradeoffPlan
from hfcomp.experiments.report import FIGURE, evaluate_command
from hfcomp.reporting import tables
from hfcomp.reporting.figures import Figure, Paths, Stop
from hfcomp.reporting.format import with_interval
from hfcomp.reporting.lines import Line, counts
from hfcomp.reporting.report import Lines, Report, Section, Table, titled
from hfcomp.reporting.saving import publish
from hfcomp.statistics.measures import COMPOSITION, GENERAL
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import StageSummary

SCHEMA_VERSION = 2  # of version 2: mid-p of few images, bounds that agree with p, p_holm and q
NUMBER = ("value", "low", "high", "tie_rate")
ADJUSTED = (
    "Primary endpoint: accuracy on the concept, hard negatives minus plain training, adjusted by Holm over runs and "
    "concepts; all other differences have q (Benjamini and Hochberg). The verdicts are each by its own interval, not "
    "adjusted for their number. One seed: what another seed would change is not shown. Each concept has its own "
    "training captions, those that hold one of its keywords, so its runs have steps of their own."
)
NAMES = {"accuracy": "accuracy on the concept", "visual": "seen from the images (Eq. 2)"}
VERDICTS = {
    SHOWN: "Shown: the whole interval is on the paper's side",
    OPPOSITE: "Not shown, the opposite is: the whole interval is on the other side",
    OPEN: "Not shown, open: the interval holds the bound",
}


@dataclass(frozen=True)
class TradeoffResults:
    """The numbers of a study by concept, the differences of the last models, and the paper's findings."""

    plan: TradeoffPlan
    concepts: dict[str, ConceptResults]
    differences: list[dict[str, Any]]
    findings: list[Finding]

    def lines(self) -> Iterator[Line]:
        """The form of the paper's Tables 3 to 5: a line per number, concept and epoch, whose models are the runs.

        Those of the last epoch have the differences of the last models to plain training, and of that to the base.
        """
        numbers = sorted({number for one in self.concepts.values() for number in one.numbers})
        runs = [BASE, "plain", *(f"HN{number}" for number in numbers)]
        for name, meant in self.plan.lines().items():
            for concept, results in self.concepts.items():
                found = results.lines.get(name, {})
                changes = [one for one in self.differences if (one["concept"], one["line"]) == (concept, name)]
                minus = {change["run"]: {change["reference"]: change} for change in changes}
                for epoch, step in enumerate(results.epochs if found else (), start=1):
                    points = {run: (run, BASE_STEP if run == BASE else step) for run in runs}
                    yield {
                        "benchmark": NAMES.get(name, name),
                        "subset": f"{concept}, epoch {epoch}",
                        "metric": f"{meant.benchmark}, {meant.metric}",
                        "aspect": GENERAL if name == RETRIEVAL else COMPOSITION,
                        **{key: found[key] for key in ("items", "images", "chance")},
                        "models": {run: found["models"].get(point) for run, point in points.items()},
                        "differences": minus if step == results.last else {},
                    }


def summarize_tradeoff(outcomes: Mapping[str, pd.DataFrame], plan: TradeoffPlan) -> TradeoffResults:
    """The numbers of a study; outcomes are by concept, and their arms are runs. ValueError as `check_lines`."""
    lines = plan.lines()
    check_lines(outcomes, lines)
    concepts = {
        name: summarize_concept(table, name, lines, numbers=plan.concepts[name], checkpoints=plan.per_epoch)
        for name, table in outcomes.items()
    }
    findings = [found for name, one in concepts.items() for found in concept_findings(name, one, plan.further)]
    return TradeoffResults(plan, concepts, final_differences(concepts), findings)


def publish_tradeoff(
    folder: Path, results: TradeoffResults, *, stages: list[StageSummary], facts: dict[str, Any]
) -> None:
    """Writes `tradeoff.json`, `report.md` and, with matplotlib, `figure.png`, and prints the tables.

    `facts` (`method`, `caveat`, `notes`, `config`, ...) go into `tradeoff.json`.
    """
    contents = {**facts, "plan": results.plan.model_dump(), "stages": [asdict(stage) for stage in stages]}
    contents["concepts"] = {concept: _contents(one) for concept, one in results.concepts.items()}
    contents["differences"] = results.differences
    contents["findings"] = [asdict(finding) for finding in results.findings]
    report = partial(tradeoff_report, results, stages, facts, folder)
    publish(report, {"tradeoff_schema_version": SCHEMA_VERSION, **contents}, folder / "tradeoff.json")


def _contents(results: ConceptResults) -> dict[str, Any]:
    lines = {
        name: [
            {"run": run, "step": step, "epochs": step / results.per_epoch, **{key: found[key] for key in NUMBER}}
            for (run, step), found in line["models"].items()
        ]
        for name, line in results.lines.items()
    }
    return {"steps_per_epoch": results.per_epoch, "lines": lines}


def tradeoff_report(
    results: TradeoffResults,
    stages: Sequence[StageSummary],
    facts: Mapping[str, Any],
    folder: Path,
    *,
    brief: bool,
) -> Report:
    """The report of a study of concepts, as in `publish_tradeoff`; in brief without differences and checkpoints."""
    lines, concepts = list(results.lines()), results.concepts.items()
    title, verdicts = f"{facts['method']}: accuracy against retrieval", [one.verdict for one in results.findings]
    sections = [
        Section("", [_figure(results, titled(title, facts["caveat"]))]),
        Section("What the paper found, and what is found here", list(_verdicts(results.findings))),
        *tables.sections_of_lines(lines, lambda line: [] if brief else _pairs(line), reference=None, brief=brief),
        Section("Checkpoints", [] if brief else [_checkpoints(concept, one) for concept, one in concepts]),
        Section("Cost", [tables.costs([asdict(stage) for stage in stages])]),
        Section("How it was made", [] if brief else [tables.made_table(facts["config"])]),
    ]
    shown = (
        f"{verdicts.count(SHOWN)} of {len(verdicts)} statements are shown here; one that is not shown is not refuted."
    )
    how, notes = tables.legend(lines, adjusted=ADJUSTED, brief=brief), () if brief else facts["notes"]
    return Report(title, facts["caveat"], [shown], sections, [how], notes, _closing(results.plan, folder))


def _closing(plan: TradeoffPlan, folder: Path) -> dict[str, str]:
    """Where the files are, and how to score the first concept's runs on benchmarks."""
    concept = next(iter(plan.concepts))
    models = {run: str(folder / concept / run) for run in plan.runs(concept)}
    return {"written to": str(folder), "next": evaluate_command(models)}


def _verdicts(findings: Sequence[Finding]) -> Iterator[Lines]:
    """The statements by verdict, with the difference here and the paper's."""
    for verdict, words in VERDICTS.items():
        texts = []
        for one in (one for one in findings if one.verdict == verdict):
            paper = "" if one.paper == "-" else f" (paper: {one.paper})"
            texts.append(f"{one.concept}: {one.statement}: {with_interval(asdict(one), sign='+')}{paper}")
        yield Lines(texts, words)


def _pairs(line: Line) -> list[tuple[str, str]]:
    return [(run, reference) for run, minus in line["differences"].items() for reference in minus]


def _checkpoints(concept: str, results: ConceptResults) -> Table:
    """Every point of the figure."""
    accuracy, retrieval = (results.lines[name]["models"] for name in (ACCURACY, RETRIEVAL))
    rows = []
    for (run, step), found in accuracy.items():
        numbers = with_interval(found), with_interval(retrieval[run, step])
        rows.append([run, f"{step / results.per_epoch:.2f}", f"{step:,}", *numbers])
    return Table(concept, ["run", "epochs", "step", ACCURACY, RETRIEVAL], rows)


def _figure(results: TradeoffResults, title: str) -> Figure:
    """Accuracy against retrieval, one panel a concept and one path a run: the form of the paper's Fig. 4."""
    plan = results.plan
    axes = f"{plan.retrieval.metric}, percent", f"{plan.accuracy.metric} on the concept, percent"
    panels = []
    for concept, one in results.concepts.items():
        paths, line = {run: _path(one, run) for run in [*plan.runs(concept), BASE]}, one.lines[ACCURACY]
        chance, number = line["chance"], counts([{"benchmark": "", "items": line["items"], "images": line["images"]}])
        panels.append(Paths(f"{concept}, {number} (chance {100 * chance:.1f}, dotted)", axes, paths, chance))
    caption = (
        "Numbers: epochs. Small points: checkpoints between. Bars: 95 % intervals of the base and of the last models."
    )
    return Figure(FIGURE, title, panels, caption)


def _path(results: ConceptResults, run: str) -> list[Stop]:
    """Every checkpoint of a run from the base on; ends of epochs carry their number."""
    across, up = (results.lines[name]["models"] for name in (RETRIEVAL, ACCURACY))
    own = sorted((point for point in up if point[0] in (BASE, run)), key=lambda point: point[1])
    marks = {step: str(epoch) for epoch, step in enumerate(results.epochs, start=1)}
    return [
        Stop(across[point], up[point], marks.get(point[1], ""), run == BASE or point[1] == results.last)
        for point in own
    ]
