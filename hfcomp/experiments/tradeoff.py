"""A study of concepts: runs with checkpoints that are scored and then removed, their numbers and their report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from datasets import Dataset

from hfcomp import __version__
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
    check_lines,
    concept_findings,
    final_differences,
    summarize_concept,
)
from hfcomp.distributed import on_main_process
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.experiments.arm import Arm, Checkpoints, Scoring, check_rows, method_arm
from hfcomp.experiments.base import prepare_base
from hfcomp.experiments.controls import plain
from hfcomp.experiments.data import Log, load_rows
from hfcomp.experiments.evaluate import prepare_concepts
from hfcomp.experiments.plan_files import Tradeoff
from hfcomp.experiments.plans import TradeoffPlan
from hfcomp.experiments.report import FIGURE, evaluate_command
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.study import Study, evaluation_settings
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


def run_tradeoff(tradeoff: Tradeoff) -> Path:
    """Trains every concept's runs, evaluates all their checkpoints, and returns the folder.

    Accuracy and retrieval are scored at every checkpoint, the other lines at the ends of epochs.

    The folder holds `config.yaml`, `base/` (when it was made here), `<concept>/<run>/` with the last model,
    `evaluation/<concept>/` with the outcomes of the base and of each checkpoint, `tradeoff.json`, `report.md`,
    `figure.png` and `finished`. A checkpoint is removed once it is scored. Started again with the same values it goes
    on where it was killed: a run that was being trained begins anew, a checkpoint that is scored is not scored again.
    """
    plan, recipe = tradeoff.plan, tradeoff.recipe
    session = open_session(recipe.trainer_arguments)
    count = sum(len(plan.runs(concept)) for concept in plan.concepts)
    session.state.print(f"hfcomp {__version__}: {recipe.experiment.method}, {count} runs over checkpoints")
    prepare_base(recipe)
    evaluate = prepare_concepts(recipe.experiment, tuple(plan.concepts), main=_main(tradeoff), log=session.log)
    check_rows((method_arm(part, None) for part in tradeoff.parts.values()), session)
    arms = [arm for concept in plan.concepts for arm in _arms(tradeoff, concept, session, evaluate)]
    check_rows(arms, session)
    with Study.open(recipe, session) as study:
        on_main_process(lambda: check_lines(_of_base(tradeoff, study, evaluate), plan.lines()))
        study.run(arms, number=count)
        on_main_process(lambda: _report(tradeoff, study, evaluate, arms))
    return study.folder


def _arms(tradeoff: Tradeoff, concept: str, session: Session, evaluate: dict[str, Evaluator]) -> list[Arm]:
    """Plain training and the numbers of hard negatives of a concept, on the same rows, each with its checkpoints."""
    plan = tradeoff.plan
    parts = {number: tradeoff.parts[concept, number] for number in plan.concepts[concept]}
    first, most = parts[min(parts)], parts[max(parts)]
    rows = load_rows(most, session, evaluate[concept].images, part=concept)
    size = most.experiment.batch_size * int(most.trainer_arguments.get("gradient_accumulation_steps") or 1)
    rows = whole_parts(rows, size, plan.per_epoch, lambda note: session.log(f"{concept}: {note}"))
    every = len(rows) // size // plan.per_epoch

    def scoring(step: int) -> Scoring:
        return _scoring(tradeoff, concept, evaluate, brief=step % (every * plan.per_epoch) != 0)

    arms = [replace(plain(method_arm(first, rows)), name=f"{concept}/{PLAIN}")]
    arms += [method_arm(part, rows, name=f"{concept}/HN{number}") for number, part in parts.items()]
    return [replace(arm, checkpoints=Checkpoints(every, scoring, arm.name)) for arm in arms]


def _scoring(tradeoff: Tradeoff, concept: str, evaluate: dict[str, Evaluator], *, brief: bool) -> Scoring:
    stamp = {"concept": concept, **evaluation_settings(tradeoff.recipe)}
    return Scoring(evaluate[concept].of_titles(_main(tradeoff)) if brief else evaluate[concept], stamp)


def _main(tradeoff: Tradeoff) -> tuple[str, str]:
    """Titles of the benchmarks that every checkpoint is scored on."""
    return tradeoff.plan.accuracy.benchmark, tradeoff.plan.retrieval.benchmark


def _of_base(tradeoff: Tradeoff, study: Study, evaluate: dict[str, Evaluator]) -> dict[str, pd.DataFrame]:
    """Outcomes of the base by concept."""
    place = study.models[BASE]
    scoring = {concept: _scoring(tradeoff, concept, evaluate, brief=False) for concept in tradeoff.plan.concepts}
    found = {name: study.score(place, one, f"{name}/{BASE}/{BASE_STEP}") for name, one in scoring.items()}
    return {concept: table.assign(arm=BASE, step=BASE_STEP) for concept, table in found.items()}


def whole_parts(rows: Dataset, size: int, parts: int, log: Log) -> Dataset:
    """As many rows as fill whole steps (of `size` rows over all processes) for that many equal parts of an epoch.

    `log` receives how many are left out; ValueError when there are fewer steps than parts.
    """
    number = len(rows) // (size * parts) * size * parts
    if not number:
        raise ValueError(
            f"{len(rows):,} rows make {len(rows) // size} steps of {size}, fewer than the {parts} parts of an epoch "
            "after which a checkpoint is scored. Lower batch_size or checkpoints_per_epoch."
        )
    if number < len(rows):
        log(f"{len(rows) - number} of {len(rows):,} rows are left out, so that an epoch has {parts} equal parts")
    return rows.select(range(number))


def _report(tradeoff: Tradeoff, study: Study, evaluate: dict[str, Evaluator], arms: list[Arm]) -> None:
    """Writes `tradeoff.json`, `report.md` and, with matplotlib, `figure.png`, and prints the tables."""
    parts = {concept: [table] for concept, table in _of_base(tradeoff, study, evaluate).items()}
    for arm in arms:
        concept, _, run = arm.name.rpartition("/")
        parts[concept] += [table.assign(arm=run, step=step) for step, table in study.followed[arm.name].items()]
    outcomes = {concept: pd.concat(tables, ignore_index=True) for concept, tables in parts.items()}
    results, stages, facts = summarize_tradeoff(outcomes, tradeoff.plan), list(study.costs.values()), study.facts()
    contents = {**facts, "plan": tradeoff.plan.model_dump(), "stages": [asdict(stage) for stage in stages]}
    contents["concepts"] = {concept: _contents(one) for concept, one in results.concepts.items()}
    contents["differences"] = results.differences
    contents["findings"] = [asdict(finding) for finding in results.findings]
    written = {"tradeoff_schema_version": SCHEMA_VERSION, **contents}
    publish(partial(tradeoff_report, results, stages, facts, study.folder), written, study.folder / "tradeoff.json")


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
    """The report of a study of concepts; in brief without differences and checkpoints."""
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
