"""The tables of the terminal as rows of text, narrow enough for 80 columns, and the words around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hfcomp.experiments.comparison import (
    BASE,
    HEADLINE_METRIC,
    MEANINGS,
    PERCENT,
    SAME_BATCH,
    SHORT_METRICS,
    Line,
    Share,
    Unit,
    by_benchmark,
    change_cells,
    count_of,
    difference,
    has_ties,
    headline,
    is_average,
    models_of,
    of_aspect,
    percent,
    points,
    primary_of,
    short_metric,
    subsets_of,
    unit_of_line,
    unsure,
    with_note,
)
from hfcomp.experiments.memory import GPU, RESIDENT, RESIDENT_SO_FAR
from hfcomp.experiments.sheets import NO_TIES, Sheet, heading, terminal_table, ties
from hfcomp.experiments.stages import StageSummary

__all__ = [
    "LEGEND",
    "NO_TIES",
    "SHORT_METRICS",
    "STAR",
    "Sheet",
    "costs",
    "has_ties",
    "in_short",
    "legend_of_models",
    "short_sheets",
    "terminal_table",
]

# Behind a stage's peak memory in the table of costs.
MEMORY_MARKS = {GPU: "GPU", RESIDENT: "RAM", RESIDENT_SO_FAR: "RAM, run so far"}
LEGEND = (
    "Shares in percent, other metrics in the unit behind their name; intervals of 95 % draw whole images, of averages "
    "all their lines at once; differences in points, paired by item, with p from a sign-flip test over images. "
    "Adjusted for their number: the method minus same-batch on the primary endpoint by Holm, all others as q "
    "(Benjamini and Hochberg). Detectable: the difference that the set would find in 80 % of the cases. "
    "A tie is wrong."
)
STAR = "* highest of its line, and above chance."
PRIMARY = " (primary)"
# With more differences than that, the terminal sets single lines against one reference only.
MOST_DIFFERENCES = 40


def short_sheets(lines: Sequence[Line], stages: Sequence[StageSummary], general: Line | None = None) -> list[Sheet]:
    """The tables of the terminal, each at most 80 columns wide, without those that would be empty."""
    sheets = [in_short(lines, general), *_composition(lines), _added(lines), *_forgetting(lines)]
    sheets += [ties(subsets_of(lines), {name: heading(name) for name in models_of(lines)}, short=True), *costs(stages)]
    return [sheet for sheet in sheets if sheet.rows]


def legend_of_models(lines: Sequence[Line]) -> Iterator[tuple[str, str]]:
    """Each column's name and what it is, where the name is not the method's."""
    models = models_of(lines)
    for name in models[:-1]:
        if name == BASE:
            yield name, "the model that all runs start from"
        elif name in MEANINGS:
            yield name, MEANINGS[name].format(method=models[-1])


def in_short(lines: Sequence[Line], general: Line | None = None) -> Sheet:
    """Gain beside forgetting, one row a model: the primary endpoint, and the mean of general abilities.

    Args:
        lines: of a run.
        general: of `summarize_run`; without it a single general line stands for itself.
    """
    primary, only = primary_of(lines), subsets_of(of_aspect(lines, "general"))
    if general is None and len(only) == 1:
        general = only[0]
    parts = {"primary": primary, "general": general}
    shown = {name: line for name, line in parts.items() if line is not None}
    names = [with_note("the primary endpoint", primary)] if primary else []
    if general:
        average = f"the average of {count_of(only, 'general')}" if len(only) > 1 else "the general line"
        names.append(with_note(average, general))
    header, models = ["model"], models_of(lines)
    for name in shown:
        header += [name, "minus base"]
    rows = []
    for model in models if shown else []:
        row = [model]
        for line in shown.values():
            unit = unit_of_line(line)
            change = "" if model == BASE else points(difference(line, model, BASE), unit)
            row += [percent(line["models"][model]["value"], unit), change]
        rows.append(row)
    return Sheet(f"gain beside forgetting: {' and '.join(names)}", header, rows)


def _starred(line: Line) -> list[str]:
    """The shares of one line, with a star behind the highest unless all are equal, or it is not above chance."""
    shares, chance, unit = list(line["models"].values()), line["chance"], unit_of_line(line)
    cells = [percent(share and share["value"], unit) for share in shares]
    known = [float(cell) for cell in cells if cell != "-"]
    if len(set(known)) < 2:
        return [f"{cell} " for cell in cells]
    least = -1.0 if chance is None else chance
    best = [
        cell != "-" and float(cell) == max(known) and share["value"] > least
        for cell, share in zip(cells, shares, strict=True)
    ]
    return [f"{cell}{'*' if star else ' '}" for cell, star in zip(cells, best, strict=True)]


def _composition(lines: Sequence[Line]) -> Iterator[Sheet]:
    """A table for each benchmark and metric, or one for all metrics of a benchmark that has no subsets."""
    for benchmark, part in by_benchmark(of_aspect(lines, "composition")).items():
        # a mean over several metrics, as which a primary endpoint may be named, is a row below theirs
        kinds = subsets_of(part) or part
        subsets = {line["subset"] for line in kinds}
        if len(subsets) == 1:
            subset = "" if subsets == {"all"} else f", {kinds[0]['subset']}"
            yield _shares(f"composition: {benchmark}{subset}", "metric", sorted(part, key=is_average))
            continue
        for metric in sorted({line["metric"] for line in part}, key=lambda name: (name != HEADLINE_METRIC, name)):
            same = [line for line in part if line["metric"] == metric]
            yield _shares(f"composition: {benchmark}, {metric}", "kind", sorted(same, key=is_average))


def _shares(title: str, label: str, lines: Sequence[Line]) -> Sheet:
    """Shares of all models; below kinds, their averages."""
    counts = sorted({line["items"] for line in subsets_of(lines) or lines})
    items = f"{counts[0]:,}" + (f" to {counts[-1]:,}" if len(counts) > 1 else "")
    rows = []
    for line in lines:
        name = line["subset"] if label == "kind" else with_note(line["metric"], line)
        rows.append([marked(line, name), percent(line["chance"], unit_of_line(line)), *_starred(line)])
    if any(unit_of_line(line) == PERCENT for line in lines):
        title += ", percent"
    elif label == "kind":
        title = with_note(title, lines[0])
    return Sheet(f"{title} ({items} items)", [label, "chance", *map(heading, models_of(lines))], rows)


def _change(lines: Sequence[Line]) -> str:
    """The heading of differences: only those of shares are points."""
    return "points" if all(unit_of_line(line) == PERCENT for line in lines) else "change"


def marked(line: Line, label: str) -> str:
    """The label of a line, with what says that it is the primary endpoint."""
    return label + (PRIMARY if line.get("primary") else "")


def _added(lines: Sequence[Line]) -> Sheet:
    """The method minus each reference on the headline lines, the averages of a benchmark before its kinds.

    Of many lines only the averages are set against every reference, the lines against the nearest one. The primary
    endpoint is there in any case.
    """
    models, chosen = models_of(lines), headline(lines)
    method, references = (models or [""])[-1], models[:-1]
    primary = primary_of(lines)
    kinds = {(line["benchmark"], line["metric"]) for line in chosen}
    every = [line for line in lines if is_average(line) and (line["benchmark"], line["metric"]) in kinds]
    if primary is not None and not any(line is primary for line in (*every, *chosen)):
        every.insert(0, primary)
    metrics = {line["metric"] for line in (*every, *chosen)}
    against = references
    if len(references) * len(chosen) > MOST_DIFFERENCES:
        against = [name for name in (SAME_BATCH, *reversed(references)) if name in references][:1]
    rows: list[list[str]] = []
    parts = by_benchmark([*every, *chosen])
    for benchmark, part in parts.items():
        prefix = f"{benchmark} " if len(parts) > 1 else ""
        for line in part:
            whole = is_average(line) or len(part) == 1
            label = f"{line['subset']} {with_note(short_metric(line['metric']), line)}"
            label = line["subset"] if len(metrics) == 1 else label
            label = marked(line, prefix + label if whole else f"  {label}" if prefix else label)
            compared = references if is_average(line) or line.get("primary") else against
            changes = {name: difference(line, method, name) for name in compared}
            rows += _one_row_a_reference(label, changes, unit_of_line(line))
    header = ["kind", "minus", _change([*every, *chosen]), "95 % interval", "p", "adj. p", "detect-\nable"]
    metric = f": {with_note(metrics.pop(), [*every, *chosen][0])}" if len(metrics) == 1 else ""
    return Sheet(f"what {method} adds to each reference{metric}", header, rows, labels=2)


def _one_row_a_reference(label: str, shares: dict[str, Share | None], unit: Unit) -> list[list[str]]:
    """The label stands in the first row only."""
    rows = []
    for name, share in shares.items():
        if share is not None:
            rows.append([label, name, *change_cells(share, unit), percent(share.get("smallest"), unit)])
            label = ""
    return rows


def _forgetting(lines: Sequence[Line]) -> Iterator[Sheet]:
    """Every model's points against base, then the method's with intervals."""
    general, models = subsets_of(of_aspect(lines, "general")), models_of(lines)
    if len(models) < 2 or models[0] != BASE:
        return
    everyone, method = [], []
    for benchmark, part in by_benchmark(general).items():
        everyone.append([benchmark] + [""] * len(models))
        method.append([benchmark] + [""] * 6)
        for line in part:
            subset, unit = "" if line["subset"] == "all" else f" {line['subset']}", unit_of_line(line)
            label = f" {subset} {with_note(short_metric(line['metric']), line)}"
            changes = [difference(line, name, BASE) for name in models[1:]]
            base, last = (percent(line["models"][name]["value"], unit) for name in (BASE, models[-1]))
            everyone.append([label, base, *(unsure(change, unit) for change in changes)])
            method.append([label, base, last, *change_cells(changes[-1], unit)])
    header = ["metric", "base", *map(heading, models[1:])]
    yield Sheet(f"forgetting: {_change(general)} against base, ~ where the interval holds 0", header, everyone)
    header = ["metric", "base", heading(models[-1]), _change(general), "95 % interval", "p", "q"]
    yield Sheet(f"forgetting: {models[-1]} against base", header, method)


def costs(stages: Sequence[StageSummary]) -> tuple[Sheet, Sheet]:
    """What the runs cost, in two tables of the same rows: together they are wider than 80 columns."""
    cost = [
        [
            stage.name,
            f"{stage.steps:,}",
            f"{stage.images:,}",
            f"{stage.texts:,}",
            f"{stage.seconds:,.1f}",
            f"{stage.images_per_second:,.1f}",
        ]
        for stage in stages
    ]
    rest = [
        [
            stage.name,
            f"{stage.peak_memory_gib:.2f} GiB {MEMORY_MARKS.get(stage.peak_memory_of, '')}".rstrip(),
            f"{stage.loss:.4f}",
            f"{100 * stage.truncated_text_share:.2f} %",
        ]
        for stage in stages
    ]
    return (
        Sheet("cost", ["run", "steps", "images", "texts", "seconds", "images/s"], cost),
        Sheet("cost, continued", ["run", "peak memory", "last loss", "texts cut"], rest),
    )
