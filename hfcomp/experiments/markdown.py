"""The report as Markdown, for `report.md` and for cards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hfcomp.experiments.comparison import (
    BASE,
    Line,
    difference,
    has_ties,
    judgement,
    models_of,
    number,
    of_aspect,
    percent,
    unit_of_line,
    with_interval,
    with_note,
    with_p,
)
from hfcomp.experiments.sheets import Sheet, escaped, markdown_table, ties
from hfcomp.experiments.stages import StageSummary
from hfcomp.experiments.tables import (
    LEGEND,
    NO_TIES,
    costs,
    in_short,
    legend_of_models,
    marked,
)


def markdown(lines: list[Line], stages: list[StageSummary], facts: dict[str, Any]) -> str:
    """`report.md`: every line with every interval.

    Args:
        lines: as `hfcomp.evaluation.results` makes them.
        stages: what each training run cost.
        facts: `method`, `caveat`, `notes`.
    """
    parts = [f"# {escaped(facts['method'])}", "", facts["caveat"], ""]
    for sentence in judgement(lines):
        parts += [f"**{escaped(sentence)}**", ""]
    parts += [LEGEND + ("" if has_ties(lines) else f" {NO_TIES}"), ""]
    parts += [f"- {escaped(name)}: {escaped(meaning)}" for name, meaning in legend_of_models(lines)]
    for sheet in _sheets(lines, stages, facts.get("general_average")):
        title = sheet.title[0].upper() + sheet.title[1:]
        parts += ["", f"## {escaped(title)}", "", *markdown_table(sheet)]
    if facts["notes"]:
        parts += ["", "## Data", "", *(f"- {escaped(note)}" for note in facts["notes"])]
    return "\n".join(parts) + "\n"


def _sheets(lines: Sequence[Line], stages: Sequence[StageSummary], general: Line | None) -> list[Sheet]:
    """The tables of Markdown: every line with every interval, without tables that would be empty."""
    method = (models_of(lines) or [""])[-1]
    sheets = [in_short(lines, general)]
    for aspect, shares, changes in (
        ("composition", "Composition", f"What {method} adds"),
        ("general", "General abilities", f"Forgetting: {method}"),
    ):
        chosen = of_aspect(lines, aspect)
        sheets += [_shares(shares, chosen), _differences(f"{changes}, minus each reference", chosen)]
    sheets.append(_controls("Forgetting: the controls, minus base", of_aspect(lines, "general")))
    cost, rest = costs(stages)
    joined = [[*left, *right[1:]] for left, right in zip(cost.rows, rest.rows, strict=True)]
    sheets.append(Sheet("Cost", [*cost.header, *rest.header[1:]], joined))
    return [
        sheet for sheet in [*sheets, ties(lines, {name: name for name in models_of(lines)}, short=False)] if sheet.rows
    ]


def _labels(line: Line) -> list[str]:
    return [line["benchmark"], marked(line, line["subset"]), with_note(line["metric"], line)]


def _shares(title: str, lines: Sequence[Line]) -> Sheet:
    header = ["benchmark", "subset", "metric", "items", "images", "chance", *models_of(lines)]
    rows = [
        [*_labels(line), f"{line['items']:,}", f"{line['images']:,}", percent(line["chance"], unit_of_line(line))]
        + [with_interval(share, unit_of_line(line)) for share in line["models"].values()]
        for line in lines
    ]
    return Sheet(title, header, rows, labels=3)


def _differences(title: str, lines: Sequence[Line]) -> Sheet:
    """Method minus each reference, and the largest of the smallest differences that the set can detect."""
    models = models_of(lines)
    references = models[:-1]
    rows = []
    for line in lines if references else []:
        changes = [difference(line, models[-1], name) for name in references]
        smallest = max((number(change.get("smallest")) for change in changes if change), default=float("nan"))
        unit = unit_of_line(line)
        rows.append([*_labels(line), *(with_p(change, unit) for change in changes), percent(smallest, unit)])
    return Sheet(title, ["benchmark", "subset", "metric", *references, "detectable"], rows, labels=3)


def _controls(title: str, lines: Sequence[Line]) -> Sheet:
    controls = models_of(lines)[1:-1]
    rows = [
        [*_labels(line), *(with_p(difference(line, name, BASE), unit_of_line(line)) for name in controls)]
        for line in (lines if controls else [])
    ]
    return Sheet(title, ["benchmark", "subset", "metric", *controls], rows, labels=3)
