"""A result published: its JSON file, its report in Markdown with figures and pictures, and in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hfcomp.reporting.figures import Figure, draw
from hfcomp.reporting.markdown import render_markdown
from hfcomp.reporting.report import Report
from hfcomp.reporting.results import write_results
from hfcomp.reporting.terminal import render_terminal
from hfcomp.writing import write_bytes, write_text

REPORT_FILE = "report.md"


def publish(report: Callable[..., Report], contents: Mapping[str, Any], path: Path, *, shown: bool = True) -> None:
    """Writes a result and its report, and prints what of it fits a terminal.

    Args:
        report: makes the report, `brief` for the terminal or whole; called when the result is written.
        contents: of the JSON file.
        path: of that file; the report's files lie beside it.
        shown: whether the report is printed.
    """
    write_results(path, contents)
    save_report(report(brief=False), path.parent)
    if shown:
        render_terminal(report(brief=True), folder=path.parent)


def save_report(report: Report, folder: Path, say: Callable[[str], None] = print) -> None:
    """Writes `report.md`, the figures and the pictures, each whole or not at all.

    Without matplotlib (the extra `plots`) figures are not drawn; those of an earlier run
    are removed, as those that would be empty.

    Args:
        report: what is written.
        folder: made where it is missing.
        say: receives a line about figures that are not drawn.
    """
    there = []
    for image in report.images():
        if isinstance(image, Figure) and not image.filled():
            (folder / image.name).unlink(missing_ok=True)
            continue
        try:
            content = draw(image) if isinstance(image, Figure) else image.content
        except ImportError:
            (folder / image.name).unlink(missing_ok=True)
            say(f"{image.name} is not drawn: pip install 'hfcomp[plots]'")
            continue
        write_bytes(folder / image.name, content)
        there.append(image.name)
    write_text(folder / REPORT_FILE, render_markdown(report, there))
