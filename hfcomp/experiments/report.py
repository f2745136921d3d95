"""From outcomes per item to `results.json`, `report.md`, a figure, and the table in the terminal."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from hfcomp.evaluation.statistics import clustered_interval
from hfcomp.experiments.card import write_card
from hfcomp.experiments.memory import GPU, RESIDENT, RESIDENT_SO_FAR
from hfcomp.experiments.stages import StageSummary

SCHEMA_VERSION = 1
LINE = ["benchmark", "subset", "metric"]
LEGEND = (
    "Shares in percent, with 95 % intervals that draw whole images. Differences are paired by item. A tie is wrong."
)
# Behind a stage's peak memory in the table of costs.
MEMORY_MARKS = {GPU: "GPU", RESIDENT: "RAM", RESIDENT_SO_FAR: "RAM, run so far"}


def summarize(items: pd.DataFrame, models: list[str], control: str | None) -> list[dict[str, Any]]:
    """One entry per benchmark, subset and metric, with every model's share and the differences to the control.

    Args:
        items: outcomes of all models: the columns of `hfcomp.experiments.evaluate.outcomes` and `model`.
        models: in the order of columns.
        control: the model that differences refer to; none without controls.
    """
    lines = []
    for key, part in items.groupby(LINE, sort=False):
        by_model = {name: group.set_index("item") for name, group in part.groupby("model")}
        first = by_model[models[0]]
        line = dict(zip(LINE, key, strict=True))
        line |= {"chance": float(first["chance"].iloc[0]), "items": len(first)}
        line |= {"images": int(first["image_id"].nunique()), "models": {}}
        for name in models:
            line["models"][name] = _share(by_model[name]["value"], by_model[name])
            line["models"][name]["ties"] = int(by_model[name]["tie"].sum())
            if control and name not in (control, "base"):
                difference = by_model[name]["value"] - by_model[control]["value"]
                line["models"][name][f"minus_{control}"] = _share(difference, first)
        lines.append(line)
    return lines


def _share(values: pd.Series, table: pd.DataFrame) -> dict[str, float]:
    low, high = clustered_interval(values.to_numpy(), table["image_id"].to_numpy())
    return {"value": float(values.mean()), "low": low, "high": high}


def write_results(
    folder: Path,
    *,
    items: pd.DataFrame,
    lines: list[dict[str, Any]],
    stages: list[StageSummary],
    facts: dict[str, Any],
) -> None:
    """Writes `items.parquet`, `results.json`, `report.md`, the card, and with matplotlib installed `figure.png`."""
    items.to_parquet(folder / "items.parquet", index=False)
    results = {"schema_version": SCHEMA_VERSION, **facts, "stages": [asdict(s) for s in stages], "results": lines}
    (folder / "results.json").write_text(json.dumps(_finite(results), indent=2))
    report = markdown(lines, stages, facts)
    (folder / "report.md").write_text(report)
    write_card(folder, report=report, facts=facts)
    draw_figure(folder / "figure.png", lines)


def _finite(value: Any) -> Any:
    """NaN is no JSON: null in its place."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(share: dict[str, float]) -> str:
    if math.isnan(share["low"]):
        return f"{100 * share['value']:.1f}"
    return f"{100 * share['value']:.1f} [{100 * share['low']:.0f}, {100 * share['high']:.0f}]"


def _signed(share: dict[str, float]) -> str:
    return f"{100 * share['value']:+.1f} [{100 * share['low']:+.0f}, {100 * share['high']:+.0f}]"


def score_table(lines: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of scores."""
    models = list(lines[0]["models"])
    control = next((key for share in lines[0]["models"].values() for key in share if key.startswith("minus_")), None)
    header = ["benchmark", "subset", "metric", "items", "chance", *models]
    header += [f"{models[-1]} - {control.removeprefix('minus_')}"] if control else []
    rows = []
    for line in lines:
        shares = line["models"]
        row = [line["benchmark"], line["subset"], line["metric"], f"{line['items']:,}", f"{100 * line['chance']:.1f}"]
        row += [
            _cell(shares[name]) + (f" {shares[name]['ties']} ties" if shares[name]["ties"] else "") for name in models
        ]
        row += [_signed(shares[models[-1]][control])] if control else []
        rows.append(row)
    return header, rows


def cost_table(stages: list[StageSummary]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of costs."""
    header = ["run", "steps", "images", "texts", "seconds", "images/s", "peak memory", "last loss", "texts cut"]
    rows = [
        [
            stage.name,
            f"{stage.steps:,}",
            f"{stage.images:,}",
            f"{stage.texts:,}",
            f"{stage.seconds:.1f}",
            f"{stage.images_per_second:,.1f}",
            f"{stage.peak_memory_gib:.2f} GiB {MEMORY_MARKS.get(stage.peak_memory_of, '')}".rstrip(),
            f"{stage.loss:.4f}",
            f"{100 * stage.truncated_text_share:.2f} %",
        ]
        for stage in stages
    ]
    return header, rows


def markdown(lines: list[dict[str, Any]], stages: list[StageSummary], facts: dict[str, Any]) -> str:
    """`report.md`."""
    parts = [f"# {facts['method']}", "", facts["caveat"], "", LEGEND, "", *_markdown_table(*score_table(lines))]
    parts += ["", "## Cost", "", *_markdown_table(*cost_table(stages))]
    if facts["notes"]:
        parts += ["", "## Data", "", *(f"- {note}" for note in facts["notes"])]
    return "\n".join(parts) + "\n"


def _markdown_table(header: list[str], rows: list[list[str]]) -> list[str]:
    divider = ["---"] * len(header)
    return ["| " + " | ".join(cells) + " |" for cells in (header, divider, *rows)]


def print_report(lines: list[dict[str, Any]], stages: list[StageSummary], facts: dict[str, Any], folder: Path) -> None:
    """The tables in the terminal."""
    console = Console(width=None if Console().is_terminal else 180)
    for title, (header, rows) in ((facts["method"], score_table(lines)), ("cost", cost_table(stages))):
        table = Table(title=title, title_justify="left")
        for index, name in enumerate(header):
            table.add_column(name, justify="left" if index < (3 if title != "cost" else 1) else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print(LEGEND)
    console.print(f"[bold]{facts['caveat']}[/bold]")
    console.print(f"written to {folder}")


def draw_figure(path: Path, lines: list[dict[str, Any]]) -> None:
    """Bars with intervals, a group per line of the table. Without matplotlib (the extra `plots`) nothing is drawn."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        path.unlink(missing_ok=True)
        print(f"{path.name} is not drawn: pip install 'hfcomp[plots]'")
        return
    models = list(lines[0]["models"])
    figure = Figure(figsize=(max(7.0, 0.8 * len(lines)), 4.2), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(models)
    for index, name in enumerate(models):
        shares = [line["models"][name] for line in lines]
        values = [100 * share["value"] for share in shares]
        errors = [
            [max(0.0, 100 * (share["value"] - share["low"])) for share in shares],
            [max(0.0, 100 * (share["high"] - share["value"])) for share in shares],
        ]
        places = [place + (index - (len(models) - 1) / 2) * width for place in range(len(lines))]
        axes.bar(places, values, width, yerr=errors, label=name, capsize=2)
    for place, line in enumerate(lines):
        chance = 100 * line["chance"]
        axes.hlines(chance, place - 0.45, place + 0.45, colors="black", linestyles="dotted", linewidth=1)
    axes.set_xticks(range(len(lines)))
    axes.set_xticklabels(
        [f"{line['subset']}\n{line['metric']}" for line in lines], rotation=45, ha="right", fontsize=7
    )
    axes.set_ylabel("percent (dotted: chance)")
    axes.set_ylim(0, 100)
    axes.set_xlim(-0.6, len(lines) - 0.4)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(models), frameon=False)
    figure.savefig(path, dpi=150)
