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
"""Largest difference (0.3 points) that rounding, resizing, mixed precision and ties may cause in a reproduction."""
CLOSE, OFF, DIFFERS = "close", "off", "differs"
HEADER = ("", "measured", "published", "difference", "verdict", "interval", "source")
LEGEND = (
    f"Published numbers: {CLOSE} is a difference of at most {100 * TOLERANCE:g} points ({TOLERANCE:g} on a scale up "
    f"to 1), or at most the rounding of the printed number; {OFF} is a larger one; {DIFFERS} marks another "
    "protocol, for which the difference proves nothing. Both numbers are computed on the same items. The interval "
    "describes the effect of other images and therefore does not decide the verdict."
)
ROUNDING_ERROR = 1e-9


@dataclass(frozen=True)
class PublishedComparison:
    """A published number next to the measured one."""

    model: str
    line: Line
    published: PublishedScore

    @property
    def measured(self) -> Estimate:
        estimate: Estimate = self.line["models"][self.model]
        return estimate

    @property
    def difference(self) -> float:
        return float(self.measured["value"]) - self.published.value

    @property
    def tolerance(self) -> float:
        """`TOLERANCE`, or more if the published number is rounded more coarsely."""
        return max(TOLERANCE, self.published.rounding)

    @property
    def verdict(self) -> str:
        """`differs` for another protocol, otherwise `close` or `off` by the tolerance."""
        # A number by another protocol says nothing about this one, however close it is.
        if self.published.differs:
            return DIFFERS
        # A difference of exactly the tolerance is close, despite floating-point rounding.
        return CLOSE if abs(self.difference) <= self.tolerance + ROUNDING_ERROR else OFF

    def facts(self) -> dict[str, Any]:
        """Returns a row for a table or `results.json`; accuracies are from 0 to 1."""
        score = self.published
        return {
            "model": self.model,
            "published_model": score.model,
            **dict(zip(KEYS, score.line, strict=True)),
            **{key: self.measured.get(key) for key in ("value", "low", "high")},
            "published": score.value,
            "rounding": score.rounding,
            "tolerance": self.tolerance,
            "difference": self.difference,
            "verdict": self.verdict,
            **{key: getattr(score, key) for key in ("source", "reference", "table", "protocol", "differs")},
        }


def match_models(models: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Matches the models of results with published models.

    A model is matched by its Hub id (`path` in its facts) or, failing that, by the name that the user gave.
    """
    matches = {name: published_model(facts.get("path"), name) for name, facts in models.items()}
    return {name: known for name, known in matches.items() if known is not None}


def compare_with_published(
    lines: Sequence[Line], models: Mapping[str, Mapping[str, Any]]
) -> list[PublishedComparison]:
    """Compares every published number of these models and lines, model by model in the order of lines."""
    comparisons = []
    for name, known in match_models(models).items():
        # Several papers may print a number for the same line.
        by_line: dict[tuple[str, ...], list[PublishedScore]] = {}
        for score in published_scores():
            if score.model == known:
                by_line.setdefault(score.line, []).append(score)
        comparisons += [
            PublishedComparison(name, line, score)
            for line in lines
            if line["models"].get(name) is not None
            for score in by_line.get(tuple(line[key] for key in KEYS), ())
        ]
    return comparisons


def published_section(lines: Sequence[Line], models: Mapping[str, Mapping[str, Any]]) -> Section:
    """Builds the section: how many numbers agree, tables per model, numbered sources, and models without numbers."""
    comparisons = compare_with_published(lines, models)
    places = list(dict.fromkeys(comparison.published.place for comparison in comparisons))
    counts, tables = [], []
    for name, known in match_models(models).items():
        own = [comparison for comparison in comparisons if comparison.model == name]
        if own:
            called = name if name == known else f"{name} (published as {known})"
            counts.append(f"{called}: {_counts(own)}")
            tables += [_table(name, part, places) for part in _parts(own)]
    remarks = [*_sources(comparisons, places), *_unmatched_notes(comparisons, lines, models)]
    return Section(TITLE, [Lines(counts), *tables, Lines(remarks)])


def reproduction_report(report: Report) -> Report:
    """Reduces an evaluation's report to the published numbers, the data, the models and how it was made."""
    sections = [section for section in report.sections if section.title in REPRODUCTION]
    legend = [line for line in report.legend if line == LEGEND]  # none if nothing is compared
    return replace(report, title="Reproduced numbers", sections=sections, legend=legend)


def _counts(own: Sequence[PublishedComparison]) -> str:
    numbers = Counter(comparison.verdict for comparison in own)
    words = {CLOSE: CLOSE, OFF: OFF, DIFFERS: "by another protocol"}
    return f"{len(own)} published numbers, " + ", ".join(
        f"{numbers[verdict]} {word}" for verdict, word in words.items() if numbers[verdict]
    )


def _parts(own: Sequence[PublishedComparison]) -> list[list[PublishedComparison]]:
    """Groups rows into tables: one per benchmark metric with several lines, then one for all others."""
    kinds: dict[tuple[str, str], list[PublishedComparison]] = {}
    for comparison in own:
        kinds.setdefault((comparison.published.benchmark, comparison.published.metric), []).append(comparison)
    several = [part for part in kinds.values() if len({row.published.subset for row in part}) > 1]
    single = [row for part in kinds.values() if part not in several for row in part]
    return [*several, *([single] if single else [])]


def _table(name: str, part: Sequence[PublishedComparison], places: Sequence[str]) -> Table:
    shared, labels = distinct_labels([row.line for row in part])
    rows = []
    for label, row in zip(labels, part, strict=True):
        unit = metric_unit(row.published.metric)
        finer = replace(unit, decimals=unit.decimals + 1)  # one more decimal shows what is close and what is off
        numbers = [decimal(row.measured["value"], unit), row.published.shown, decimal(row.difference, finer, "+")]
        source = f"[{places.index(row.published.place) + 1}]"
        rows.append([label, *numbers, row.verdict, interval(row.measured, unit), source])
    return Table(": ".join(filter(None, (name, shared))), HEADER, rows)


def _sources(comparisons: Sequence[PublishedComparison], places: Sequence[str]) -> Iterator[str]:
    """Yields each source with its protocols and their differences."""
    for number, place in enumerate(places, start=1):
        own = [comparison.published for comparison in comparisons if comparison.published.place == place]
        protocols = dict.fromkeys(score.protocol for score in own if score.protocol)
        yield " ".join([f"[{number}] {own[0].reference}, {own[0].table}.", *protocols, *_differences(own)])


def _differences(own: Sequence[PublishedScore]) -> Iterator[str]:
    """Yields the protocol differences of a table. Each names its models and lines, unless it applies to all."""
    several = len({score.model for score in own}) > 1
    for text in dict.fromkeys(score.differs for score in own if score.differs):
        lines: dict[str, list[str]] = {}
        for score in own:
            if score.differs == text:
                line = score.metric if score.subset == ALL_ITEMS else score.subset
                lines.setdefault(score.model if several else "", []).append(line)
        named = [": ".join(filter(None, (model, ", ".join(dict.fromkeys(part))))) for model, part in lines.items()]
        is_general = sum(map(len, lines.values())) == len(own)
        yield f"Differs: {text}" if is_general else f"Differs ({'; '.join(named)}): {text}"


def _unmatched_notes(
    comparisons: Sequence[PublishedComparison], lines: Sequence[Line], models: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    matched = match_models(models)
    unknown = [name for name in models if name not in matched]
    if unknown:
        yield (
            f"Without published numbers: {', '.join(unknown)}. A folder with a published model is compared if you "
            "give it the model's name or Hub id, for example NegCLIP=FOLDER."
        )
    published = {(score.model, score.benchmark) for score in published_scores()}
    titles = {title for _, title in published}
    partial = []
    for title in dict.fromkeys(line["benchmark"] for line in lines):
        # A score on only some of the items would look like a failed reproduction.
        if title not in titles and title.removesuffix(PART) in titles:
            partial.append(title.removesuffix(PART))
            yield f"{title} is not compared: published numbers cover the whole benchmark."
    scored = {comparison.model for comparison in comparisons}
    for name, known in matched.items():
        # The remark above already covers benchmarks that were scored only in part.
        if name not in scored and not any((known, title) in published for title in partial):
            yield f"{name}: {known} has no published number for any scored line."
