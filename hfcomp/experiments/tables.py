"""The tables of the terminal as rows of text, narrow enough for 80 columns, and the words around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hfcomp.experiments.comparison import (
    BASE,
    HEADLINE_METRIC,
    MEANINGS,
    SAME_BATCH,
    SHORT_METRICS,
    Line,
    Share,
    average_of,
    by_benchmark,
    change_cells,
    count_of,
    difference,
    has_ties,
    headline,
    models_of,
    of_aspect,
    percent,
    points,
    short_metric,
    unsure,
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
    "Shares in percent; intervals of 95 % draw whole images; differences in points, paired by item, with p from a "
    "sign-flip test over images. Averages take lines as independent. Detectable: the difference that the set would "
    "find in 80 % of the cases. A tie is wrong."
)
STAR = "* highest of its line."
# With more differences than that, the terminal sets single lines against one reference only.
MOST_DIFFERENCES = 40


def short_sheets(lines: Sequence[Line], stages: Sequence[StageSummary]) -> list[Sheet]:
    """The tables of the terminal, each at most 80 columns wide, without those that would be empty."""
    sheets = [in_short(lines), *_composition(lines), _added(lines), *_forgetting(lines)]
    sheets += [ties(lines, {name: heading(name) for name in models_of(lines)}, short=True), *costs(stages)]
    return [sheet for sheet in sheets if sheet.rows]


def legend_of_models(lines: Sequence[Line]) -> Iterator[tuple[str, str]]:
    """Each column's name and what it is, where the name is not the method's."""
    models = models_of(lines)
    for name in models[:-1]:
        if name == BASE:
            yield name, "the model that all runs start from"
        elif name in MEANINGS:
            yield name, MEANINGS[name].format(method=models[-1])


def in_short(lines: Sequence[Line]) -> Sheet:
    """Gain beside forgetting, one row a model."""
    parts = {"composition": headline(lines), "general": of_aspect(lines, "general")}
    parts = {name: part for name, part in parts.items() if part}
    counts = [count_of(part, "general" if name == "general" else None) for name, part in parts.items()]
    title = f"gain beside forgetting: averages of {' and '.join(counts)}"
    header, models = ["model"], models_of(lines)
    for name in parts:
        header += [name, "minus base"]
    rows = []
    for model in models if parts else []:
        row = [model]
        for part in parts.values():
            change = "" if model == BASE else points(average_of(part, model, BASE))
            row += [percent((average_of(part, model) or {}).get("value")), change]
        rows.append(row)
    return Sheet(title, header, rows)


def _starred(shares: Iterable[Share | None]) -> list[str]:
    """The shares of one line, with a star behind the highest unless all are equal."""
    cells = [percent(share and share["value"]) for share in shares]
    known = [float(cell) for cell in cells if cell != "-"]
    if len(set(known)) < 2:
        return [f"{cell} " for cell in cells]
    return [f"{cell}{'*' if cell != '-' and float(cell) == max(known) else ' '}" for cell in cells]


def _composition(lines: Sequence[Line]) -> Iterator[Sheet]:
    """A table for each benchmark and metric, or one for all metrics of a benchmark that has no subsets."""
    for benchmark, part in by_benchmark(of_aspect(lines, "composition")).items():
        subsets, metrics = ({line[key] for line in part} for key in ("subset", "metric"))
        if len(subsets) == 1:
            subset = "" if subsets == {"all"} else f", {part[0]['subset']}"
            yield _shares(f"composition: {benchmark}{subset}", "metric", part)
            continue
        for metric in sorted(metrics, key=lambda name: (name != HEADLINE_METRIC, name)):
            same = [line for line in part if line["metric"] == metric]
            yield _shares(f"composition: {benchmark}, {metric}", "kind", same)


def _shares(title: str, label: str, lines: Sequence[Line]) -> Sheet:
    """Shares of all models; below kinds, their averages."""
    counts = sorted({line["items"] for line in lines})
    items = f"{counts[0]:,}" + (f" to {counts[-1]:,}" if len(counts) > 1 else "")
    models = models_of(lines)
    key = {"kind": "subset", "metric": "metric"}[label]
    rows = [[line[key], percent(line["chance"]), *_starred(line["models"].values())] for line in lines]
    if label == "kind" and len(lines) > 1:
        rows.append(["average", "", *_starred([average_of(lines, name) for name in models])])
    return Sheet(f"{title}, percent ({items} items)", [label, "chance", *map(heading, models)], rows)


def _added(lines: Sequence[Line]) -> Sheet:
    """The method minus each reference on the headline lines, the average of a benchmark before its kinds.

    Of many lines only the averages are set against every reference, the lines against the nearest one.
    """
    models, chosen = models_of(lines), headline(lines)
    method, references = (models or [""])[-1], models[:-1]
    parts, metrics = by_benchmark(chosen), {line["metric"] for line in chosen}
    against = references
    if len(references) * len(chosen) > MOST_DIFFERENCES:
        against = [name for name in (SAME_BATCH, *reversed(references)) if name in references][:1]
    rows: list[list[str]] = []
    for benchmark, part in parts.items():
        prefix = f"{benchmark} " if len(parts) > 1 else ""
        if len(part) > 1:
            averages = {name: average_of(part, method, name) for name in references}
            rows += _one_row_a_reference(f"{prefix}average", averages)
        for line in part:
            label = line["subset"] if len(metrics) == 1 else f"{line['subset']} {short_metric(line['metric'])}"
            shares = {name: difference(line, method, name) for name in against}
            indented = f"  {label}" if prefix else label
            rows += _one_row_a_reference(indented if len(part) > 1 else prefix + label, shares)
    header = ["kind", "minus", "points", "95 % interval", "p", "detectable"]
    metric = f": {metrics.pop()}" if len(metrics) == 1 else ""
    return Sheet(f"what {method} adds to each reference{metric}", header, rows, labels=2)


def _one_row_a_reference(label: str, shares: dict[str, Share | None]) -> list[list[str]]:
    """The label stands in the first row only."""
    rows = []
    for name, share in shares.items():
        if share is not None:
            smallest = percent(share.get("smallest"))
            rows.append([label, name, *change_cells(share), smallest])
            label = ""
    return rows


def _forgetting(lines: Sequence[Line]) -> Iterator[Sheet]:
    """Every model's points against base, then the method's with intervals."""
    general, models = of_aspect(lines, "general"), models_of(lines)
    if len(models) < 2 or models[0] != BASE:
        return
    everyone, method = [], []
    for benchmark, part in by_benchmark(general).items():
        everyone.append([benchmark] + [""] * len(models))
        method.append([benchmark] + [""] * 5)
        for line in part:
            label = f"  {short_metric(line['metric'])}"
            if line["subset"] != "all":
                label = f"  {line['subset']} {short_metric(line['metric'])}"
            changes = [difference(line, name, BASE) for name in models[1:]]
            base, last = (percent(line["models"][name]["value"]) for name in (BASE, models[-1]))
            everyone.append([label, base, *map(unsure, changes)])
            method.append([label, base, last, *change_cells(changes[-1])])
    header = ["metric", "base", *map(heading, models[1:])]
    yield Sheet("forgetting: points against base, ~ where the interval holds 0", header, everyone)
    header = ["metric", "base", heading(models[-1]), "points", "95 % interval", "p"]
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
