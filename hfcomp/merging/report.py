"""A sweep's front and table of points, and the card of a model between a base and a tuned model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hfcomp.data.publishing import is_on_hub, without_local_paths
from hfcomp.evaluation.points import point_name
from hfcomp.merging.sweep import BASE_POINT, SweepResult
from hfcomp.reporting import tables
from hfcomp.reporting.cards.card import FORGETTING, PLACE, TERMS, Card, Interpolation, evaluate_command
from hfcomp.reporting.cards.metadata import card_metadata, eval_files, eval_results
from hfcomp.reporting.cards.runs import result_sections
from hfcomp.reporting.figures import Figure, Paths, Stop, Style
from hfcomp.reporting.format import decimal, with_interval
from hfcomp.reporting.line_values import as_last, difference
from hfcomp.reporting.lines import unit_of_line
from hfcomp.reporting.report import Table
from hfcomp.statistics.results import versions
from hfcomp.statistics.summary import BASE

CAPTION = (
    "Each line is the path from the base (alpha 0) to a tuned model (alpha 1) in 11 points, scored on the items used "
    "to choose. The numbered point is the chosen alpha; bars are 95% intervals."
)
FIGURE_TEXT = "composition against general abilities on the path from the base to the tuned model"
TUNED_CARD = "The tuned model's card describes its training and data."


def front_figure(
    name: str, title: str, sweeps: Mapping[str, SweepResult], styles: Mapping[str, Style] | None = None
) -> Figure:
    """Draws the path of each tuned model from the base, with the chosen point."""
    first = next(iter(sweeps.values()))
    composition, general = first.lines
    paths = {model: [_stop(swept, point.alpha) for point in swept.points] for model, swept in sweeps.items()}
    # The base is drawn once, because all paths begin there.
    paths["base"] = [_stop(first, 0.0, bars=True)]
    axes = f"{general['name']}, percent", f"{composition['name']}, percent"
    panel = Paths(
        "Composition against general abilities, on the items used to choose", axes, paths, composition["chance"] or 0
    )
    return Figure(name, title, [panel], CAPTION, styles=styles or {})


def _stop(swept: SweepResult, alpha: float, *, bars: bool = False) -> Stop:
    composition, general = (line["models"][point_name(alpha)] for line in swept.lines)
    is_chosen = alpha == swept.chosen.alpha and not bars
    # ".3" fits into a marker, "0.3" does not.
    mark = f"{alpha:g}".removeprefix("0") or "0"
    return Stop(general, composition, mark if is_chosen else "", bars or is_chosen)


def points_table(model: str, swept: SweepResult, *, brief: bool = False) -> Table:
    """Returns a table with a row per point: scores with intervals, differences to the base, and the chosen point.

    If brief, to fit a terminal, only differences have intervals.
    """
    rows = []
    for point in swept.points:
        name, cells = point_name(point.alpha), [f"{point.alpha:g}"]
        for line in swept.lines:
            unit, change = unit_of_line(line), difference(line, name, BASE_POINT)
            minus = "" if name == BASE_POINT else with_interval(change, unit, "+")
            score = line["models"][name]
            cells += [decimal(score["value"], unit) if brief else with_interval(score, unit), minus]
        status = "chosen" if point == swept.chosen else "" if point in swept.front else "dominated"
        rows.append([*cells, status])
    header = ["alpha", "composition", "minus base", "general", "minus base", ""]
    items = " and ".join(f"{line['items']:,} items ({line['name']})" for line in swept.lines)
    return Table(f"{model}, on the items used to choose: {items}", header, rows)


def merge_card(
    record: Mapping[str, Any], results: Mapping[str, Any] | None = None, *, model: str = "", figure: str = ""
) -> Card:
    """Builds the card of a point between two models.

    Args:
        record: Content of its `merge.json`.
        results: Results of its sweep, as in `results.json`; `None` for a given point.
        model: Name of the point in the results.
        figure: Name of the points' picture next to the card.
    """
    base, tuned = record["base"]["path"], record["tuned"]["path"]
    # A card names a model that readers can load, which a local folder is not.
    base_id = base if is_on_hub(base) else None
    scored = without_local_paths(dict(results or {}))
    lines = as_last(scored.get("results", []), model)
    benchmarks = scored.get("benchmarks", {})
    title = f"Between {base} and {tuned}, alpha {record['alpha']:g}"
    model_results = eval_results(lines, own=None, benchmarks=benchmarks)
    return Card(
        metadata=card_metadata("WiSE-FT", base=base, results=model_results),
        title=title,
        summary=f"An image-text dual encoder interpolated between {base} and {tuned}, a model fine-tuned from {base}.",
        objective="",
        interpolation=Interpolation.of(record["alpha"], record["chosen"]),
        figure=(figure, FIGURE_TEXT) if figure else None,
        caveat=scored.get("caveat", ""),
        results=result_sections(lines, None),
        legend=tables.legend(lines) if lines else "",
        evaluate=evaluate_command("merged", PLACE, base_id),
        provenance={
            name: f"{origin['path']} ({origin['weights']})"
            for name, origin in ((BASE, record["base"]), ("tuned", record["tuned"]))
        },
        command=(scored["config"]["command"], "bash") if scored.get("config", {}).get("command") else None,
        values=Table("", [], []),
        environment=versions(),
        limits=[FORGETTING, TERMS],
        notes=[TUNED_CARD, *scored.get("notes", ())],
        eval_files=eval_files(lines, benchmarks=benchmarks, version=record["hfcomp_version"]),
    )
