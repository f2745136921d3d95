"""Measured numbers next to published ones of the same model: the difference, and whether it is within a tolerance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hfcomp.evaluation.published.scores import PublishedScore, published_model, published_scores
from hfcomp.evaluation.spec import ALL_ITEMS, PART
from hfcomp.metrics.units import metric_unit
from hfcomp.reporting.format import Estimate, decimal, interval
from hfcomp.reporting.lines import KEYS, Line, distinct_labels
from hfcomp.reporting.report import Lines, Report, Section, Table

TITLE = "Published numbers"
REPRODUCTION = (TITLE, "Data", "Models", "How it was made")
TOLERANCE = 0.003
"""Largest difference of a faithful reproduction, 0.3 points: rounding, image resizing, mixed precision and ties."""
CLOSE, OFF, DIFFERS = "close", "off", "differs"
HEADER = ("", "measured", "published", "difference", "verdict", "interval", "source")
READING = (
    f"Published numbers: {CLOSE} is a difference of at most {100 * TOLERANCE:g} points ({TOLERANCE:g} on a scale to "
    f"1), or of the rounding of what is printed; {OFF} is a larger one; {DIFFERS} marks another protocol, which "
    "decides nothing. Both numbers score the same items, so the interval, which says what other images would change, "
    "decides nothing either."
)
ROUNDING_ERROR = 1e-9


@dataclass(frozen=True)
class PublishedComparison:
    """A published number beside the measured one."""

    model: str
    line: Line
    published: PublishedScore

    @property
    def measured(self) -> Estimate:
        found: Estimate = self.line["models"][self.model]
        return found

    @property
    def difference(self) -> float:
        return float(self.measured["value"]) - self.published.value

    @property
    def tolerance(self) -> float:
        """`TOLERANCE`, or more if the rounding of the published number is coarser."""
        return max(TOLERANCE, self.published.rounding)

    @property
    def verdict(self) -> str:
        """`differs` if the protocol does, otherwise `close` or `off` by the tolerance."""
        # Numbers by another protocol say nothing about this one, however near they are.
        if self.published.differs:
            return DIFFERS
        # A difference of exactly the tolerance is close, despite rounding in floating point.
        return CLOSE if abs(self.difference) <= self.tolerance + ROUNDING_ERROR else OFF

    def facts(self) -> dict[str, Any]:
        """As a row of a table or of `results.json`; values as results have them, accuracies from 0 to 1."""
        one = self.published
        return {
            "model": self.model,
            "published_model": one.model,
            **dict(zip(KEYS, one.line, strict=True)),
            **{key: self.measured.get(key) for key in ("value", "low", "high")},
            "published": one.value,
            "rounding": one.rounding,
            "tolerance": self.tolerance,
            "difference": self.difference,
            "verdict": self.verdict,
            **{key: getattr(one, key) for key in ("source", "reference", "table", "protocol", "differs")},
        }


def matched_models(models: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The models of results that have published numbers, and which published model each is.

    A Hub id decides, which is the `path` of a model's facts; else the name that the user gave.
    """
    found = {name: published_model(facts.get("path"), name) for name, facts in models.items()}
    return {name: known for name, known in found.items() if known is not None}


def compare_with_published(
    lines: Sequence[Line], models: Mapping[str, Mapping[str, Any]]
) -> list[PublishedComparison]:
    """Every published number of a model and line of the results, model by model in the order of lines."""
    found = []
    for name, known in matched_models(models).items():
        # Several papers may print a number for one line.
        of_line: dict[tuple[str, ...], list[PublishedScore]] = {}
        for score in published_scores():
            if score.model == known:
                of_line.setdefault(score.line, []).append(score)
        found += [
            PublishedComparison(name, line, score)
            for line in lines
            if line["models"].get(name) is not None
            for score in of_line.get(tuple(line[key] for key in KEYS), ())
        ]
    return found


def published_section(lines: Sequence[Line], models: Mapping[str, Mapping[str, Any]]) -> Section:
    """How many numbers agree, the tables of each model, the sources by number, and what has no published numbers."""
    comparisons = compare_with_published(lines, models)
    places = list(dict.fromkeys(one.published.place for one in comparisons))
    counts, tables = [], []
    for name, known in matched_models(models).items():
        own = [one for one in comparisons if one.model == name]
        if own:
            called = name if name == known else f"{name} (published as {known})"
            counts.append(f"{called}: {_counts(own)}")
            tables += [_table(name, part, places) for part in _parts(own)]
    remarks = [*_sources(comparisons, places), *_unmatched(comparisons, lines, models)]
    return Section(TITLE, [Lines(counts), *tables, Lines(remarks)])


def reproduction_report(report: Report) -> Report:
    """Of the report of an evaluation the published numbers, what was read, and how it was made."""
    sections = [section for section in report.sections if section.title in REPRODUCTION]
    legend = [line for line in report.legend if line == READING]  # none where nothing is compared
    return replace(report, title="Reproduced numbers", sections=sections, legend=legend)


def _counts(own: Sequence[PublishedComparison]) -> str:
    numbers = Counter(one.verdict for one in own)
    words = {CLOSE: CLOSE, OFF: OFF, DIFFERS: "by another protocol"}
    return f"{len(own)} published numbers, " + ", ".join(
        f"{numbers[verdict]} {word}" for verdict, word in words.items() if numbers[verdict]
    )


def _parts(own: Sequence[PublishedComparison]) -> list[list[PublishedComparison]]:
    """The rows of a table each: of a benchmark's metric that has several lines, then those of all others."""
    kinds: dict[tuple[str, str], list[PublishedComparison]] = {}
    for one in own:
        kinds.setdefault((one.published.benchmark, one.published.metric), []).append(one)
    several = [part for part in kinds.values() if len({one.published.subset for one in part}) > 1]
    alone = [one for part in kinds.values() if part not in several for one in part]
    return [*several, *([alone] if alone else [])]


def _table(name: str, part: Sequence[PublishedComparison], places: Sequence[str]) -> Table:
    shared, labels = distinct_labels([one.line for one in part])
    rows = []
    for label, one in zip(labels, part, strict=True):
        unit = metric_unit(one.published.metric)
        finer = replace(unit, decimals=unit.decimals + 1)  # what is close is told from what is off
        numbers = [decimal(one.measured["value"], unit), one.published.shown, decimal(one.difference, finer, "+")]
        source = f"[{places.index(one.published.place) + 1}]"
        rows.append([label, *numbers, one.verdict, interval(one.measured, unit), source])
    return Table(": ".join(filter(None, (name, shared))), HEADER, rows)


def _sources(comparisons: Sequence[PublishedComparison], places: Sequence[str]) -> Iterator[str]:
    """Each source with its protocols, and how those differ."""
    for number, place in enumerate(places, start=1):
        own = [one.published for one in comparisons if one.published.place == place]
        protocols = dict.fromkeys(one.protocol for one in own if one.protocol)
        yield " ".join([f"[{number}] {own[0].reference}, {own[0].table}.", *protocols, *_differences(own)])


def _differences(own: Sequence[PublishedScore]) -> Iterator[str]:
    """How protocols of a table differ, each with the models and lines that it is of, unless it is of all."""
    several = len({one.model for one in own}) > 1
    for text in dict.fromkeys(one.differs for one in own if one.differs):
        lines: dict[str, list[str]] = {}
        for one in own:
            if one.differs == text:
                line = one.metric if one.subset == ALL_ITEMS else one.subset
                lines.setdefault(one.model if several else "", []).append(line)
        named = [": ".join(filter(None, (model, ", ".join(dict.fromkeys(part))))) for model, part in lines.items()]
        of_all = sum(map(len, lines.values())) == len(own)
        yield f"Differs: {text}" if of_all else f"Differs ({'; '.join(named)}): {text}"


def _unmatched(
    comparisons: Sequence[PublishedComparison],
    lines: Sequence[Line],
    models: Mapping[str, Mapping[str, Any]],
) -> Iterator[str]:
    matched = matched_models(models)
    unknown = [name for name in models if name not in matched]
    if unknown:
        yield (
            f"Without published numbers: {', '.join(unknown)}. A folder that holds a published model is compared if "
            "it has its name or Hub id, as in NegCLIP=FOLDER."
        )
    published = {(score.model, score.benchmark) for score in published_scores()}
    titles = {title for _, title in published}
    of_parts = []
    for title in dict.fromkeys(line["benchmark"] for line in lines):
        # A score of only some items would look like a failed reproduction.
        if title not in titles and title.removesuffix(PART) in titles:
            of_parts.append(title.removesuffix(PART))
            yield f"{title} is not compared: published numbers are of the whole benchmark."
    scored = {one.model for one in comparisons}
    for name, known in matched.items():
        # A line above already covers benchmarks that were scored only in part.
        if name not in scored and not any((known, title) in published for title in of_parts):
            yield f"{name}: {known} has no published number for a line that was scored."
