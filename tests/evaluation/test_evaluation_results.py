"""What an evaluation shows: 80 columns, averages first, honest rows beside each other, everything in the files."""

from __future__ import annotations

import io
import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from rich.console import Console

from hfcomp.evaluation.evaluation_results import (
    EvaluationResults,
    evaluation_report,
    print_evaluation,
    write_evaluation,
)
from hfcomp.evaluation.stored import read_evaluation
from hfcomp.reporting.figures import draw
from hfcomp.reporting.lines import MOST_SUBSETS
from hfcomp.reporting.saving import render_markdown
from hfcomp.statistics.outcomes import write_table
from hfcomp.statistics.results import write_results
from tests.evaluation.evaluations import VERSIONS, benchmark_facts, crepe, outcomes, recall, report_of

LONG = (
    "openai/clip-vit-base-patch32",
    "a model of the_longest_name_that_anybody_has_given",
    "c",
    "d",
    "e",
    "f",
    "g",
    "h",
)
SKIPPED = [{"benchmark": "Winoground", "reason": "gated.", "how_to_fix": f"See https://example.org/{'w' * 70} first"}]


def printed_report(report, folder=None, width=80):
    console = Console(file=io.StringIO(), width=width)
    print_evaluation(report, folder, console)
    return console.file.getvalue()


def markdown(report):
    return render_markdown(evaluation_report(report, brief=False))


def block(text, title):
    """The lines below a title up to the next empty one."""
    return text[text.index(title) :].split("\n\n")[0].splitlines()


def row(text, title, label):
    (match,) = [line for line in block(text, title) if line.strip().startswith(label)]
    return match.strip().removeprefix(label).split()


def test_what_only_some_of_the_models_have_is_named(tmp_path):
    parts = [crepe(name, 0.5) for name in ("a", "b", "sys")] + [recall(name, 0.6) for name in ("a", "b")]
    parts.append(outcomes("sys", np.ones(4), metric="group"))
    whole = report_of(*parts)
    assert {line["benchmark"] for line in whole.lines} == {"SugarCrepe"}
    said = [
        "COCO: scored for a and b, not shown because sys has no scores for it. ",
        "SugarCrepe, group: scored for sys, not shown because a and b have no scores for it. ",
    ]
    for text in (printed_report(whole), markdown(whole)):
        assert all(phrase.strip() in " ".join(text.split()) for phrase in said)
    for _ in range(2):  # read again, a note stands once
        whole.save(tmp_path, page=None)
        _, stored = read_evaluation(tmp_path)
        assert [note.startswith(part) for note, part in zip(stored["notes"], said, strict=True)] == [True, True]
        whole = EvaluationResults.load(tmp_path)
    assert report_of(crepe("a", 0.5), crepe("b", 0.5))._every_note == []


@pytest.fixture
def two():
    return report_of(crepe("base", 0.5), crepe("tuned", 0.75), recall("base", 0.6), recall("tuned", 0.5))


def test_averages_come_first_and_every_value_has_its_interval_and_chance(two):
    text = printed_report(two)
    lines = block(text, "SugarCrepe: caption choice (percent; 40 items from 40 images")
    assert [line.split("  ")[0] for line in lines[3:]] == ["macro of 2", "micro", "add", "swap"]
    cells = row(text, "SugarCrepe: caption choice", "macro of 2")
    assert cells[:3] == ["50.0", "80", "50.0"] and cells[5] == "75.0"
    low, high = float(cells[3].strip("[,")), float(cells[4].strip("]"))
    share = two.lines[0]["models"]["base"]
    assert (low, high) == pytest.approx((100 * share["low"], 100 * share["high"]), abs=0.051)


def test_gain_stands_beside_forgetting_one_row_a_benchmark(two):
    text = printed_report(two)
    assert row(text, "minus base", "SugarCrepe macro of 2 caption choice") == ["+25.0"]
    assert row(text, "minus base", "COCO text-to-image recall@1") == ["-10.0"]
    alone = printed_report(report_of(crepe("base", 0.5), crepe("tuned", 0.75)))
    assert "Gain beside" not in alone and "tuned minus base" in alone


def test_differences_have_interval_p_and_what_the_set_could_show(two):
    text = printed_report(two)
    points, low, high, p, q, smallest = row(text, "tuned minus base: SugarCrepe", "macro of 2")
    known = two.lines[0]["differences"]["tuned"]["base"]
    assert points == "+25.0" and float(smallest) == pytest.approx(100 * known["smallest"], abs=0.051)
    assert float(p.strip("<")) == pytest.approx(known["p"], abs=0.0011)
    assert float(q.strip("<")) == pytest.approx(known["q"], abs=0.0011)
    assert float(low.strip("[,")) < 25 < float(high.strip("]"))
    assert not [line for line in block(text, "tuned minus base") if line.startswith("add")]


def test_the_reference_is_the_first_model_or_the_one_asked_for():
    tables = [crepe(name, share) for name, share in (("a", 0.4), ("b", 0.5), ("c", 0.6))]
    assert row(printed_report(report_of(*tables)), "minus a", "macro of 2")[:2] == ["b", "+10.0"]
    text = printed_report(report_of(*tables, reference="c"))
    assert row(text, "minus c", "macro of 2")[:2] == ["a", "-20.0"]
    assert "minus" not in printed_report(report_of(crepe("a", 0.4)))


@pytest.mark.parametrize("models", [1, 2, 3, 6, 8])
def test_tables_fit_80_columns_and_name_every_model(models):
    tables = [
        outcomes(name, np.arange(400) >= index, benchmark="A benchmark of very many words " * 3, subset=subset)
        for index, name in enumerate(LONG[:models])
        for subset in ("a_subset_with_an_unusually_long_name_of_its_own_and_more", "b")
    ]
    tables += [recall(name, 1.0) for name in LONG[:models]]
    text = printed_report(report_of(*tables, averages={}))
    assert "…" not in text and "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    values = text[text.index("Composition") : text.index("General abilities")]
    for name in LONG[:models]:
        assert all(part in values for part in re.split(r"[-/_ ]", name))
    assert " ".join(text.split()).count(" 100.0") > models  # no number is cut


def test_of_many_subsets_the_terminal_shows_the_averages_and_markdown_all():
    relations = [f"relation {number:02}" for number in range(MOST_SUBSETS + 3)]
    tables = [outcomes("a", np.arange(10) < 5, subset=name) for name in relations]
    report = report_of(*tables)
    text = printed_report(report)
    assert "relation" not in text and f"{len(relations)} more in report.md" in " ".join(text.split())
    assert "micro" in text
    assert all(f"| {name} |" in markdown(report) for name in relations)
    bare = printed_report(report_of(*tables, averages={}))
    assert "relation 11" in bare and "relation 12" not in bare and "3 more in report.md" in " ".join(bare.split())


def test_metrics_that_are_no_shares_are_shown_in_their_own_unit():
    names = {"reciprocal rank": "0.450", "mAP": "45.0", "rank correlation": "0.450", "accuracy": "45.0"}
    tables = [outcomes("a", np.linspace(0.3, 0.6, 40), benchmark=name, metric=name) for name in names]
    text = printed_report(report_of(*tables))
    for name, value in names.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} {name}")]
        assert f" {value} [" in line
        assert (f"{name} (" in line) == (name != "accuracy")
    assert "| mAP mAP (x 100) |" in markdown(report_of(*tables))


@pytest.mark.parametrize(("rule", "said"), [("wrong", "counted as wrong"), ("half", "counted as half right")])
def test_ties_are_shown_with_their_rule(rule, said):
    tied = crepe("a", 0.5)
    tied["tie"] = (tied["value"] == 0) & (np.arange(len(tied)) % 40 < 8)
    share = tied["tie"].groupby(tied["subset"]).mean().mean()
    report = report_of(tied, tie=rule)
    text = printed_report(report)
    assert f"Ties\n{said}" in text and f"Ties are {said}." in " ".join(text.split())
    assert row(text, "Ties\n", "SugarCrepe macro of 2 caption choice") == [f"{100 * share:.1f}", f"({tied.tie.sum()})"]
    assert row(text, "Composition", "macro of 2")[2] == f"{50 + (50 * share if rule == 'half' else 0):.1f}"
    assert "There are no ties" in printed_report(report_of(crepe("a", 0.5)))


def test_what_was_skipped_or_is_missing_is_said_and_can_be_copied():
    table = crepe("a", 0.5)
    table = table[table["subset"] == "add"]
    report = report_of(table, skipped=SKIPPED, notes=["3 texts were cut"])
    for text in (printed_report(report), markdown(report)):
        assert "Winoground" in text and SKIPPED[0]["how_to_fix"] in text and "3 texts were cut" in text
        assert re.search(r"SugarCrepe.*macro of 2", text)
    assert re.search(r"SugarCrepe.*caption choice.*macro of 2.*swap", markdown(report))


def test_an_evaluation_of_nothing_but_skipped_benchmarks_is_reported(tmp_path):
    empty = pd.concat([crepe("a", 0.5)]).iloc[:0]
    report = report_of(empty, models={"a": {"path": "a"}}, skipped=SKIPPED)
    assert "Winoground" in printed_report(report) and "Winoground" in markdown(report)
    write_evaluation(tmp_path, report)
    assert not (tmp_path / "figure.png").exists()


def test_markdown_says_what_was_read_and_left_out_and_what_it_cost():
    report = report_of(
        crepe("a", 0.5), benchmarks=benchmark_facts(), seconds={"a": {"SugarCrepe": 12.34}}, versions={"torch": "9.9"}
    )
    text = render_markdown(evaluation_report(report, brief=False), ["figure.png"])
    assert "| SugarCrepe | somebody/crepe at aaaaaaaaaaaa; images from coco | 80 | 1 |" in text
    assert "| SugarCrepe | image missing | 3 |" in text
    assert "| SugarCrepe | 12.3 |" in text and "| torch | 9.9 |" in text and "| a | models/a |" in text
    assert "](figure.png)" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_names_cannot_break_a_table_of_markdown():
    text = markdown(report_of(outcomes("x|y\n<b>", [1.0, 0.0], benchmark="a|b\n# <img src=x>")))
    (line,) = [line for line in text.splitlines() if line.startswith("| a&#124;b") and "50.0" in line]
    assert line.count("|") == 4 and "<img" not in text and "<b>" not in text


def test_files_are_written_and_read_back(tmp_path):
    tables = [crepe("a", 0.5), crepe("b", 0.6)]
    items = pd.concat(tables, ignore_index=True)
    report = report_of(*tables, benchmarks=benchmark_facts(), skipped=SKIPPED)
    folder = tmp_path / "out" / "here"
    write_evaluation(folder, report)
    names = {path.name for path in folder.iterdir()}
    assert names == {"items.parquet", "results.json", "report.md", "report.html", "figure.png"}
    read, results = read_evaluation(folder)
    pd.testing.assert_frame_equal(read.table[items.columns], items, check_dtype=False)
    assert results["tie_rule"] == "wrong" and results["reference"] == "a" and results["skipped"] == SKIPPED
    assert results["benchmarks"] == benchmark_facts() and results["versions"] == VERSIONS
    first = results["results"][0]
    assert (first["subset"], first["average"], first["groups"]) == ("macro of 2", True, [["add"], ["swap"]])
    assert "![" in (folder / "report.md").read_text(encoding="utf-8")


def test_folders_that_hold_no_evaluation_are_refused_with_a_fix(tmp_path):
    def assert_refused(match):
        with pytest.raises(ValueError, match=match):
            read_evaluation(tmp_path)

    assert_refused(r"found no items\.parquet.*hfcomp evaluate")
    write_table(tmp_path / "items.parquet", crepe("a", 0.5).drop(columns="aspect"))
    assert_refused(r"found no results\.json")
    (tmp_path / "results.json").write_text("{")
    assert_refused(r"results\.json: not JSON")
    (tmp_path / "results.json").write_text(json.dumps({"schema_version": 99}))
    assert_refused("found schema_version 99")
    (tmp_path / "results.json").write_text("[]")
    assert_refused("found no schema_version")
    write_results(tmp_path / "results.json", {"versions": VERSIONS, "results": []})
    assert_refused(r"items\.parquet: .*\['aspect'\]")
    (tmp_path / "items.parquet").write_bytes(b"none")
    assert_refused(r"items\.parquet: not a Parquet file")


@pytest.mark.parametrize(("models", "benchmarks"), [(1, 1), (6, 8)])
def test_the_figure_has_room_for_every_model_in_every_row(tmp_path, models, benchmarks):
    values = [np.arange(20) < 10 + index for index in range(models)]
    tables = [
        outcomes(name, own, benchmark=f"benchmark {number}")
        for name, own in zip(LONG, values, strict=False)
        for number in range(benchmarks)
    ]
    (tmp_path / "figure.png").write_bytes(draw(next(evaluation_report(report_of(*tables), brief=True).images())))
    with Image.open(tmp_path / "figure.png") as picture:
        assert picture.height >= 10 * models * benchmarks and picture.width >= 900  # 10 dots: a marker
    assert [path.name for path in tmp_path.iterdir()] == ["figure.png"]


def test_without_matplotlib_the_rest_is_written_and_a_line_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    table = crepe("a", 0.5)
    write_evaluation(tmp_path, report_of(table))
    assert (
        capsys.readouterr().out
        == "figure.png was not drawn because matplotlib is missing: pip install 'hfcomp[plots]'\n"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"items.parquet", "results.json", "report.md", "report.html"}
    assert "figure.png" not in (tmp_path / "report.md").read_text(encoding="utf-8")
