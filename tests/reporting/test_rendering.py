"""Reports in the terminal, as Markdown and as files: whatever the names, whatever is missing."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from hfcomp.reporting import tables
from hfcomp.reporting.figures import Figure, Points
from hfcomp.reporting.report import Lines, Picture, Report, Section, Table
from hfcomp.reporting.saving import render_markdown, save_report
from hfcomp.reporting.tables import sections_of_lines
from hfcomp.reporting.terminal import WIDTH, render_terminal, wrap

LONG = [
    "openai/clip-vit-base-patch32",
    "runs/slipform-with-a-long-name/method",
    "A_model_named_in_one_unbrokenrunoflettersofmorethananyonewouldtype",
    "a model whose name is a sentence, with a comma",
    *(f"organization{number}/some-model-name-{number}-large" for number in range(16)),
]
ODD = "a|b\n<img src=x> $x$ [bold]_*"


def line(models: list[str], **changes: Any) -> dict[str, Any]:
    """Values that fall by a percentage point from model to model, compared to the first."""
    values = {name: 1.0 - 0.01 * index for index, name in enumerate(models)}
    models_of = {
        name: {"value": value, "low": value - 0.05, "high": value + 0.05, "ties": 0, "tie_rate": 0.0}
        for name, value in values.items()
    }
    change = {"low": -0.1, "high": 0.01, "p": 0.2, "q": 0.3, "smallest": 0.1234}
    minus = {
        name: {models[0]: {"value": value - 1.0, **change}} for name, value in values.items() if name != models[0]
    }
    about = {"benchmark": "SugarCrepe", "subset": "all", "metric": "caption choice", "aspect": "composition"}
    facts = {"chance": 0.5, "items": 1000, "images": 900, "models": models_of, "differences": minus}
    return {**about, **facts, **changes}


def report_of(models: list[str], *, brief: bool = True, **changes: Any) -> Report:
    lines = [line(models, subset=subset, **changes) for subset in ("add_att", "swap_obj")]
    lines += [line(models, benchmark="COCO", metric="text-to-image recall@1", aspect="general")]
    pairs = [(name, models[0]) for name in models[1:]]
    reference = models[0] if pairs else None
    sections = sections_of_lines(lines, lambda _: pairs, reference=reference, brief=brief)
    return Report("A title", sections=sections, legend=[tables.legend(lines, brief=brief)])


def printed_report(report: Report) -> str:
    console = Console(file=io.StringIO(), width=WIDTH)
    render_terminal(report, console)
    return console.file.getvalue()


@pytest.mark.parametrize("number", [1, 2, 6, 20])
def test_tables_of_long_names_fit_80_columns_with_every_name_and_every_number_whole(number):
    text = printed_report(report_of(LONG[:number]))
    assert max(map(len, text.splitlines())) <= WIDTH and "…" not in text
    for index, name in enumerate(LONG[:number]):
        assert all(piece in text for piece in re.split(r"[-/_ ]", name) if len(piece) < 12)
        assert text.count(f" {100 - index:.1f}") >= 3  # on every line
    assert text.count("[-10.0, +1.0]") == 3 * (number - 1)


@pytest.mark.parametrize("names", [["a", "b", "c"], LONG[:6]])
def test_models_are_rows_only_where_their_names_do_not_fit(names):
    text = printed_report(report_of(names))
    assert bool(re.search(r"^model +add_att", text, re.M)) == (names != ["a", "b", "c"])


def test_numbers_of_a_table_too_wide_are_continued_below_with_their_names():
    rows = [[f"run {row}", *(f"{1_000_000 * column + row:,}" for column in range(1, 13))] for row in range(3)]
    text = printed_report(Report("r", sections=[Section("s", [Table("", ["run", *map(str, range(1, 13))], rows)])]))
    assert max(map(len, text.splitlines())) <= WIDTH and "(continued)" in text
    assert all(cell in text for row in rows for cell in row)
    assert text.count("run 2") == text.count("(continued)") + 1


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("clip-vit-base", 9, ["clip-vit-", "base"]),
        ("a_long/name here", 8, ["a_long/", "name", "here"]),
        ("unbroken", 3, ["unb", "rok", "en"]),
        ("-1 to 1", 4, ["-1", "to 1"]),
        ("", 5, [""]),
    ],
)
def test_names_are_broken_at_their_joints(text, width, lines):
    assert wrap(text, width) == lines


def test_odd_characters_show_as_they_are_and_break_no_table():
    report = report_of([ODD, "b"], benchmark=ODD)
    report = Report(ODD, ODD, [ODD], [*report.sections, Section(ODD, [Lines([ODD])])], [ODD], [ODD])
    assert "[bold]_*" in printed_report(report) and "$x$" in printed_report(report)
    text = render_markdown(report)
    assert "<img" not in text and "&lt;img" in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({row.count("|") for row in block.splitlines()}) == 1


def test_no_text_controls_a_terminal_or_turns_the_words_around_it():
    turning = "a \x1b[2J\u202eb"
    parts = [Table(turning, [turning, turning], [[turning, turning]]), Lines([turning], turning)]
    report = Report(turning, turning, [turning], [Section(turning, parts)], [turning], closing={turning: turning})
    for text in (printed_report(report), render_markdown(report)):
        assert not {"\x1b", "\u202e"} & set(text) and text.count("\\x1b[2J\\u202eb") >= 7


def test_nothing_empty_is_shown():
    empty = [Table("no rows", ["a"], []), Lines([], "no lines"), Figure("f.png", "no panel", [])]
    report = Report("r", sections=[Section("empty", empty), Section("full", [*empty, Lines(["text"], "lines")])])
    for text in (printed_report(report), render_markdown(report, ["f.png"])):
        assert "no rows" not in text and "no lines" not in text and "empty" not in text and "no panel" not in text
        assert "full" in text and "text" in text and "Notes" not in text


def test_ties_are_shown_by_benchmark_and_model():
    tied = line(["a", "b"])
    tied["models"]["b"].update(ties=25, tie_rate=0.025)
    table = tables.ties([tied, line(["a", "b"])], rule="half")
    assert table.rows == [["SugarCrepe caption choice", "0.0", "2.5 (25)"]] and "half right" in table.title
    assert "Ties are counted as half right." in tables.legend([tied], tie="half")
    assert tables.NO_TIES in tables.legend([line(["a"])])


def test_what_is_to_be_copied_is_not_broken():
    command = "hfcomp evaluate " + "a/very/long/path/of/a/model " * 5
    report = Report("r", verdict=["It is so. " * 20], sections=[Section("s", [Lines([command], whole=True)])])
    text = printed_report(Report(report.title, "", report.verdict, report.sections, closing={"next": command.strip()}))
    assert f"\n{command.strip()}\n" in re.sub(" +\n", "\n", text)
    assert f"\nnext: {command.strip()}\n" in text
    assert text.rstrip().endswith("It is so.") and text.index("It is so.") > text.index("next: ")


def test_a_report_and_its_images_are_written_and_stale_figures_removed(tmp_path: Path):
    content = io.BytesIO()
    Image.new("RGB", (2, 2)).save(content, "PNG")
    rows = [("row", {"a": {"value": 0.5}}, None)]
    figure = Figure("figure.png", "what is shown", [Points("panel", "percent", rows, ["a"])])
    shown = Report("r", sections=[Section("", [figure]), Section("s", [Picture("p.png", "a", content.getvalue())])])
    save_report(shown, tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "![what is shown](figure.png)" in text and "![a](p.png)" in text
    assert {path.name for path in tmp_path.iterdir()} == {"report.md", "report.html", "figure.png", "p.png"}
    empty = [Figure("figure.png", "", [Points("", "", [], ["a"])]), Picture("p.png", "a", b"")]
    save_report(Report("r", sections=[Section("", empty)]), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"report.md", "report.html"}
    assert "p.png" not in (tmp_path / "report.md").read_text(encoding="utf-8")
