"""Study of concepts: trains runs, scores their checkpoints and then removes them, and writes the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import pandas as pd
from datasets import Dataset
from pydantic import AfterValidator, ConfigDict, Field, PositiveInt

from hfcomp import __version__
from hfcomp.analysis.keyword_findings import (
    ACCURACY,
    BASE_STEP,
    PLAIN,
    RETRIEVAL,
    SHOWN,
    VISUAL,
    StudyResults,
    check_lines,
    checkpoint_table,
    concept_contents,
    study_figure,
    summarize_study,
    verdict_lines,
)
from hfcomp.evaluation.benchmarks import benchmarks
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.experiments.arm import Arm, Checkpoints, Scoring, check_rows, method_arm
from hfcomp.experiments.controls import plain
from hfcomp.experiments.data import Log, load_rows
from hfcomp.experiments.prepare import prepare_base, prepare_concepts
from hfcomp.experiments.recipe_files import StudyKind
from hfcomp.experiments.recipes import Recipe, RecipeFile
from hfcomp.experiments.report import FIGURE, evaluate_command
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.studies.plan_files import check_fields, recipe_of_all
from hfcomp.experiments.studies.plans import Name
from hfcomp.experiments.study import Study, evaluation_scoring
from hfcomp.reporting import made_tables, tables
from hfcomp.reporting.lines import Line
from hfcomp.reporting.report import Report, Section, figure_title
from hfcomp.reporting.saving import publish
from hfcomp.schemas import Strict, parse
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import StageSummary

SCHEMA_VERSION = 2  # version 2 added mid-p for few images, bounds that agree with p, p_holm and q
ADJUSTED = (
    "Primary endpoint: accuracy on the concept, hard negatives minus plain training, adjusted by Holm over runs and "
    "concepts; all other differences have q (Benjamini and Hochberg). Each verdict uses its own interval, without "
    "adjustment for the number of verdicts. Each concept trains on the captions that contain one of its keywords, so "
    "its runs have their own number of steps."
)


LINE = "{benchmark: ..., metric: ...}"
Numbers = Annotated[list[PositiveInt], Field(min_length=1), AfterValidator(lambda numbers: sorted(set(numbers)))]


class LineName(NamedTuple):
    """Benchmark and metric of an evaluation."""

    benchmark: str
    metric: str


class TradeoffPlan(Strict):
    """Plan of a study of concepts, with the numbers of hard negatives per concept in ascending order.

    `accuracy` measures the concept, on the subset with the concept's name. `retrieval` measures general abilities, on
    all of its subsets. `visual` is the concept seen from the images (Eq. 2). `further` names other benchmarks with the
    metric of `accuracy`; those that are not evaluated are left out.
    """

    model_config = ConfigDict(validate_by_name=True)

    concepts: dict[Name, Numbers] = Field(
        min_length=1, description="names with numbers of negatives, for example object: [1, 2, 3]"
    )
    per_epoch: PositiveInt = Field(default=10, validation_alias="checkpoints_per_epoch")
    accuracy: LineName = Field(description=LINE)
    retrieval: LineName = Field(description=LINE)
    visual: LineName | None = Field(default=None, description=LINE)
    further: list[str] = Field(default=[], description="a list of benchmarks")

    def lines(self) -> dict[str, LineName]:
        """Returns the lines of the tables by line name."""
        lines = {ACCURACY: self.accuracy, RETRIEVAL: self.retrieval}
        lines |= {VISUAL: self.visual} if self.visual else {}
        return lines | {name: LineName(name, self.accuracy.metric) for name in self.further}

    def runs(self, concept: str) -> list[str]:
        """Returns the runs of a concept in the order of the tables."""
        return [PLAIN, *(f"HN{number}" for number in self.concepts[concept])]


@dataclass(frozen=True)
class Tradeoff:
    """Study of fine-grained accuracy against retrieval by concept and checkpoint (Rösch et al. 2024).

    Section 5 of the paper asks what continued training gains on a concept (object, color, location, size) and what it
    costs in retrieval: for the base, plain training and 1 to 3 hard negatives, at every tenth of an epoch (Fig. 4,
    Tables 3 to 5). The plan sets the concepts and their numbers of negatives, with one recipe in `parts` for each, and
    the evaluation lines for accuracy and retrieval. The recipe sets everything else.
    """

    recipe: Recipe
    plan: TradeoffPlan
    parts: dict[tuple[str, int], Recipe] = field(default_factory=dict)

    @classmethod
    def read(cls, source: RecipeFile, path: Path, values: Any) -> Self:
        plan = parse(TradeoffPlan, values, str(path))
        check_fields(source, path, {"concepts": ["keyword_negatives", "num_negatives"]})
        tradeoff = cls(recipe_of_all(source, path, report={"path": path.name, **values}), plan)
        if tradeoff.recipe.trainer_arguments.get("max_steps", -1) > 0:
            raise ValueError(
                f"{path}: checkpoints are fractions of an epoch. Set num_train_epochs instead of max_steps."
            )
        epochs = tradeoff.recipe.trainer_arguments.get("num_train_epochs", 1)
        if epochs < 1 or epochs % 1:
            raise ValueError(
                f"{path}: num_train_epochs: found {epochs:g}, expected a whole number from 1, because models are "
                "compared at the ends of epochs."
            )
        for concept, numbers in plan.concepts.items():
            for number in numbers:
                changes = {f"{path}: concepts": {"keyword_negatives": [concept], "num_negatives": number}}
                tradeoff.parts[concept, number] = source.recipe(changes, where=f"{path}: concepts: {concept}")
        return tradeoff


def run_tradeoff(tradeoff: Tradeoff, kind: type[Study] = Study) -> Path:
    """Trains every concept's runs, evaluates all their checkpoints, and returns the folder.

    Accuracy and retrieval are scored at every checkpoint, the other lines at the ends of epochs.

    The folder holds `config.yaml`, `base/` (if it was trained here), `<concept>/<run>/` with the last model,
    `evaluation/<concept>/` with the outcomes of the base and of each checkpoint, `tradeoff.json`, `report.md`,
    `figure.png` and `finished`. A checkpoint is removed once it is scored. Restarted with the same values after an
    interruption, the study continues: an unfinished run starts again, and scored checkpoints are not scored again. The
    `kind` of study `DryRun` leaves no files.
    """
    plan, recipe = tradeoff.plan, tradeoff.recipe
    session = open_session(recipe.trainer_arguments)
    count = sum(len(plan.runs(concept)) for concept in plan.concepts)
    session.state.print(f"hfcomp {__version__}: {recipe.experiment.method}, {count} runs over checkpoints")
    prepare_base(recipe.experiment)
    evaluate = prepare_concepts(
        recipe.experiment, tuple(plan.concepts), main=_main_benchmarks(tradeoff), log=session.log
    )
    tradeoff = without_unscored(tradeoff, evaluate, session.log)
    plan = tradeoff.plan
    # Check the recipes before loading, which takes minutes, and the rows after it.
    check_rows((method_arm(part, None) for part in tradeoff.parts.values()), session)
    arms = [arm for concept in plan.concepts for arm in _arms(tradeoff, concept, session, evaluate)]
    check_rows(arms, session)
    with kind.open(recipe, session) as study:
        # The base's outcomes reveal a misspelled line before any training.
        study.check_base(lambda: check_lines(_base_outcomes(tradeoff, study, evaluate), plan.lines()))
        study.run(arms, number=count)
        study.write_report(lambda: _report(tradeoff, study, evaluate, arms))
    return study.folder


def without_unscored(tradeoff: Tradeoff, evaluate: Mapping[str, Evaluator], log: Log) -> Tradeoff:
    """Leaves out further benchmarks that the recipe does not evaluate or whose data is unavailable."""
    loaded = {part.benchmark.title for evaluator in evaluate.values() for part in evaluator.loaded}
    # An unknown title is kept, because it is a mistake, which `check_lines` names.
    known = {benchmark.title for benchmark in benchmarks().values()} - loaded
    unscored = [title for title in tradeoff.plan.further if title in known]
    for title in unscored:
        log(f"further: {title} is left out, because it is not evaluated")
    further = [title for title in tradeoff.plan.further if title not in unscored]
    return replace(tradeoff, plan=tradeoff.plan.model_copy(update={"further": further}))


def _arms(tradeoff: Tradeoff, concept: str, session: Session, evaluate: dict[str, Evaluator]) -> list[Arm]:
    """Returns the arms of a concept (plain training and each number of hard negatives) on the same rows."""
    plan = tradeoff.plan
    parts = {number: tradeoff.parts[concept, number] for number in plan.concepts[concept]}
    first, most = parts[min(parts)], parts[max(parts)]
    # Load rows for the run with the most negatives, because all runs of a concept train on the same rows.
    rows, replay = load_rows(most, session, evaluate[concept].images, part=concept)
    # With gradient accumulation, a step takes several batches.
    size = most.experiment.batch_size * int(most.trainer_arguments.get("gradient_accumulation_steps") or 1)
    rows = whole_parts(rows, size, plan.per_epoch, lambda note: session.log(f"{concept}: {note}"))
    every = len(rows) // size // plan.per_epoch

    def scoring(step: int) -> Scoring:
        return _scoring(tradeoff, concept, evaluate, brief=step % (every * plan.per_epoch) != 0)

    arms = [replace(plain(method_arm(first, rows, replay)), name=f"{concept}/{PLAIN}")]
    arms += [method_arm(part, rows, replay, name=f"{concept}/HN{number}") for number, part in parts.items()]
    return [replace(arm, checkpoints=Checkpoints(every, scoring, arm.name)) for arm in arms]


def _scoring(tradeoff: Tradeoff, concept: str, evaluate: dict[str, Evaluator], *, brief: bool) -> Scoring:
    # Between the ends of epochs, score only the lines of Fig. 4.
    scored = evaluate[concept].select_benchmarks(_main_benchmarks(tradeoff)) if brief else evaluate[concept]
    recipe = tradeoff.recipe
    return evaluation_scoring(recipe.experiment, scored, recipe.column_names, concept=concept)


def _main_benchmarks(tradeoff: Tradeoff) -> tuple[str, str]:
    """Returns the titles of the benchmarks scored at every checkpoint."""
    return tradeoff.plan.accuracy.benchmark, tradeoff.plan.retrieval.benchmark


def _base_outcomes(tradeoff: Tradeoff, study: Study, evaluate: dict[str, Evaluator]) -> dict[str, pd.DataFrame]:
    base = study.models[BASE]
    scoring = {concept: _scoring(tradeoff, concept, evaluate, brief=False) for concept in tradeoff.plan.concepts}
    # Store the scores as a checkpoint of the run `base` at step 0.
    outcomes = {
        name: study.score(base, concept_scoring, f"{name}/{BASE}/{BASE_STEP}")
        for name, concept_scoring in scoring.items()
    }
    return {concept: table.assign(arm=BASE, step=BASE_STEP) for concept, table in outcomes.items()}


def whole_parts(rows: Dataset, size: int, parts: int, log: Log) -> Dataset:
    """Selects rows for an epoch of equal parts, each with whole steps (of `size` rows over all processes).

    Logs the number of rows left out. Raises ValueError if there are fewer steps than parts.
    """
    number = len(rows) // (size * parts) * size * parts
    if not number:
        raise ValueError(
            f"{len(rows):,} rows give {len(rows) // size} steps of {size} rows, but an epoch has {parts} checkpoints. "
            "Lower batch_size or checkpoints_per_epoch."
        )
    if number < len(rows):
        log(f"{len(rows) - number} of {len(rows):,} rows are left out so that an epoch has {parts} equal parts")
    return rows.select(range(number))


def _report(tradeoff: Tradeoff, study: Study, evaluate: dict[str, Evaluator], arms: list[Arm]) -> None:
    """Writes `tradeoff.json`, `report.md` and, with matplotlib, `figure.png`, and prints the tables."""
    parts = {concept: [table] for concept, table in _base_outcomes(tradeoff, study, evaluate).items()}
    for arm in arms:
        concept, _, run = arm.name.rpartition("/")
        outcomes_by_step = study.checkpoint_outcomes[arm.name]
        parts[concept] += [table.assign(arm=run, step=step) for step, table in outcomes_by_step.items()]
    outcomes = {concept: pd.concat(tables, ignore_index=True) for concept, tables in parts.items()}
    plan, stages, facts = tradeoff.plan, list(study.costs.values()), study.facts(tradeoff.recipe.given)
    settings = {"numbers": plan.concepts, "checkpoints": plan.per_epoch, "further": plan.further}
    results = summarize_study(outcomes, plan.lines(), **settings)
    contents = {**facts, "plan": plan.model_dump(), "stages": [asdict(stage) for stage in stages]}
    contents["concepts"] = {concept: concept_contents(own) for concept, own in results.concepts.items()}
    contents["differences"] = results.differences
    contents["findings"] = [asdict(finding) for finding in results.findings]
    written = {"tradeoff_schema_version": SCHEMA_VERSION, **contents}
    publish(
        partial(tradeoff_report, plan, results, stages, facts, study.folder), written, study.folder / "tradeoff.json"
    )


def tradeoff_report(
    plan: TradeoffPlan,
    results: StudyResults,
    stages: Sequence[StageSummary],
    facts: Mapping[str, Any],
    folder: Path,
    *,
    brief: bool,
) -> Report:
    """Returns the report of a study of concepts. The brief report omits differences and checkpoints."""
    lines, concepts = list(results.lines()), results.concepts.items()
    title, verdicts = (
        f"{facts['method']}: accuracy against retrieval",
        [finding.verdict for finding in results.findings],
    )
    # Differences exist at the ends of epochs, but ties may occur at any checkpoint.
    pairs, tied = (lambda line: [] if brief else _pairs(line)), list(results.tie_lines())
    *numbers, _ = tables.sections_of_lines(lines, pairs, reference=None, brief=brief)
    sections = [
        Section("", [study_figure(FIGURE, figure_title(title, facts["caveat"]), results)]),
        Section("The paper's findings, tested here", list(verdict_lines(results.findings))),
        *numbers,
        Section("Ties", [tables.ties(tied)]),
        Section("Checkpoints", [] if brief else [checkpoint_table(concept, own) for concept, own in concepts]),
        Section("Cost", [made_tables.costs([asdict(stage) for stage in stages])]),
        Section("How it was made", [] if brief else [made_tables.made_table(facts["config"])]),
    ]
    verdict = (
        f"{verdicts.count(SHOWN)} of {len(verdicts)} statements are shown on this seed. A statement that is not shown "
        "is not refuted."
    )
    legend, notes = tables.legend([*lines, *tied], adjusted=ADJUSTED, brief=brief), () if brief else facts["notes"]
    return Report(title, facts["caveat"], [verdict], sections, [legend], notes, _next_steps(plan, folder))


def _next_steps(plan: TradeoffPlan, folder: Path) -> dict[str, str]:
    """Returns the output folder, and a command that scores the first concept's runs on benchmarks."""
    concept = next(iter(plan.concepts))
    models = {run: str(folder / concept / run) for run in plan.runs(concept)}
    return {"written to": str(folder), "next": evaluate_command(models)}


def _pairs(line: Line) -> list[tuple[str, str]]:
    return [(run, reference) for run, minus in line["differences"].items() for reference in minus]


TRADEOFF = StudyKind("accuracy", "study", "report", Tradeoff, run_tradeoff)
