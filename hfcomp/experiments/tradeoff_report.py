"""From the numbers of a study of concepts to `tradeoff.json`, `report.md`, `figure.png` and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from hfcomp.analysis.keyword_findings import OPEN, OPPOSITE, SHOWN, Finding
from hfcomp.experiments.plans import RETRIEVAL, TradeoffPlan
from hfcomp.experiments.report import evaluate_command, publish
from hfcomp.experiments.tradeoff_results import ConceptResults, Point, final_differences, findings, runs_of
from hfcomp.reporting import tables
from hfcomp.reporting.figures import Figure, Paths, Stop
from hfcomp.reporting.format import with_interval
from hfcomp.reporting.lines import Line, counts
from hfcomp.reporting.report import Lines, Report, Section, Table, titled
from hfcomp.reporting.tables import sections_of_lines
from hfcomp.statistics.measures import COMPOSITION, GENERAL
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import StageSummary

SCHEMA_VERSION = 2  # of version 2: mid-p of few images, bounds that agree with p, p_holm and q
FIGURE = "figure.png"
ADJUSTED = (
    "Primary endpoint: accuracy on the concept, hard negatives minus plain training, adjusted by Holm over runs and "
    "concepts; all other differences have q (Benjamini and Hochberg). The verdicts are each by its own interval, not "
    "adjusted for their number. One seed: what another seed would change is not shown. Each concept has its own "
    "training captions, those that hold one of its keywords, so its runs have steps of their own."
)
NUMBERS = {"accuracy": "accuracy on the concept", "retrieval": "retrieval", "visual": "seen from the images (Eq. 2)"}
VERDICTS = {
    SHOWN: "Shown: the whole interval is on the paper's side",
    OPPOSITE: "Not shown, the opposite is: the whole interval is on the other side",
    OPEN: "Not shown, open: the interval holds the bound",
}
Results = Mapping[str, ConceptResults]


def tradeoff_report(
    plan: TradeoffPlan,
    results: Results,
    stages: Sequence[StageSummary],
    facts: Mapping[str, Any],
    *,
    brief: bool,
    folder: Path | None = None,
) -> Report:
    """The report of a study of concepts.

    Args:
        plan: of the study.
        results: of `summarize_tradeoff`.
        stages: what each training run cost.
        facts: as in `publish_tradeoff`.
        brief: without differences and checkpoints.
        folder: of the study; with it the report ends with where its files lie.
    """
    found, lines = findings(dict(results), plan), _lines(plan, results)
    verdicts = [Lines(_listed(found, verdict), words) for verdict, words in VERDICTS.items()]
    shown, title = sum(one.verdict == SHOWN for one in found), f"{facts['method']}: accuracy against retrieval"
    sections = [
        Section("", [_figure(plan, results, titled(title, facts["caveat"]))]),
        Section("What the paper found, and what is found here", verdicts),
        *sections_of_lines(lines, lambda line: [] if brief else _pairs(line), reference=None, brief=brief),
        Section("Checkpoints", [] if brief else [_checkpoints(concept, one) for concept, one in results.items()]),
        Section("Cost", [tables.costs([asdict(stage) for stage in stages])]),
        Section("How it was made", [] if brief else [tables.made_table(facts["config"])]),
    ]
    verdict = f"{shown} of {len(found)} statements are shown here; one that is not shown is not refuted."
    how, notes = tables.legend(lines, adjusted=ADJUSTED, brief=brief), () if brief else facts["notes"]
    return Report(title, facts["caveat"], [verdict], sections, [how], notes, _closing(plan, folder) if folder else {})


def _closing(plan: TradeoffPlan, folder: Path) -> dict[str, str]:
    """Where the files lie, and how to score the first concept's runs on benchmarks."""
    concept = next(iter(plan.concepts))
    models = {run: str(folder / concept / run) for run in plan.runs(concept)}
    return {"written to": str(folder), "next": evaluate_command(models)}


def _listed(found: Sequence[Finding], verdict: str) -> list[str]:
    """The statements of a verdict, with the difference here and the paper's."""
    texts = []
    for one in found:
        if one.verdict == verdict:
            paper = "" if one.paper == "-" else f" (paper: {one.paper})"
            change = {"value": one.value, "low": one.low, "high": one.high}
            texts.append(f"{one.concept}: {one.statement}: {with_interval(change, sign='+')}{paper}")
    return texts


def _lines(plan: TradeoffPlan, results: Results) -> list[Line]:
    """The form of the paper's Tables 3 to 5: a line per number, concept and epoch, whose models are the runs.

    Those of the last epoch have the differences of the last models to plain training, and of that to the base.
    """
    runs, changes, lines = runs_of(dict(results)), final_differences(dict(results)), []
    for name, meant in plan.lines().items():
        for concept, one in results.items():
            for step in one.epochs() if name in one.lines else ():
                minus: dict[str, dict[str, Any]] = {}
                for change in changes if step == one.last else ():
                    if (change["concept"], change["line"]) == (concept, name):
                        minus[change["run"]] = {change["reference"]: change}
                place = {"benchmark": NUMBERS.get(name, name), "subset": f"{concept}, epoch {step // one.per_epoch}"}
                place["metric"] = f"{meant.benchmark}, {meant.metric}"
                place["aspect"] = GENERAL if name == RETRIEVAL else COMPOSITION
                models = {run: one.shares[name].get(Point(run, 0 if run == BASE else step)) for run in runs}
                facts = {key: one.lines[name][key] for key in ("items", "images", "chance")}
                lines.append({**place, **facts, "models": models, "differences": minus})
    return lines


def _pairs(line: Line) -> list[tuple[str, str]]:
    return [(run, reference) for run, minus in line["differences"].items() for reference in minus]


def _checkpoints(concept: str, results: ConceptResults) -> Table:
    """Every point of the figure."""
    rows = []
    for point, accuracy in results.shares["accuracy"].items():
        row = [point.run, f"{results.epoch(point):.2f}", f"{point.step:,}"]
        rows.append([*row, with_interval(accuracy), with_interval(results.shares["retrieval"][point])])
    return Table(concept, ["run", "epochs", "step", "accuracy", "retrieval"], rows)


def _figure(plan: TradeoffPlan, results: Results, title: str) -> Figure:
    """Accuracy against retrieval, one panel a concept and one path a run: the form of the paper's Fig. 4."""
    axes = f"{plan.retrieval.metric}, percent", f"{plan.accuracy.metric} on the concept, percent"
    panels = []
    for concept, one in results.items():
        paths = {run: _path(one, run) for run in [*plan.runs(concept), BASE]}
        line = one.lines["accuracy"]
        chance, number = line["chance"], counts([{"benchmark": "", "items": line["items"], "images": line["images"]}])
        panels.append(Paths(f"{concept}, {number} (chance {100 * chance:.1f}, dotted)", axes, paths, chance))
    caption = (
        "Numbers: epochs. Small points: checkpoints between. Bars: 95 % intervals of the base and of the last models."
    )
    return Figure(FIGURE, title, panels, caption)


def _path(results: ConceptResults, run: str) -> list[Stop]:
    """Every checkpoint of a run from the base on; ends of epochs carry their number."""
    across, up = results.shares["retrieval"], results.shares["accuracy"]
    own = sorted((point for point in up if point.run in (BASE, run)), key=lambda point: point.step)
    marks = {step: str(epoch) for epoch, step in enumerate(results.epochs(), start=1)}
    return [
        Stop(across[point], up[point], marks.get(point.step, ""), run == BASE or point.step == results.last)
        for point in own
    ]


def publish_tradeoff(
    folder: Path,
    plan: TradeoffPlan,
    results: dict[str, ConceptResults],
    *,
    stages: list[StageSummary],
    facts: dict[str, Any],
) -> None:
    """Writes `tradeoff.json`, `report.md` and, with matplotlib, `figure.png`, and prints the tables.

    Args:
        folder: of the study.
        plan: of the study.
        results: of `summarize_tradeoff`.
        stages: what each training run cost.
        facts: `method`, `caveat`, `notes`, `config`, ...; all of them go into `tradeoff.json`.
    """
    contents = {**facts, "plan": plan.model_dump(), "stages": [asdict(stage) for stage in stages]}
    contents |= {"concepts": {concept: _as_json(one) for concept, one in results.items()}}
    contents["differences"] = final_differences(results)
    contents["findings"] = [asdict(finding) for finding in findings(results, plan)]
    report = partial(tradeoff_report, plan, results, stages, facts, folder=folder)
    publish(report, {"tradeoff_schema_version": SCHEMA_VERSION, **contents}, folder / "tradeoff.json")


def _as_json(results: ConceptResults) -> dict[str, Any]:
    return {
        "steps_per_epoch": results.per_epoch,
        "lines": {
            name: [
                {"run": point.run, "step": point.step, "epochs": results.epoch(point), **share}
                for point, share in shares.items()
            ]
            for name, shares in results.shares.items()
        },
    }
