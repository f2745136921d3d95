"""From the trials of a search to a recipe, a table, `search.json`, `report.md` and the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from hfcomp import __version__
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.plan_files import Search
from hfcomp.experiments.plans import SearchPlan
from hfcomp.experiments.report import publish
from hfcomp.experiments.search_store import Trial
from hfcomp.reporting import results as files
from hfcomp.reporting.report import Lines, Report, Section, Table
from hfcomp.reporting.tables import made_table
from hfcomp.statistics.score import Score
from hfcomp.writing import write_text

SCHEMA_VERSION = 1
BEST_FILE = "best.yaml"
RESULTS_FILE = "search.json"
LEGEND = (
    "Values from 0 to 1 with image-clustered bootstrap intervals (95 %); one training seed. The best of many trials "
    "is chosen by the items that score it, so its number is too good: score best.yaml on other items."
)
# Fields of `config.yaml` that are no part of the recipe that comes out.
NOT_OF_RESULT = ("search", "output_dir")


@dataclass
class SearchReport:
    """What there is to say of a search.

    Attributes:
        search: its recipe, and what it tries.
        base: score of the model that all trials start from; known to the main process.
        trials: that have ended, in their order.
        best: of them.
    """

    search: Search
    base: Score | None
    trials: Sequence[Trial] = ()
    best: Trial | None = None

    @property
    def plan(self) -> SearchPlan:
        """What it tries."""
        return self.search.plan

    def sorted_trials(self) -> list[Trial]:
        """The best first, those that failed last."""
        sign = -1 if self.plan.direction == "maximize" else 1
        return sorted(self.trials, key=lambda one: (one.value is None, sign * (one.value or 0.0), one.number))


def search_report(report: SearchReport, notes: Sequence[str], *, brief: bool, folder: Path | None = None) -> Report:
    """The report of a search.

    Args:
        report: of the search.
        notes: on data and evaluation, of the whole report.
        brief: trials without intervals and seconds, and without the ranges.
        folder: where the files lie; with it the report ends with that and with how to train the best.
    """
    findings = _findings(report)
    sections = [
        Section("Findings", [Lines(findings[2:])]),
        Section("Trials, the best first", [_trials(report, brief=brief)]),
        Section("Ranges", [] if brief else [_ranges(report)]),
        Section("How it was made", [] if brief else [made_table(report.search.recipe.given)]),
    ]
    closing = {"written to": str(folder)} if folder else {}
    if folder and report.best is not None:
        closing["next"] = shlex.join(["hfcomp", "train", str(folder / BEST_FILE)])
    title = f"{report.search.recipe.experiment.method}: a search"
    return Report(title, "", findings[:2], sections, [LEGEND], () if brief else notes, closing)


def publish_search(folder: Path, report: SearchReport, notes: Sequence[str], *, shown: bool) -> None:
    """Writes `best.yaml`, `trials.csv`, `search.json` and `report.md`, each whole or not at all.

    Args:
        folder: of the search.
        report: of it.
        notes: on data and evaluation.
        shown: whether the findings and the trials are printed, as at the end.
    """
    if report.best is not None:
        write_text(folder / BEST_FILE, _recipe(report, report.best))
    write_text(folder / "trials.csv", _table(report).to_csv(index=False))
    contents = {
        "search_schema_version": SCHEMA_VERSION,
        "hfcomp_version": __version__,
        "method": report.search.recipe.experiment.method,
        "measure": report.plan.measure,
        "direction": report.plan.direction,
        "base": asdict(report.base) if report.base else None,
        "best": report.best.number if report.best else None,
        "trials": [asdict(trial) for trial in report.trials],
        "notes": list(notes),
        "config": report.search.recipe.given,
    }
    publish(partial(search_report, report, notes, folder=folder), contents, folder / RESULTS_FILE, shown=shown)


def read_trials(folder: Path) -> list[dict[str, Any]]:
    """The trials that have ended by a folder's `search.json`; without one none.

    Raises:
        ValueError: where the file is damaged.
    """
    path, how_to_fix = folder / RESULTS_FILE, "Remove it and start the search again: it goes on, and writes it anew."
    return files.read_results(path, how_to_fix)["trials"] if path.is_file() else []


def trial_line(trial: Trial, plan: SearchPlan, best: Trial | None) -> str:
    """A line for the terminal when a trial has ended."""
    values = ", ".join(f"{name} {_shown(value)}" for name, value in trial.values.items())
    came_to = f"failed: {trial.failure}" if trial.value is None else f"{trial.value:.4f}"
    known = f" (best {best.value:.4f}, trial {best.number})" if best is not None else ""
    return f"trial {trial.number + 1} of {plan.trials}, number {trial.number}: {values}: {came_to}{known}"


def _recipe(report: SearchReport, best: Trial) -> str:
    """The best trial's recipe, for `--config`."""
    result = report.search.result(best.values).given
    given = {name: value for name, value in result.items() if name not in NOT_OF_RESULT}
    comment = (
        f"# Trial {best.number}, the best of {len(report.trials)} by {report.plan.measure}: {_interval(best)}.\n"
        f"# Search: {report.search.path.name}, hfcomp {__version__}. The best of many is chosen by the items that\n"
        "# it was scored on, so that number is too good: score this recipe on other items.\n"
    )
    return comment + yaml.safe_dump(given, sort_keys=True)


def _table(report: SearchReport) -> pd.DataFrame:
    names = list(report.plan.ranges)
    rows = [
        {**one.values, **one.facts, "trial": one.number, "value": one.value, "failure": one.failure}
        for one in report.trials
    ]
    return pd.DataFrame(rows, columns=["trial", *names, "value", "low", "high", "steps", "seconds", "failure"])


def _findings(report: SearchReport) -> list[str]:
    """How many trials there are and what came of the best, then what to know of it."""
    failed, base, best = sum(trial.failure is not None for trial in report.trials), report.base, report.best
    counts = f"{len(report.trials)} of {report.plan.trials} trials" + (f", {failed} failed" if failed else "")
    untrained = f"; base, untrained: {base.value:.4f}" if base else ""
    lines = [f"{report.plan.direction} {report.plan.measure}: {counts}{untrained}"]
    if best is not None:
        values = ", ".join(f"{name} {_shown(value)}" for name, value in best.values.items())
        sign = 1 if report.plan.direction == "maximize" else -1
        worse = base is not None and best.value is not None and sign * best.value <= sign * base.value
        lines.append(f"best: trial {best.number}, {_interval(best)}{', no better than the base' * worse}: {values}")
        lines += [*_alike(report, best), _judged_by(report, best)]
    return lines


def _alike(report: SearchReport, best: Trial) -> list[str]:
    """How many trials other items might have put first."""
    low, high = best.facts["low"], best.facts["high"]
    others = [one for one in report.trials if one.value is not None and one.number != best.number]
    inside = sum(low <= one.value <= high for one in others)
    return [f"{inside} of the {len(others)} other values lie in the interval of the best"] if others else []


def _judged_by(report: SearchReport, best: Trial) -> str:
    """What chose the best, and whether that recipe's own report is of the same items."""
    judged = report.base.benchmarks if report.base else ()
    items = _sets(report.search.recipe.experiment, judged)
    if not items:
        return "judged on scenes of the search's own: a run of best.yaml is scored on others"
    again = [name for name in _sets(report.search.result(best.values).experiment, judged) if name in items]
    judged = f"judged on {', '.join(items)}; a run of best.yaml is scored on "
    return judged + (f"{', '.join(again)} too: report it on others" if again else "others")


def _sets(config: ExperimentConfig, judged: Sequence[str]) -> list[str]:
    """What chose the best, beside the scenes that are drawn for it: an own set, or those benchmarks that judged."""
    if config.evaluation == "own":
        return [f"{config.evaluation_dataset or config.dataset} ({config.evaluation_split})"]
    if not config.evaluation.endswith("benchmarks"):
        return []
    return [one.name for one in find_benchmarks(config.evaluation_benchmarks) if one.title in judged]


def _ranges(report: SearchReport) -> Table:
    rows = [[name, str(space)] for name, space in report.plan.ranges.items()]
    rows += [[name, "product of " + ", ".join(factors)] for name, factors in report.plan.products.items()]
    rows += [[name, f"{value} in the search only"] for name, value in report.plan.only_in_search.items()]
    return Table("", ["field", "values"], rows, labels=2)


def _trials(report: SearchReport, *, brief: bool) -> Table:
    names, rows = list(report.plan.ranges), []
    for trial in report.sorted_trials():
        row = [str(trial.number), *(_shown(trial.values.get(name)) for name in names)]
        if brief:
            rows.append([*row, "failed" if trial.value is None else f"{trial.value:.4f}"])
            continue
        seconds = f"{trial.facts['seconds']:.1f}" if trial.facts else "-"
        rows.append([*row, f"failed: {trial.failure}" if trial.value is None else _interval(trial), seconds])
    return Table("", ["trial", *names, "value", *([] if brief else ["seconds"])], rows)


def _interval(trial: Trial) -> str:
    return f"{trial.value:.4f} [{trial.facts['low']:.4f}, {trial.facts['high']:.4f}]"


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
