"""The sections and the figure that every report of lines of results has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hfcomp.reporting.figures import Figure, Points
from hfcomp.reporting.lines import (
    ASPECTS,
    Line,
    about_general,
    counts,
    difference,
    distinct_labels,
    few_of,
    foremost,
    grouped,
    models_of,
    of_aspect,
    primary_of,
    standing,
    unit_of_line,
    with_note,
)
from hfcomp.reporting.report import Part, Section, Table
from hfcomp.reporting.tables import Pairs, changes, differences, gain_beside_forgetting, ties, values

# More rows than that, and averages stand for the lines of all but the first benchmark; more than twice that, and one
# line stands for each.
MANY_ROWS = 12
MOST_ROWS = 40
VALUES = "percent, 95 % intervals (dotted: chance)"
CHANGES = "points against {reference}, 95 % intervals (left of 0: forgotten)"


def sections_of_lines(
    lines: Sequence[Line],
    pairs: Callable[[Line], Pairs],
    *,
    reference: str | None,
    general: Line | None = None,
    tie: str = "wrong",
    brief: bool = False,
) -> list[Section]:
    """Gain beside forgetting, composition, general abilities, differences and ties.

    Args:
        lines: of all models.
        pairs: models and references whose differences are shown of a line.
        reference: the model that gain and forgetting are read against.
        general: the mean of general abilities, which stands beside the primary endpoint.
        tie: what a tie counts.
        brief: the lines that stand for others, in tables that fit a terminal; else all of them.
    """
    parts = {words: of_aspect(lines, aspect) for aspect, words in ASPECTS.items()}
    composition, abilities = parts.values()
    compared = [
        name for name in models_of(lines) if any(reference in line["differences"].get(name, {}) for line in abilities)
    ]
    changed = compared if composition else []
    gained = changes(f"minus {reference}", [*foremost(composition), *standing(abilities)], changed, str(reference))
    shown = {words: standing(part) if brief else part for words, part in parts.items()}
    minus = [differences([(line, pairs(line)) for line in part]) for part in shown.values()]
    return [
        Section("Gain beside forgetting", [_gain(lines, general, reference), gained]),
        *(Section(words, values(part, brief=brief)) for words, part in parts.items()),
        Section("Differences", [table for part in minus for table in part]),
        Section("Ties", [ties(few_of(lines) if brief else lines, rule=tie)]),
    ]


def _gain(lines: Sequence[Line], general: Line | None, reference: str | None) -> Table:
    """The primary endpoint and the mean of general abilities of each model."""
    primary = primary_of(lines)
    about = [f"primary: {with_note(primary['primary'], primary)}"] if primary else []
    about += [f"general: {with_note(about_general(lines), general)}"] if general else []
    return gain_beside_forgetting("; ".join(about), {"primary": primary, "general": general}, reference)


def merge_sections(parts: Mapping[str, Sequence[Section]]) -> list[Section]:
    """The sections of several reports as those of one, in which tables say of which they are.

    Args:
        parts: by name, each of the same sections.
    """
    return [
        Section(
            same[0].title, [_named(name, part) for name, one in zip(parts, same, strict=True) for part in one.parts]
        )
        for same in zip(*parts.values(), strict=True)
    ]


def _named(name: str, part: Part) -> Part:
    return replace(part, title=": ".join(filter(None, (name, part.title)))) if isinstance(part, Table) else part


def figure_of_lines(
    name: str, title: str, lines: Sequence[Line], *, reference: str | None = None, main: str | None = None
) -> Figure:
    """Points with intervals: values of composition, and of general abilities, or what became of these.

    Args:
        name: of the file.
        title: of the figure.
        lines: those that are drawn; of many the averages.
        reference: with it, general abilities are drawn as differences to that model.
        main: the model that is drawn larger.
    """
    panels = []
    for aspect, words in ASPECTS.items():
        chosen = _chosen(of_aspect(lines, aspect))
        compared = reference if aspect == "general" else None
        names = [model for model in models_of(lines) if model != compared]
        shared, labels = distinct_labels(chosen, note=False)
        parts = [f"{words}: {shared}" if shared else words, counts(chosen)]
        parts += [f"first {MOST_ROWS} of {len(chosen)} lines"] if len(chosen) > MOST_ROWS else []
        rows = []
        for label, line in zip(labels, chosen[:MOST_ROWS] if names else [], strict=False):
            of_model = {
                model: difference(line, model, compared) if compared else line["models"].get(model) for model in names
            }
            rows.append((label + (" (x 100)" if unit_of_line(line).note else ""), of_model, line["chance"]))
        axis = CHANGES.format(reference=compared) if compared else VALUES
        panels.append(Points(", ".join(filter(None, parts)), axis, rows, names, differences=bool(compared)))
    return Figure(name, title, panels, main=main)


def _chosen(lines: Sequence[Line]) -> list[Line]:
    """All lines; where they are many, those of the first benchmark and what stands for the others."""
    parts = grouped(lines, "benchmark")
    if len(lines) > MANY_ROWS:
        first = parts[0] if len(parts[0]) <= MANY_ROWS else standing(parts[0])
        parts = [first, *map(standing, parts[1:])]
    kept = [line for part in parts for line in part]
    return foremost(lines) if len(kept) > 2 * MANY_ROWS else kept
