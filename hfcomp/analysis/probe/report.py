"""Report of a probe: shares by batch size and margin, their meaning for a batch, and the paper's values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hfcomp.analysis.probe.options import ProbeOptions
from hfcomp.analysis.probe.shares import BOTH, Share
from hfcomp.metrics.units import Unit
from hfcomp.reporting.figures import Curves, Figure
from hfcomp.reporting.format import decimal, has_interval, with_interval
from hfcomp.reporting.made_tables import made_table
from hfcomp.reporting.report import Lines, Report, Section, Table, figure_title
from hfcomp.reporting.saving import publish
from hfcomp.statistics.results import RESULTS_FILE, package_versions, versions

FIGURE = "shares.png"
PAPER = {256: ("above", 0.32), 1024: ("below", 0.20)}
"""Bounds of the share without a margin by batch size, from the paper's text on its Figure 6."""
HOW = (
    "Share: percentage of the gradient magnitude on all negatives that falls on the hard negative, which is the sum "
    "of p_ii' divided by the sum of 1 - p_ii (Concrete Jungle, Eq. 3). Anchors are the images and texts of the "
    "doubled batch that have a hard negative. Each of {pairs:,} pairs is in one batch per size, except for the "
    "remainder; ± is half of a 95% interval over batches. The numbers describe the model as given, so the start of "
    "training."
)
FROM_PAPER = (
    "Paper: its Figure 6 without a margin, averaged over the training of ViT-B/32 on ConcreteBatch. According to its "
    "Figure 3, easy negatives get at least 72% at N = 1,024, so the hard negative gets at most 28%. The paper gives "
    "no number for margins."
)
SIGMOID = (
    "{name} was trained with a sigmoid loss. The share is computed for InfoNCE on its embeddings, with its scale and "
    "without its bias, as Cement trains it. In a sigmoid loss negatives do not compete, so no such share exists."
)


@dataclass(frozen=True)
class ProbeResults:
    """Shares of the gradient on the hard negative."""

    model: Mapping[str, Any]  # `name`, `path`, `weights`, `scale`, and whether it was trained with a `sigmoid` loss
    dataset: Mapping[str, Any]  # `path`, number of `pairs`, and the mean `adaptive_margin`, None without ratings
    shares: Sequence[Share]  # one entry per batch size, margin and direction, in the format of `pandas.DataFrame`
    smaller: Mapping[int, Share]  # shares without a margin in batches exp(largest margin) times smaller, by batch size
    options: ProbeOptions
    notes: Sequence[str]

    def save(self, folder: Path, *, shown: bool = True, command: str = "") -> None:
        """Writes `results.json`, `report.md`, `report.html` and `shares.png`. The caller holds the folder's lock."""
        config = {"command": command, "date": datetime.now(UTC).isoformat(timespec="seconds")}
        contents = {
            "models": {self.model["name"]: self.model},
            "options": {name: value for name, value in asdict(self.options).items() if name != "overwrite"},
            **{name: getattr(self, name) for name in ("dataset", "shares", "smaller", "notes")},
            "config": config,
            "versions": versions(),
        }
        report = probe_report(self, config, folder)
        publish(report, contents, folder / RESULTS_FILE, shown=shown)


def probe_report(results: ProbeResults, config: Mapping[str, Any], folder: Path) -> Callable[..., Report]:
    name, caveat = results.model["name"], results.options.caveat
    title = f"Share of the gradient on the hard negative: {name} on {results.dataset['path']}"

    def report(*, brief: bool) -> Report:
        sections = [
            Section("By batch size N and margin", [_share_table(results)]),
            Section("What it means for a batch", [Lines(list(_sentences(results)))]),
        ]
        if not brief:
            options = {key: value for key, value in asdict(results.options).items() if key != "overwrite"}
            made = made_table(config, results.model, options, package_versions())
            sections = [Section("", [_figure(results, figure_title(title, caveat))]), *sections]
            sections += [Section("By direction", [_direction_table(results)]), Section("How it was made", [made])]
        legend = [
            HOW.format(pairs=results.dataset["pairs"]),
            FROM_PAPER,
            *([SIGMOID.format(name=name)] if results.model["sigmoid"] else []),
        ]
        return Report(title, caveat, (), sections, legend, results.notes, {"written to": str(folder)})

    return report


def _shares_by_size(results: ProbeResults) -> dict[int, dict[str, Share]]:
    shares: dict[int, dict[str, Share]] = {}
    for share in results.shares:
        if share["direction"] == BOTH:
            shares.setdefault(share["batch_size"], {})[_margin_name(share, results)] = share
    return shares


def _margin_name(share: Share, results: ProbeResults) -> str:
    margin = share["margin"]
    if isinstance(margin, str):
        return f"{margin} (mean {results.dataset['adaptive_margin']:+.2f})"
    return f"margin {margin:g}" if margin else "no margin"


def _share_table(results: ProbeResults) -> Table:
    shares, factor = _shares_by_size(results), math.exp(results.options.margins[-1])
    rows = []
    for size, by_margin in shares.items():
        smaller = [_format_share(results.smaller.get(size))] if results.smaller else []
        paper = f"{PAPER[size][0]} {100 * PAPER[size][1]:g}" if size in PAPER else ""
        rows.append([f"{size:,}", *map(_format_share, by_margin.values()), *smaller, paper])
    last = [f"no margin, N / {factor:.1f}"] if results.smaller else []
    return Table("", ["N", *next(iter(shares.values())), *last, "paper, no margin"], rows)


def _format_share(share: Share | None) -> str:
    """Formats a share with half of its interval, such as `11.6 ±0.7`."""
    if share is None or not has_interval(share):
        return decimal(share and share["value"])
    return f"{decimal(share['value'])} ±{decimal((share['high'] - share['low']) / 2)}"


def _sentences(results: ProbeResults) -> Iterator[str]:
    """Yields a sentence per batch size on the share without and with the largest margin."""
    largest = results.options.margins[-1]
    for size, by_margin in _shares_by_size(results).items():
        value = {share["margin"]: share["value"] for share in by_margin.values()}
        without = 0.0 in value
        text = (
            f"At N = {size:,}, the hard negative gets {decimal(value[0.0 if without else largest])}% of the gradient "
        )
        text += "without a margin" if without else f"with a margin of {largest:g}"
        if largest > 0 and without:
            times = value[largest] / value[0.0]
            text += f"; a margin of {largest:g} raises it to {decimal(value[largest])}% ({times:.1f} times)"
            if share := results.smaller.get(size):
                factor = f"exp({largest:g}) = {math.exp(largest):.1f}"
                text += f", a batch {factor} times smaller (N = {share['batch_size']:,}) "
                text += f"to {decimal(share['value'])}%"
        yield f"{text}."


def _direction_table(results: ProbeResults) -> Table:
    rows = [
        [f"{share['batch_size']:,}", _margin_name(share, results), share["direction"], with_interval(share)]
        + [*(decimal(share[name], Unit(1, 3)) for name in ("hard", "easy")), f"{share['batches']:,}"]
        for share in results.shares
    ]
    return Table("", ["N", "margin", "direction", "share", "mean p_ii'", "mean sum p_ij", "batches"], rows, labels=3)


def _figure(results: ProbeResults, title: str) -> Figure:
    """Draws the share against batch size, with one curve per margin and the paper's bounds."""
    curves: dict[str, list[Any]] = {}
    for size, by_margin in _shares_by_size(results).items():
        for name, share in by_margin.items():
            curves.setdefault(name, []).append((size, share))
    for size, (side, bound) in PAPER.items():
        curves[f"paper: {side} {100 * bound:g}"] = [(size, {"value": bound, "low": None, "high": None})]
    axes = "batch size N (pairs)", "share on the hard negative, percent"
    caption = "Bands: 95% intervals over batches. Paper: bounds from its Figure 6, without a margin, during training."
    return Figure(FIGURE, title, [Curves("", axes, curves, logarithmic=True)], caption)
