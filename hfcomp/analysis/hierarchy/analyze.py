"""`hfcomp analyze magic`: the page of a set's hierarchy, and its tables."""

from __future__ import annotations

from pathlib import Path

from hfcomp.analysis.hierarchy.members import read_members
from hfcomp.analysis.hierarchy.options import HierarchyOptions
from hfcomp.analysis.hierarchy.page import concepts_page
from hfcomp.generation.magic.hierarchy import hierarchy_tables, read_hierarchy
from hfcomp.reporting.report import Report, Section, Table
from hfcomp.reporting.saving import render_markdown
from hfcomp.reporting.terminal import render_terminal
from hfcomp.writing import check_free_folder, write_text

PAGE, REPORT = "concepts.html", "report.md"


def analyze_hierarchy(folder: Path, options: HierarchyOptions, *, progress: bool = False) -> Path:
    """Writes the page and the report of a set, prints the tables, and returns the page's path.

    Raises:
        ValueError: for a folder without a finished set of `hfcomp build magic`, or an output folder that has a page.
    """
    check_free_folder(options.output_dir, options.overwrite, written=[PAGE, REPORT])
    page = options.output_dir / PAGE
    hierarchy = read_hierarchy(folder)
    members = read_members(folder, thumbnails=options.thumbnails, progress=progress)
    rows = [[split, f"{sum(one.rows[split] for one in members.concepts.values()):,}"] for split in ("train", "test")]
    rows.append(["images that cannot be decoded", f"{members.undecoded:,}"])
    tables = [*hierarchy_tables(hierarchy, members.pairs), Table("Rows of the split by image", ["", "rows"], rows)]
    title = f"Concepts of {folder.resolve().name}"
    report = Report(title, sections=[Section("", tables)])
    options.output_dir.mkdir(parents=True, exist_ok=True)
    write_text(page, concepts_page(hierarchy, members, tables, title=title))
    write_text(options.output_dir / REPORT, render_markdown(report))
    render_terminal(report)
    return page
