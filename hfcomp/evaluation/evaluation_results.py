"""The results of an evaluation: outcomes and facts, the numbers computed from them, and their reports and files."""

from __future__ import annotations

import io
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console

from hfcomp.evaluation.blind.folders import BLIND_FILE, read_blind, write_blind
from hfcomp.evaluation.blind.results import BlindResults, blind_section
from hfcomp.evaluation.item_scores import SCORES_FILE, read_scores, write_scores
from hfcomp.evaluation.published.comparison import LEGEND, compare_with_published, published_section
from hfcomp.evaluation.spec import FAILED
from hfcomp.evaluation.stored import BLIND_PATH, averages_of_lines, model_facts, origins, read_evaluation
from hfcomp.reading import nearest
from hfcomp.reporting import made_tables, tables
from hfcomp.reporting.lines import Line
from hfcomp.reporting.pages.items import DEFAULT_PAGE, ItemBrowser, PageOptions
from hfcomp.reporting.report import Lines, Report, Section, Table, figure_title
from hfcomp.reporting.saving import PAGE_FILE, REPORT_FILE, render_markdown, save_report
from hfcomp.reporting.terminal import WIDTH, render_terminal
from hfcomp.statistics import Outcomes, summarize
from hfcomp.statistics import results as files
from hfcomp.statistics.measures import absent_averages
from hfcomp.statistics.outcomes import LINE
from hfcomp.statistics.summary import check_tie
from hfcomp.writing import locked

if TYPE_CHECKING:
    import pyarrow as pa

    from hfcomp.evaluation.items.item_browser import ItemImages
    from hfcomp.statistics.measures import Averages

FIGURE = "figure.png"
FILES = (files.RESULTS_FILE, files.ITEMS_FILE, SCORES_FILE, BLIND_FILE, REPORT_FILE, PAGE_FILE, FIGURE)
"""The files that `write_evaluation` writes."""
COMMIT_DIGITS = 12
MOST_NAMED = 4  # models in a title
SYNTHETIC = "Synthetic: hfcomp generates the benchmarks of the sandbox."


@dataclass(frozen=True, eq=False, repr=False)
class EvaluationResults:
    """Results of models side by side, with intervals, ties and paired differences; see `hfcomp.evaluate`.

    `print(results)` shows the tables of the terminal, and a notebook shows them as Markdown.

    Attributes:
        outcomes: One row per model, item and metric; a table is accepted too.
        models: Facts of each model by name (`path`, `weights`, ...), in the order of columns.
        averages: Means over subsets, by title of the benchmark, and over benchmarks, as `summarize` takes them.
        reference: Model to compare the others with; by default the first, or none if there is only one model.
        tie: How a tie counts: `wrong`, `half` or `win`.
        subject: Models that are compared to the reference; by default all except blind scorers.
        benchmarks: Facts by name: `title`, `version`, `data`, `items` and `left_out`, see `hfcomp.statistics.results`.
        skipped: `benchmark`, `reason` and `how_to_fix` of each requested benchmark that was not scored.
        notes: Notes that a reader of the numbers must know.
        seconds: Seconds by model and benchmark.
        versions: Versions of the software behind the numbers.
        config: The date and, if any, the command of the evaluation.
        published: Whether reports show published numbers.
        blind: Results of blind rules on the items.
        scores: Texts and cosines of each item, if kept.
        images: Images of the items, if they were read.

    Raises:
        ValueError: If the rule for ties is unknown, or the reference is not one of the models.
    """

    outcomes: Outcomes
    models: Mapping[str, Mapping[str, Any]]
    averages: Averages = field(default_factory=dict)
    reference: str | None = None
    tie: str = "wrong"
    subject: Sequence[str] | None = None
    benchmarks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    skipped: Sequence[Mapping[str, str]] = ()
    notes: Sequence[str] = ()
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    published: bool = False
    blind: BlindResults | None = None
    scores: pa.Table | None = None
    images: ItemImages | None = None

    def __post_init__(self) -> None:
        check_tie(self.tie)
        reference = self._name(self.reference or next(iter(self.models))) if len(self.models) > 1 else None
        object.__setattr__(self, "outcomes", Outcomes.of(self.outcomes))
        object.__setattr__(self, "reference", reference)

    @cached_property
    def lines(self) -> list[Line]:
        """Summary of everything that all models were scored on; raises ValueError if their items differ."""
        if not len(self._shared_outcomes):
            return []
        names = list(self.models)
        subject = self._image_models if self.subject is None else self.subject
        return summarize(
            self._shared_outcomes,
            models=names,
            references=[] if self.reference is None else [self.reference],
            subject=[name for name in subject if name != self.reference],
            averages=self.averages,
            tie=self.tie,
        )

    @property
    def missing(self) -> list[dict[str, Any]]:
        """Averages left out because parts of them are missing: `benchmark`, `metric`, `average` and `absent`."""
        return absent_averages(self._shared_outcomes.aspects, self.averages)

    @property
    def failed(self) -> bool:
        """Whether a benchmark was not scored for a reason other than unavailable data."""
        return any(skip["reason"].startswith(FAILED) for skip in self.skipped)

    @cached_property
    def _blind_facts(self) -> dict[str, Any] | None:
        """Entry `blind` of `results.json`: scores of blind rules, and of the models on items that no rule solves."""
        if self.blind is None or not len(self._shared_outcomes):
            return None
        # Rules ran on all items, but the models may share only some of the benchmarks.
        blind = self.blind.restrict_to(self._shared_outcomes)
        return blind.to_json(self.averages, self._shared_outcomes, list(self._image_models), self.blind.outcomes)

    @property
    def _image_models(self) -> dict[str, Mapping[str, Any]]:
        """The models that are not blind scorers, with their facts."""
        return {name: facts for name, facts in self.models.items() if facts.get("path") != BLIND_PATH}

    @cached_property
    def _shared_outcomes(self) -> Outcomes:
        table = self.outcomes.table
        # A benchmark may have failed for one of the models, but differences need lines that all models have.
        kept = table.groupby(LINE, sort=False)["arm"].transform("nunique") == len(self.models)
        return self.outcomes if kept.all() else Outcomes(table[kept])

    @property
    def _every_note(self) -> list[str]:
        unshared = _unshared_notes(self.outcomes, self._shared_outcomes, list(self.models))
        return list(dict.fromkeys([*self.notes, *unshared]))  # the notes of stored results already contain them

    def to_pandas(self) -> pd.DataFrame:
        """Returns a row per line and model: its value from 0 to 1 with interval, and its difference to the reference.

        `average` says whether a line is a mean over subsets; `ties` counts items. Unknown values are NaN.
        """
        return pd.DataFrame([row for line in self.lines for row in self._rows(line)])

    def compare_published(self) -> pd.DataFrame:
        """Returns one row per published number of these models and lines.

        `verdict` is `inside` the interval, `outside`, `differs` (another protocol) or `no interval`.
        """
        comparisons = compare_with_published(self.lines, self._image_models)
        return pd.DataFrame([comparison.facts() for comparison in comparisons])

    def _rows(self, line: Line) -> Iterator[dict[str, Any]]:
        for name, estimate in line["models"].items():
            change = line["differences"].get(name, {}).get(self.reference, {})
            yield {
                **{key: line[key] for key in (*LINE, "aspect", "average")},
                "model": name,
                **{key: estimate.get(key, math.nan) for key in ("value", "low", "high", "ties")},
                **{key: line[key] for key in ("chance", "items", "images")},
                "difference": change.get("value", math.nan),
                **{f"difference_{key}": change.get(key, math.nan) for key in ("low", "high")},
                **{key: change.get(key, math.nan) for key in ("p", "q")},
            }

    def compare(self, model: str, reference: str) -> EvaluationResults:
        """Returns the results of two models, with the paired differences of the first minus the second.

        Args:
            model: First model, by its name or the place it was loaded from.
            reference: Second model, by its name or the place it was loaded from.

        Raises:
            ValueError: If one of them is not among the models, or both are the same.
        """
        names = [self._name(reference), self._name(model)]
        if names[0] == names[1]:
            raise ValueError(f"compare: {names[0]!r} is named twice. Name two of {', '.join(self.models)}.")
        return replace(
            self,
            outcomes=self.outcomes.select(arm=names),
            models={name: self.models[name] for name in names},
            reference=names[0],
            subject=names[1:],
            seconds={name: own for name, own in self.seconds.items() if name in names},
            blind=None if self.blind is None else self.blind.select_models(names, list(self.models)),
        )

    def _name(self, given: str) -> str:
        for name, facts in self.models.items():
            if given in (name, facts.get("path")):
                return name
        known = ", ".join(self.models)
        raise ValueError(f"model: found {given!r}, expected one of the models {known}.{nearest(given, self.models)}")

    def save(self, folder: str | Path, *, page: PageOptions | None = DEFAULT_PAGE) -> None:
        """Writes `items.parquet`, `scores.parquet`, `results.json`, `report.md`, `report.html` and `figure.png`.

        Each file is written atomically, under the folder's lock. Existing results are replaced.

        Args:
            folder: Output folder; created if missing.
            page: Options for the items of `report.html`; None for no page.

        Raises:
            ValueError: If another process has locked the folder.
            OSError: If a file cannot be written.
        """
        with locked(Path(folder)):
            write_evaluation(Path(folder), self, page=page)

    @classmethod
    def load(cls, folder: str | Path) -> EvaluationResults:
        """Loads results that `save`, `hfcomp evaluate` or a recipe's run wrote. The numbers are computed again.

        Raises:
            ValueError: If a file is missing, damaged or from a later hfcomp version; names the file.
        """
        outcomes, results = read_evaluation(folder)
        keys = ("benchmarks", "skipped", "notes", "seconds", "versions", "config")
        return cls(
            outcomes,
            {name: model_facts(results, name) for name in results.get("models") or outcomes.table["arm"].unique()},
            # From the stored lines, because today's benchmarks may have other averages.
            averages_of_lines(results.get("results") or ()),
            results.get("reference"),
            results.get("tie_rule") or "wrong",
            published="published" in results,
            **{key: results[key] for key in keys if results.get(key)},
            blind=read_blind(Path(folder), results),
            scores=read_scores(Path(folder) / SCORES_FILE),
        )

    def __repr__(self) -> str:
        titles = ", ".join(dict.fromkeys(self.outcomes.table["benchmark"]))
        return f"<EvaluationResults of {', '.join(self.models)} on {titles or 'nothing'}>"

    def __str__(self) -> str:
        text = io.StringIO()
        # The width is fixed, so the text does not depend on the terminal.
        print_evaluation(self, console=Console(file=text, width=WIDTH, color_system=None, force_terminal=False))
        return text.getvalue().strip("\n")

    def _repr_markdown_(self) -> str:
        return render_markdown(evaluation_report(self, brief=True))


def _unshared_notes(outcomes: Outcomes, shared: Outcomes, models: Sequence[str]) -> Iterator[str]:
    """Yields notes on what only some models have: a benchmark without shared lines once, else each metric."""
    shown = set(shared.table["benchmark"])
    unshared: dict[tuple[str, tuple[str, ...]], None] = {}
    for (benchmark, _, metric), arms in outcomes.table.groupby(LINE, sort=False)["arm"].unique().items():
        owners = tuple(name for name in models if name in arms)
        unshared[f"{benchmark}, {metric}" if benchmark in shown else benchmark, owners] = None
    for what, owners in unshared:
        if others := [name for name in models if name not in owners]:
            words = shlex.join([f"FOLDER:{name}" for name in owners])
            how = f"; `hfcomp compare {words}` compares these models from the output FOLDER" * (len(owners) > 1)
            lack = f"because {_enumerate(others)} {'has' if len(others) == 1 else 'have'} no scores for it."
            scored = f"{what}: scored for {_enumerate(owners)}, not shown {lack}"
            yield f"{scored} {files.ITEMS_FILE} contains the outcomes{how}."


def _enumerate(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def evaluation_items(evaluation: EvaluationResults, options: PageOptions = DEFAULT_PAGE) -> ItemBrowser | None:
    """Returns the items for the page, with thumbnails if `images` are known; None without items."""
    from hfcomp.evaluation.items.item_browser import item_browser

    models = list(evaluation.models)
    # The page contrasts the reference with the last of the other models.
    others = [name for name in evaluation._image_models if name != evaluation.reference]
    return item_browser(
        evaluation.outcomes.table.drop_duplicates(["arm", *LINE, "item"]),  # only the first of several seeds
        evaluation.scores,
        evaluation.images,
        models=models,
        pair=(evaluation.reference or next(iter(models), ""), (others or models)[-1]),
        blind=[name for name in models if name not in evaluation._image_models],
        tie=evaluation.tie,
        options=options,
    )


def evaluation_report(evaluation: EvaluationResults, *, brief: bool) -> Report:
    """Builds the report. If `brief`, shows many subsets only as averages and omits what is only in `report.md`."""
    lines, reference, models = evaluation.lines, evaluation.reference, list(evaluation.models)
    caveat = SYNTHETIC if any(line["benchmark"].split()[0] == "sandbox" for line in lines) else ""
    names = ", ".join(models) if len(models) <= MOST_NAMED else f"{len(models)} models"
    title = f"Composition and general abilities of {names}{figure_title('', caveat)}"
    figure = tables.figure_of_lines(FIGURE, title, lines)
    compared = [name for name in models if any(reference in line["differences"].get(name, {}) for line in lines)]
    pairs = [(name, str(reference)) for name in compared]
    shown = tables.sections_of_lines(lines, lambda line: pairs, reference=reference, tie=evaluation.tie, brief=brief)
    how = [tables.legend(lines, tie=evaluation.tie, brief=brief)] if lines else []
    published = [published_section(lines, evaluation._image_models)] if evaluation.published else []
    how += [LEGEND] if published and compare_with_published(lines, evaluation._image_models) else []
    facts = evaluation._blind_facts
    blind = [] if facts is None else [blind_section(facts, list(evaluation._image_models), brief=brief)]
    sections = [Section("", [figure]), *shown, *blind, *published, *_facts(evaluation, brief=brief)]
    return Report(names, caveat, (), sections, how, evaluation._every_note)


def _facts(evaluation: EvaluationResults, *, brief: bool) -> Iterator[Section]:
    totals = [[name, f"{sum(part.values()):,.1f}"] for name, part in evaluation.seconds.items()]
    yield Section("Cost", [Table("", ["model", "seconds"], totals) if brief else _seconds(evaluation.seconds)])
    skipped = [f"{skip['benchmark']}: {skip['reason']} {skip.get('how_to_fix', '')}" for skip in evaluation.skipped]
    missing = [
        f"{average['benchmark']}, {average['metric']}"
        + (f": {average['average']}" if average["average"] != average["metric"] else "")
        + ("" if brief else f", needs {', '.join(average['absent'])}")
        for average in evaluation.missing
    ]
    read = [] if brief else _data(evaluation.benchmarks)
    left = [Lines(skipped, "skipped benchmarks", whole=True), Lines(missing, "averages with missing parts")]
    yield Section("Data", [*read, *left])
    if not brief:
        yield Section("Models", [made_tables.facts_table(evaluation.models)])
        yield Section("How it was made", [made_tables.made_table(evaluation.config, evaluation.versions)])


def _data(benchmarks: Mapping[str, Mapping[str, Any]]) -> Iterator[Table]:
    read, left_out = [], []
    for name, facts in benchmarks.items():
        title, data = facts.get("title") or name, facts.get("data")
        places = [
            "images from " * depth + (f"{place} at {commit[:COMMIT_DIGITS]}" if commit else str(place))
            for depth, place, commit in origins(data)
        ]
        cells = [f"{facts['items']:,}" if "items" in facts else "", str(facts.get("version") or "")]
        read.append([title, "; ".join(places), *cells])
        left_out += [[title, reason, f"{count:,}"] for reason, count in (facts.get("left_out") or {}).items()]
    yield Table("", ["benchmark", "read", "rows scored", "version of the benchmark"], read, labels=2)
    yield Table("rows left out", ["benchmark", "reason", "rows"], left_out, labels=2)


def _seconds(seconds: Mapping[str, Mapping[str, float]]) -> Table:
    benchmarks = list(dict.fromkeys(name for part in seconds.values() for name in part))
    rows = [
        [name, *(f"{part[name]:,.1f}" if name in part else "" for part in seconds.values())] for name in benchmarks
    ]
    return Table("seconds", ["benchmark", *seconds], rows, models=len(seconds))


def print_evaluation(results: EvaluationResults, folder: Path | None = None, console: Console | None = None) -> None:
    """Prints the tables in 80 columns, with or without colors; `folder` is the place of the files."""
    render_terminal(evaluation_report(results, brief=True), console, folder=folder)


def write_evaluation(
    folder: Path, results: EvaluationResults, *, items: bool = True, page: PageOptions | None = DEFAULT_PAGE
) -> None:
    """Like `EvaluationResults.save`, under a lock of the caller. Writes items and scores only with `items`."""
    # Before `results.json`, which contains their hash, so a folder left in between raises instead of mixing results.
    if items:
        results.outcomes.write(folder / files.ITEMS_FILE)
        write_blind(folder, results.blind)
        write_scores(folder / SCORES_FILE, results.scores)
    files.write_results(folder / files.RESULTS_FILE, evaluation_to_json(results))
    shown = None if page is None else evaluation_items(results, page)
    save_report(evaluation_report(results, brief=False), folder, page=page is not None, items=shown)


def evaluation_to_json(results: EvaluationResults) -> dict[str, Any]:
    """Returns the content of `results.json`, see `hfcomp.statistics.results`."""
    return {
        "versions": results.versions,
        "models": results.models,
        "reference": results.reference,
        "tie_rule": results.tie,
        "data": {"items": results.outcomes.digest if len(results.outcomes) else None},
        "benchmarks": results.benchmarks,
        "skipped": list(results.skipped),
        "missing_averages": results.missing,
        "seconds": results.seconds,
        "notes": results._every_note,
        "config": results.config,
        "results": results.lines,
        **({"published": results.compare_published().to_dict("records")} if results.published else {}),
        **({} if results._blind_facts is None else {"blind": results._blind_facts}),
    }
