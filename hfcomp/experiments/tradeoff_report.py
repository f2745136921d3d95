"""From the numbers of a study of concepts to `tradeoff.json`, `report.md`, `figure.png` and the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hfcomp.analysis.keyword_findings import OPEN, OPPOSITE, SHOWN, Finding
from hfcomp.evaluation import results as files
from hfcomp.experiments.plans import TradeoffPlan
from hfcomp.experiments.stages import StageSummary
from hfcomp.experiments.tradeoff_results import ConceptResults, Point, final_differences, findings, runs_of
from hfcomp.reporting import tables
from hfcomp.reporting.figures import Figure, Paths, Stop
from hfcomp.reporting.format import points, with_interval
from hfcomp.reporting.lines import Line, counts
from hfcomp.reporting.report import Lines, Report, Section, Table, titled
from hfcomp.reporting.saving import save_report
from hfcomp.reporting.terminal import render_terminal
from hfcomp.statistics.summary import BASE

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
) -> Report:
    """The report of a study of concepts.

    Args:
        plan: of the study.
        results: of `summarize_tradeoff`.
        stages: what each training run cost.
        facts: as in `write_tradeoff`.
        brief: without differences and checkpoints.
    """
    found, lines = findings(dict(results), plan), {name: _lines(name, plan, results) for name in plan.lines()}
    every = [line for own in lines.values() for line in own]
    values = [tables.values(own, brief=brief) for own in lines.values()]
    verdicts = [Lines(_listed(found, verdict), words) for verdict, words in VERDICTS.items()]
    shown, title = sum(one.verdict == SHOWN for one in found), f"{facts['method']}: accuracy against retrieval"
    sections = [
        Section("", [_figure(plan, results, titled(title, facts["caveat"]))]),
        Section("What the paper found, and what is found here", verdicts),
        Section("Accuracy and retrieval by epoch", [table for own in values for table in own]),
        Section("Differences", [] if brief else list(_differences(plan, results))),
        Section("Checkpoints", [] if brief else [_checkpoints(concept, one) for concept, one in results.items()]),
        Section("Ties", [tables.ties(_worst_ties(results))]),
        Section("Cost", [tables.costs([asdict(stage) for stage in stages])]),
        Section("How it was made", [] if brief else [tables.made_table(facts["config"])]),
    ]
    verdict = f"{shown} of {len(found)} statements are shown here; one that is not shown is not refuted."
    how = tables.legend(every, adjusted=ADJUSTED, brief=brief)
    return Report(title, facts["caveat"], [verdict], sections, [how], () if brief else facts["notes"])


def _listed(found: Sequence[Finding], verdict: str) -> list[str]:
    """The statements of a verdict, with the difference here and the paper's."""
    texts = []
    for one in found:
        if one.verdict == verdict:
            paper = "" if one.paper == "-" else f" (paper: {one.paper})"
            change = {"value": one.value, "low": one.low, "high": one.high}
            texts.append(f"{one.concept}: {one.statement}: {points(change)}{paper}")
    return texts


def _lines(name: str, plan: TradeoffPlan, results: Results) -> list[Line]:
    """The form of the paper's Tables 3 to 5: a line per concept and epoch, whose models are the runs."""
    meant, runs, lines = plan.lines()[name], runs_of(dict(results)), []
    for concept, one in results.items():
        for step in one.epochs() if name in one.lines else ():
            shares, line = one.shares[name], one.lines[name]
            models = {run: shares.get(Point(run, 0 if run == BASE else step)) for run in runs}
            place = {"benchmark": NUMBERS.get(name, name), "subset": f"{concept}, epoch {step // one.per_epoch}"}
            facts = {key: line[key] for key in ("items", "images", "chance")}
            metric = f"{meant.benchmark}, {meant.metric}"
            lines.append({**place, "metric": metric, **facts, "models": models, "differences": {}})
    return lines


def _differences(plan: TradeoffPlan, results: Results) -> Iterator[Table]:
    """The last models against plain training, and that against the base."""
    changes = final_differences(dict(results))
    for name, meant in plan.lines().items():
        shown = []
        for concept in results:
            own = [one for one in changes if (one["concept"], one["line"]) == (concept, name)]
            place = {"benchmark": NUMBERS.get(name, name), "subset": concept, "metric": meant.metric, "models": {}}
            minus = {one["run"]: {one["reference"]: one} for one in own}
            shown.append(({**place, "differences": minus}, [(one["run"], one["reference"]) for one in own]))
        yield from tables.differences(shown)


def _checkpoints(concept: str, results: ConceptResults) -> Table:
    """Every point of the figure."""
    rows = []
    for point, accuracy in results.shares["accuracy"].items():
        row = [point.run, f"{results.epoch(point):.2f}", f"{point.step:,}"]
        rows.append([*row, with_interval(accuracy), with_interval(results.shares["retrieval"][point])])
    return Table(concept, ["run", "epochs", "step", "accuracy", "retrieval"], rows)


def _worst_ties(results: Results) -> list[Line]:
    """By concept and line the checkpoint of each run that has most ties."""
    found = []
    for concept, one in results.items():
        for name, shares in one.shares.items():
            worst: dict[str, Any] = {run: {"tie_rate": 0.0} for run in runs_of(dict(results))}
            for point, share in shares.items():
                worst[point.run] = max(worst[point.run], share, key=lambda one: one["tie_rate"])
            found.append({"benchmark": concept, "subset": "all", "metric": name, "models": worst})
    return found


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


def write_tradeoff(
    folder: Path,
    plan: TradeoffPlan,
    results: dict[str, ConceptResults],
    *,
    stages: list[StageSummary],
    facts: dict[str, Any],
) -> None:
    """Writes `tradeoff.json`, `report.md` and, with matplotlib, `figure.png`.

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
    files.write_results(folder / "tradeoff.json", {"tradeoff_schema_version": SCHEMA_VERSION, **contents})
    save_report(tradeoff_report(plan, results, stages, facts, brief=False), folder)


def print_tradeoff(
    plan: TradeoffPlan,
    results: dict[str, ConceptResults],
    stages: list[StageSummary],
    facts: dict[str, Any],
    folder: Path,
) -> None:
    """The tables in the terminal, in 80 columns."""
    render_terminal(tradeoff_report(plan, results, stages, facts, brief=True), folder=folder)


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
