"""From the numbers of a study of concepts to `tradeoff.json`, `report.md`, `figure.png` and the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from hfcomp.evaluation import results as files
from hfcomp.evaluation.statistics.summary import BASE
from hfcomp.experiments.comparison import percent, points, with_interval, with_p
from hfcomp.experiments.plans import TradeoffPlan
from hfcomp.experiments.sheets import TERMINAL_WIDTH, Sheet, escaped, markdown_table, terminal_table
from hfcomp.experiments.stages import StageSummary
from hfcomp.experiments.tradeoff_figure import draw_tradeoff
from hfcomp.experiments.tradeoff_findings import OPEN, OPPOSITE, SHOWN, Finding, findings
from hfcomp.experiments.tradeoff_results import ConceptResults, Point, final_differences, runs_of
from hfcomp.writing import write_text

SCHEMA_VERSION = 2  # of version 2: mid-p of few images, bounds that agree with p, p_holm and q
FIGURE = "figure.png"
LEGEND = (
    "Shares in percent; intervals of 95 % draw whole images; differences in points, paired by item, with p from a "
    "sign-flip test over images. Primary endpoint: accuracy on the concept, hard negatives minus plain training, "
    "adjusted by Holm over runs and concepts; all other differences have q (Benjamini and Hochberg). The verdicts are "
    "each by its own interval, not adjusted for their number. A tie is wrong. One seed: what another seed would "
    "change is not shown. Each concept has its own training captions, those that hold one of its keywords, so its "
    "runs have steps of their own."
)
NUMBERS = {"accuracy": "Accuracy on the concept", "retrieval": "Retrieval", "visual": "Seen from the images (Eq. 2)"}
VERDICTS = {
    SHOWN: "Shown: the whole interval is on the paper's side",
    OPPOSITE: "Not shown, the opposite is: the whole interval is on the other side",
    OPEN: "Not shown, open: the interval holds the bound",
}


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
        facts: `method`, `caveat`, `notes`, ...; all of them go into `tradeoff.json`.
    """
    found = findings(results, plan)
    contents = {**facts, "plan": plan.model_dump(), "stages": [asdict(stage) for stage in stages]}
    contents |= {"concepts": {concept: _as_json(one) for concept, one in results.items()}}
    contents["differences"] = differences = final_differences(results)
    contents["findings"] = [asdict(finding) for finding in found]
    files.write_results(folder / "tradeoff.json", {"tradeoff_schema_version": SCHEMA_VERSION, **contents})
    parts = [f"# {escaped(facts['method'])}: accuracy against retrieval", "", facts["caveat"], "", LEGEND, ""]
    if draw_tradeoff(folder / FIGURE, plan, results):
        parts += [f"![accuracy against retrieval, one panel a concept]({FIGURE})", ""]
    parts += ["## What the paper found, and what is found here", "", *map(escaped, _verdicts(found))]
    for sheet in (*_markdown_sheets(plan, results, differences), *_ties(results), _costs(stages)):
        parts += [f"## {escaped(sheet.title)}", "", *markdown_table(sheet), ""]
    if facts["notes"]:
        parts += ["## Data", "", *(f"- {escaped(note)}" for note in facts["notes"]), ""]
    write_text(folder / "report.md", "\n".join(parts))


def print_tradeoff(
    plan: TradeoffPlan, results: dict[str, ConceptResults], facts: dict[str, Any], folder: Path
) -> None:
    """The tables in the terminal, in 80 columns."""
    console = Console(width=max(TERMINAL_WIDTH, Console().width))
    console.print(Text(f"\n{facts['method']}: accuracy against retrieval\n{facts['caveat']}", style="bold"))
    for line, title in _titles(plan).items():
        sheet = _shares(line, title, results, with_bounds=False)
        if sheet.rows:
            console.print(Text(f"\n{sheet.title}", style="bold"))
            console.print(terminal_table(sheet))
    console.print(Text("\nWhat the paper found, and what is found here", style="bold"))
    found = findings(results, plan)
    for line in _verdicts(found):
        console.print(Text(line))
    console.print(Text(f"\n{LEGEND}"))
    console.print(Text(f"written to {folder}"), soft_wrap=True)


def _titles(plan: TradeoffPlan) -> dict[str, str]:
    lines = plan.lines()
    return {name: f"{NUMBERS.get(name, name)}: {line.benchmark}, {line.metric}" for name, line in lines.items()}


def _verdicts(found: list[Finding]) -> list[str]:
    """The statements by verdict, with the difference here and the paper's."""
    shown = sum(one.verdict == SHOWN for one in found)
    lines = [f"{shown} of {len(found)} statements are shown here; one that is not shown is not refuted.", ""]
    for verdict, words in VERDICTS.items():
        chosen = [one for one in found if one.verdict == verdict]
        lines += [f"{words} ({len(chosen)})", ""] if chosen else []
        for one in chosen:
            paper = "" if one.paper == "-" else f" (paper: {one.paper})"
            lines.append(f"- {one.concept}: {one.statement}: {points(_change(one))}{paper}")
        lines += [""] if chosen else []
    return lines


def _change(finding: Finding) -> dict[str, float]:
    return {"value": finding.value, "low": finding.low, "high": finding.high}


def _markdown_sheets(
    plan: TradeoffPlan, results: dict[str, ConceptResults], differences: list[dict[str, Any]]
) -> Iterator[Sheet]:
    for line, title in _titles(plan).items():
        sheet = _shares(line, title, results, with_bounds=True)
        if sheet.rows:
            yield sheet
            yield _differences(line, title, differences)
    for concept, one in results.items():
        yield _checkpoints(concept, one)


def _shares(line: str, title: str, results: dict[str, ConceptResults], *, with_bounds: bool) -> Sheet:
    """The form of the paper's Tables 3 to 5: a row per concept and epoch, a column per run."""
    runs = runs_of(results)
    rows = []
    for concept, one in results.items():
        if line not in one.lines:
            continue
        shares, chance = one.shares[line], percent(one.lines[line]["chance"])
        for step in one.epochs():
            cells = []
            for run in runs:
                share = shares.get(Point(run, 0 if run == BASE else step))
                cells.append("" if share is None else with_interval(share) if with_bounds else percent(share["value"]))
            items = f"{one.lines[line]['items']:,}"
            rows.append([concept, f"{step // one.per_epoch}", items, chance, *cells])
    return Sheet(title, ["concept", "epoch", "items", "chance", *runs], rows, labels=2)


def _differences(line: str, title: str, differences: list[dict[str, Any]]) -> Sheet:
    """The last models against plain training, and that against the base."""
    rows = [
        [one["concept"], f"{one['run']} minus {one['reference']}", with_p(one)]
        for one in differences
        if one["line"] == line
    ]
    return Sheet(f"{title}: differences at the end", ["concept", "runs", "points"], rows, labels=2)


def _checkpoints(concept: str, results: ConceptResults) -> Sheet:
    """Every point of the figure."""
    rows = []
    for point, accuracy in results.shares["accuracy"].items():
        retrieval = results.shares["retrieval"][point]
        row = [point.run, f"{results.epoch(point):.2f}", f"{point.step:,}"]
        rows.append([*row, with_interval(accuracy), with_interval(retrieval)])
    return Sheet(f"{concept}: every checkpoint", ["run", "epochs", "step", "accuracy", "retrieval"], rows)


def _ties(results: dict[str, ConceptResults]) -> Iterator[Sheet]:
    rows = []
    for concept, one in results.items():
        for line, shares in one.shares.items():
            tied = {point: share["tie_rate"] for point, share in shares.items() if share["tie_rate"]}
            if tied:
                worst = max(tied, key=lambda point: tied[point])
                name = f"{worst.run} at step {worst.step}"
                rows.append([concept, line, f"{len(tied)} of {len(shares)}", name, percent(tied[worst])])
    if rows:
        yield Sheet("Ties", ["concept", "line", "models with ties", "most", "percent of items"], rows, labels=2)
    else:
        yield Sheet("Ties", ["no model tied on any item"], [])


def _costs(stages: list[StageSummary]) -> Sheet:
    rows = [
        [stage.name, f"{stage.steps:,}", f"{stage.images:,}", f"{stage.texts:,}", f"{stage.seconds:.1f}"]
        for stage in stages
    ]
    return Sheet("Cost of each run", ["run", "steps", "images", "texts", "seconds"], rows)


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
