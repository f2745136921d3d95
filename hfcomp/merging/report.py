"""What there is to see of a sweep: its front, and a table of its points."""

from __future__ import annotations

from collections.abc import Mapping

from hfcomp.evaluation.points import point_name
from hfcomp.merging.sweep import BASE_POINT, Swept
from hfcomp.reporting.figures import Figure, Paths, Stop
from hfcomp.reporting.format import decimal, with_interval
from hfcomp.reporting.lines import difference, unit_of_line
from hfcomp.reporting.report import Table

CAPTION = (
    "Each line is the way from the base (alpha 0) to a tuned model (alpha 1) in 11 points, scored on the items that "
    "choose. The numbered point is the chosen alpha; bars are 95 % intervals."
)


def front_figure(name: str, title: str, sweeps: Mapping[str, Swept]) -> Figure:
    """The way of each tuned model from the base, with the chosen point."""
    first = next(iter(sweeps.values()))
    composition, general = first.lines
    paths = {model: [_stop(swept, point.alpha) for point in swept.points] for model, swept in sweeps.items()}
    paths["base"] = [_stop(first, 0.0, bars=True)]
    axes = f"{general['name']}, percent", f"{composition['name']}, percent"
    panel = Paths(
        "Composition against general abilities, on the items that choose", axes, paths, composition["chance"] or 0
    )
    return Figure(name, title, [panel], CAPTION)


def _stop(swept: Swept, alpha: float, *, bars: bool = False) -> Stop:
    composition, general = (line["models"][point_name(alpha)] for line in swept.lines)
    is_chosen = alpha == swept.chosen.alpha and not bars
    mark = f"{alpha:g}".removeprefix("0") or "0"  # ".3" has room in a marker
    return Stop(general, composition, mark if is_chosen else "", bars or is_chosen)


def points_table(model: str, swept: Swept, *, brief: bool = False) -> Table:
    """A row for each point: its scores with intervals, what they are above the base, and which is chosen.

    In brief, which fits a terminal, differences alone have intervals.
    """
    rows = []
    for point in swept.points:
        name, cells = point_name(point.alpha), [f"{point.alpha:g}"]
        for line in swept.lines:
            unit, change = unit_of_line(line), difference(line, name, BASE_POINT)
            minus = "" if name == BASE_POINT else with_interval(change, unit, "+")
            own = line["models"][name]
            cells += [decimal(own["value"], unit) if brief else with_interval(own, unit), minus]
        said = "chosen" if point == swept.chosen else "" if point in swept.front else "dominated"
        rows.append([*cells, said])
    header = ["alpha", "composition", "minus base", "general", "minus base", ""]
    items = " and ".join(f"{line['items']:,} items ({line['name']})" for line in swept.lines)
    return Table(f"{model}, on the items that choose: {items}", header, rows)
