"""Publishes the trials of a search as a recipe, a table, `search.json`, `report.md` and terminal output."""

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
from hfcomp.checksums import read_checked
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.studies.plan_files import Search
from hfcomp.experiments.studies.plans import SearchPlan
from hfcomp.reporting.made_tables import made_table
from hfcomp.reporting.report import Lines, Report, Section, Table
from hfcomp.reporting.saving import publish
from hfcomp.statistics.run import Score
from hfcomp.writing import write_csv, write_text

SCHEMA_VERSION = 1
BEST_FILE = "best.yaml"
RESULTS_FILE = "search.json"
LEGEND = (
    "Values from 0 to 1 with image-clustered bootstrap intervals (95%); one training seed. The best of many trials is "
    "chosen on the items that score it, so its number is too optimistic: score best.yaml on other items."
)
# Fields of `config.yaml` that are not part of the resulting recipe.
SEARCH_FIELDS = ("search", "output_dir")


@dataclass(frozen=True)
class Trial:
    """A finished trial. A failed trial has no value and no facts (`low`, `high`, `steps` and `seconds`)."""

    number: int  # position in the search, from 0
    values: dict[str, Any]
    value: float | None
    facts: dict[str, float]
    failure: str | None


@dataclass(frozen=True)
class SearchResults:
    """The finished trials of a search and the score of the base."""

    search: Search
    base: Score
    trials: Sequence[Trial] = ()

    @property
    def plan(self) -> SearchPlan:
        return self.search.plan

    @property
    def sign(self) -> int:
        """1 if a higher value is better, else -1."""
        return 1 if self.plan.direction == "maximize" else -1

    @property
    def ranking(self) -> list[Trial]:
        """The trials from best to worst, the earlier first in a tie, and failed trials last."""

        def key(trial: Trial) -> tuple[bool, float, int]:
            return trial.value is None, -self.sign * (trial.value or 0.0), trial.number

        return sorted(self.trials, key=key)

    @property
    def best(self) -> Trial | None:
        return next((trial for trial in self.ranking if trial.value is not None), None)


def read_trials(folder: Path) -> list[dict[str, Any]]:
    """Reads the finished trials from a folder's `search.json`; an empty list if there is none."""
    how_to_fix = "Remove it and start the search again: it resumes and rewrites the file."
    path = folder / RESULTS_FILE
    return read_checked(path, how_to_fix)["trials"] if path.is_file() else []


def publish_search(folder: Path, results: SearchResults, caveat: str, notes: Sequence[str], *, shown: bool) -> None:
    """Writes `best.yaml`, `trials.csv`, `search.json` and `report.md`; prints findings and trials if `shown`."""
    best, plan = results.best, results.plan
    if best is not None:
        write_text(folder / BEST_FILE, _recipe(results, best))
    columns = ["trial", *plan.ranges, "value", "low", "high", "steps", "seconds", "failure"]
    rows = [{**asdict(trial), **trial.values, **trial.facts, "trial": trial.number} for trial in results.trials]
    write_csv(folder / "trials.csv", pd.DataFrame(rows, columns=columns))
    contents = {
        "search_schema_version": SCHEMA_VERSION,
        "hfcomp_version": __version__,
        "method": results.search.recipe.experiment.method,
        "caveat": caveat,
        "measure": plan.measure,
        "direction": plan.direction,
        "base": asdict(results.base),
        "best": best.number if best else None,
        "trials": [asdict(trial) for trial in results.trials],
        "notes": list(notes),
        "config": results.search.recipe.given,
    }
    publish(partial(search_report, results, caveat, notes, folder), contents, folder / RESULTS_FILE, shown=shown)


def search_report(results: SearchResults, caveat: str, notes: Sequence[str], folder: Path, *, brief: bool) -> Report:
    """The report of a search; the brief form omits notes, ranges, seconds and the intervals of trials."""
    findings = _findings(results)
    sections = [
        Section("Findings", [Lines(findings[2:])]),
        Section("Trials, best first", [_trials_table(results, brief=brief)]),
        Section("Ranges", [] if brief else [_ranges_table(results.plan)]),
        Section("How it was made", [] if brief else [made_table(results.search.recipe.given)]),
    ]
    closing = {"written to": str(folder)}
    if results.best is not None:
        closing["next"] = shlex.join(["hfcomp", "train", str(folder / BEST_FILE)])
    title = f"{results.search.recipe.experiment.method}: search"
    return Report(title, caveat, findings[:2], sections, [LEGEND], () if brief else notes, closing)


def trial_line(trial: Trial, results: SearchResults) -> str:
    best = results.best
    known = f" (best {best.value:.4f}, trial {best.number})" if best is not None else ""
    place = f"trial {trial.number + 1} of {results.plan.trials}, number {trial.number}"
    return f"{place}: {_values(trial)}: {_value(trial, interval=False)}{known}"


def _recipe(results: SearchResults, best: Trial) -> str:
    result = results.search.result(best.values).given
    given = {name: value for name, value in result.items() if name not in SEARCH_FIELDS}
    comment = (
        f"# Trial {best.number}, the best of {len(results.trials)} by {results.plan.measure}: {_value(best)}.\n"
        f"# Search: {results.search.path.name}, hfcomp {__version__}. The best of many trials is chosen on the items\n"
        "# that it was scored on, so its number is too optimistic: score this recipe on other items.\n"
    )
    return comment + yaml.safe_dump(given, sort_keys=True)


def _findings(results: SearchResults) -> list[str]:
    """The number of trials and the best trial, then facts that put it in perspective."""
    failed, base, best = sum(trial.failure is not None for trial in results.trials), results.base, results.best
    counts = f"{len(results.trials)} of {results.plan.trials} trials" + (f", {failed} failed" if failed else "")
    lines = [f"{results.plan.direction} {results.plan.measure}: {counts}; base, untrained: {base.value:.4f}"]
    if best is not None:
        worse = best.value is not None and results.sign * (best.value - base.value) <= 0
        rated = _value(best) + (", no better than the base" if worse else "")
        lines.append(f"best: trial {best.number}, {rated}: {_values(best)}")
        low, high = best.facts["low"], best.facts["high"]
        values = {trial.number: trial.value for trial in results.trials if trial.value is not None}
        others = [value for number, value in values.items() if number != best.number]
        # On other items, one of these trials might have been the best.
        inside = sum(low <= value <= high for value in others)
        lines += [f"{inside} of the {len(others)} other values are in the interval of the best"] if others else []
        lines.append(_evaluation_note(results, best))
    return lines


def _evaluation_note(results: SearchResults, best: Trial) -> str:
    # A report on the items that the best of many trials was chosen on makes it look better than it is.
    used = results.base.benchmarks
    items = _evaluation_sets(results.search.recipe.experiment, used)
    if not items:
        return "judged on scenes drawn for the search; a run of best.yaml is scored on other scenes"
    result = results.search.result(best.values).experiment
    again = [name for name in _evaluation_sets(result, used) if name in items]
    others = f"{', '.join(again)} too: report it on other data" if again else "other data"
    return f"judged on {', '.join(items)}; a run of best.yaml is scored on {others}"


def _evaluation_sets(config: ExperimentConfig, used: Sequence[str]) -> list[str]:
    """The data that the best trial was chosen on, except scenes: an own dataset, or the benchmarks in `used`."""
    if config.evaluation == "own":
        return [f"{config.evaluation_dataset or config.dataset} ({config.evaluation_split})"]
    if not config.evaluation.endswith("benchmarks"):
        return []
    benchmarks = find_benchmarks(config.evaluation_benchmarks)
    return [benchmark.name for benchmark in benchmarks if benchmark.title in used]


def _ranges_table(plan: SearchPlan) -> Table:
    rows = [[name, str(space)] for name, space in plan.ranges.items()]
    rows += [[name, f"product of {', '.join(factors)}"] for name, factors in plan.products.items()]
    rows += [[name, f"{value} in the search only"] for name, value in plan.only_in_search.items()]
    return Table("", ["field", "values"], rows, labels=2)


def _trials_table(results: SearchResults, *, brief: bool) -> Table:
    names, rows = list(results.plan.ranges), []
    for trial in results.ranking:
        row = [str(trial.number), *(_text(trial.values.get(name)) for name in names)]
        if brief:
            rows.append([*row, "failed" if trial.value is None else _value(trial, interval=False)])
        else:
            rows.append([*row, _value(trial), f"{trial.facts['seconds']:.1f}" if trial.facts else "-"])
    return Table("", ["trial", *names, "value", *([] if brief else ["seconds"])], rows)


def _value(trial: Trial, *, interval: bool = True) -> str:
    if trial.value is None:
        return f"failed: {trial.failure}"
    return f"{trial.value:.4f}" + (f" [{trial.facts['low']:.4f}, {trial.facts['high']:.4f}]" if interval else "")


def _values(trial: Trial) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in trial.values.items())


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
