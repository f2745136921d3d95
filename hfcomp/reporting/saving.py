"""A report's files: its Markdown, figures and pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hfcomp.reporting.figures import Figure, draw
from hfcomp.reporting.markdown import render_markdown
from hfcomp.reporting.report import Report
from hfcomp.writing import write_bytes, write_text

REPORT_FILE = "report.md"


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
