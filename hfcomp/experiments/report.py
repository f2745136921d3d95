"""From the lines of results to `results.json`, `report.md`, a figure, the cards, and the tables in the terminal."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from hfcomp.evaluation import results as files
from hfcomp.evaluation.statistics import Outcomes
from hfcomp.experiments.comparison import Line, judgement
from hfcomp.experiments.figure import draw_figure
from hfcomp.experiments.markdown import markdown
from hfcomp.experiments.stages import StageSummary
from hfcomp.experiments.tables import LEGEND, NO_TIES, STAR, has_ties, legend_of_models, short_sheets, terminal_table
from hfcomp.hub.cards import write_model_card
from hfcomp.writing import write_text

TERMINAL_WIDTH = 80


def write_results(
    folder: Path,
    *,
    items: pd.DataFrame,
    lines: list[Line],
    stages: list[StageSummary],
    facts: dict[str, Any],
) -> None:
    """Writes `items.parquet`, `results.json`, `report.md`, `figure.png` where matplotlib is installed, and the cards.

    Args:
        folder: of the run, with `method/` in it.
        items: outcomes of all models per item.
        lines: as `hfcomp.evaluation.results` makes them.
        stages: what each training run cost.
        facts: `method`, `caveat`, `notes`, `config`, `hfcomp_version` and where known `general_average`; all of them
            go into `results.json`.
    """
    Outcomes(items).write(folder / files.ITEMS_FILE)
    files.write_results(
        folder / files.RESULTS_FILE, {**facts, "stages": [asdict(s) for s in stages], "results": lines}
    )
    report = markdown(lines, stages, facts)
    write_text(folder / "report.md", report)
    draw_figure(folder / "figure.png", lines)
    write_model_card(folder, report=report, facts=facts, lines=lines)


def print_report(
    lines: list[Line],
    stages: list[StageSummary],
    facts: dict[str, Any],
    folder: Path,
    console: Console | None = None,
) -> None:
    """The tables in the terminal, in 80 columns, whether or not it has colours.

    Args:
        lines: as `hfcomp.evaluation.results` makes them.
        stages: what each training run cost.
        facts: `method`, `caveat` and where known `general_average`.
        folder: where the results lie.
        console: by default standard output.
    """
    if console is None:
        console = Console(width=max(TERMINAL_WIDTH, Console().width))

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style=style))

    say(f"\n{facts['method']}", "bold")
    for sentence in (facts["caveat"], *judgement(lines)):
        say(sentence, "bold")
    for sheet in short_sheets(lines, stages, facts.get("general_average")):
        console.print()
        say(sheet.title, "bold")
        console.print(terminal_table(sheet))
    console.print()
    if not has_ties(lines):
        say(NO_TIES)
    say(f"{STAR} {LEGEND}")
    for name, meaning in legend_of_models(lines):
        say(f"{name}: {meaning}")
    console.print(Text(f"written to {folder}"), soft_wrap=True)  # a path that is broken over lines cannot be copied
