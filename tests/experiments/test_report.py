"""The report of a run: whole numbers in 80 columns, sentences that a reader must not miss, full tables, the figure."""

from __future__ import annotations

import builtins
import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image
from rich.console import Console

from hfcomp.evaluation.statistics import Outcomes, items_hash
from hfcomp.experiments.comparison import headline, judgement
from hfcomp.experiments.figure import draw_figure
from hfcomp.experiments.report import markdown, print_report, write_results
from tests.experiments.evaluations import crepe
from tests.experiments.lines import GENERAL, GROUP, MODELS, all_lines, average_of, facts, line, stages, without

EXTREME = (1.0, 0.0, 1.0, 1.0, 1.0, 1.0)


def printed(lines: list[dict], width: int = 80, **changes) -> str:
    console = Console(file=io.StringIO(), width=width)
    assert not console.is_terminal
    print_report(lines, stages(), facts(**changes), Path("runs/slipform"), console)
    return console.file.getvalue()


def table(text: str, title: str) -> dict[str, list[str]]:
    """The rows below a title, by their first word, up to the next blank line."""
    block = text[text.index(f"{title}") :].split("\n\n")[0].splitlines()
    rule = next(index for index, row in enumerate(block) if row.startswith("─"))
    return {row.split()[0]: row.split()[1:] for row in block[rule + 1 :]}


@pytest.mark.parametrize("extreme", [False, True])
def test_every_number_is_whole_in_80_columns_without_colour(extreme):
    lines = all_lines()
    if extreme:
        lines += [line("all", "text-to-image recall@1", EXTREME, general=True, benchmark="Flickr30k")]
    text = printed(lines)
    assert "\x1b" not in text and "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    rows = table(text, "composition: sandbox, group")
    for kind, shares in GROUP.items():
        chance, *cells = rows[kind]
        assert chance == "16.7"
        assert [cell.rstrip("*") for cell in cells] == [f"{100 * share:.1f}" for share in shares]
    costs = table(text, "\ncost\n")
    assert costs["same-batch"] == ["12,500", "12,800,000", "25,600,000", "18,432.2", "1,152.7"]
    assert table(text, "cost, continued")["equal-images"] == ["39.52", "GiB", "RAM", "0.6422", "1.23", "%"]
    differences = re.findall(r"^ *(?:\w+ +)?same-batch +([+-]\d+\.\d) +\[([+-]\d+\.\d), ([+-]\d+\.\d)\]", text, re.M)
    assert ("+43.0", "+40.8", "+45.2") in differences  # swap_att


def test_a_wider_terminal_shows_the_same_tables():
    def tables(width: int) -> str:
        text = printed(all_lines(), width)
        return text[text.index("gain beside forgetting") : text.index("No ties")]

    assert tables(200) == tables(80)


def test_long_names_are_folded_and_numbers_are_not():
    subset, method = "a_subset_with_an_unusually_long_name_of_its_own", "A-method with an unusually-long name"
    lines = [line(subset, "group", GROUP["swap_att"], benchmark="A benchmark of many words" * 2)]
    for part in (lines[0]["models"], lines[0]["differences"]):
        part[method] = part.pop("Slipform")
    text = printed(lines, method=method, general_average=None)
    assert max(map(len, text.splitlines())) <= 80
    assert table(text, "composition: A benchmark")["group"][1:] == ["3.5", "21.8", "51.0", "31.0", "25.0", "94.0*"]
    assert "+43.0  [+40.8, +45.2]  <0.001  <0.001" in text


def test_the_highest_of_a_line_is_starred_and_equals_share_the_star():
    rows = table(printed(all_lines()), "composition: sandbox, group")
    assert [cell for cell in rows["swap_att"] if cell.endswith("*")] == ["94.0*"]
    assert [cell for cell in rows["replace_att"] if cell.endswith("*")] == ["98.0*", "98.0*"]


def test_gain_stands_beside_forgetting_for_every_model():
    rows = table(printed(all_lines()), "gain beside forgetting")
    assert list(rows) == list(MODELS)
    gain = sum(row[5] - row[0] for row in GROUP.values()) / len(GROUP)
    lost = sum(row[2] - row[0] for row in GENERAL.values()) / len(GENERAL)
    assert rows["Slipform"][1] == f"{100 * gain:+.1f}"
    assert rows["same-batch"][5] == f"{100 * lost:+.1f}"


def changed(kind_share: float) -> list[dict]:
    """Slipform at a share on every group line, where same-batch has 0.5."""
    lines = [line(kind, "group", (0.1, 0.2, 0.5, 0.3, 0.3, kind_share)) for kind in GROUP]
    return [average_of(lines, primary="sandbox: average group"), *lines]


@pytest.mark.parametrize(
    ("share", "sentence"),
    [
        (0.9, "Slipform beats same-batch here: +40.0 ["),
        (
            0.505,
            "Slipform does not beat same-batch here: +0.5 [-1.7, +2.7] points on sandbox: average group",
        ),
        (0.2, "Slipform does not beat same-batch here, it is below it: -30.0"),
    ],
)
def test_the_verdict_against_the_same_batch_stands_above_the_tables(share, sentence):
    lines = changed(share)
    assert any(said.startswith(sentence) for said in judgement(lines))
    for text in (printed(lines), markdown(lines, stages(), facts())):
        text = " ".join(text.replace("*", "").split())
        assert sentence in text
        assert text.index(sentence) < text.lower().index("gain beside forgetting")


@pytest.mark.parametrize(
    ("p", "sentence"),
    [
        (0.0004, "Slipform beats same-batch here: +40.0 points on sandbox: average group (primary endpoint, p <0.001"),
        (0.4, "Slipform does not beat same-batch here: +40.0 points on"),
        (None, "Whether Slipform beats same-batch is not known here: +40.0 points on"),
    ],
)
def test_a_verdict_without_an_interval_goes_by_p(p, sentence):
    """A subset of a single image leaves the average without an interval."""
    lines = changed(0.9)
    lines[0]["differences"]["Slipform"]["same-batch"].update(low=None, high=None, p=p)
    (said,) = judgement(lines)
    assert said.startswith(sentence) and said.endswith(", no interval).")


def test_what_was_forgotten_without_an_interval_goes_by_p():
    lines = [line("all", name, (0.6, 0.6, 0.6, 0.6, 0.6, 0.5), general=True) for name in ("recall@1", "recall@5")]
    for entry, p in zip(lines, (0.001, 0.3), strict=True):
        entry["differences"]["Slipform"]["base"].update(low=None, high=None, p=p)
    (said,) = judgement(lines)
    assert said == "Slipform forgets, against base in points: sandbox retrieval recall@1 -10.0."
    rows = table(printed(lines, general_average=None), "forgetting: points against base")
    assert rows["recall@1"][-1] == "-10.0" and rows["recall@5"][-1] == "-10.0~"


def test_a_primary_endpoint_that_is_no_share_has_one_unit_everywhere():
    tau = line("all", "kendall tau", (0.4, 0.45, 0.5, 0.42, 0.43, 0.55), benchmark="H", primary="H: kendall tau")
    rank = line("all", "reciprocal rank", (0.6, 0.6, 0.6, 0.6, 0.6, 0.5), benchmark="R", general=True)
    won, forgotten = judgement([tau, rank])
    assert won.startswith("Slipform beats same-batch here: +0.050 [+0.028, +0.072] (-1 to 1, no share) on H: kendall")
    assert forgotten.endswith("base in points: R reciprocal rank -0.100 [-0.122, -0.078] (0 to 1, no share).")
    text = printed([tau, rank], general_average=None)
    assert table(text, "gain beside forgetting")["Slipform"][:3] == ["0.550", "+0.150", "[+0.128,"]
    assert "0.550*" in text and "55.0" not in text and "+0.050  [+0.028, +0.072]" in text and "+5.0" not in text
    assert re.search(r"-0\.100 +\[-0\.122, -0\.078\]", text) and "-10.0" not in text
    for sheet in (text, markdown([tau, rank], stages(), facts(general_average=None))):
        assert "-1 to 1, no share" in sheet and "0 to 1, no share" in sheet
        assert "0.550" in sheet and "55.0" not in sheet and "+5.0" not in sheet


def test_a_mean_of_metrics_is_a_row_of_its_benchmark_s_one_table():
    kinds = [line("all", f"level {level} image choice of 2", GROUP["swap_att"], benchmark="H") for level in (1, 2, 3)]
    keys = [[entry["benchmark"], entry["subset"], entry["metric"]] for entry in kinds]
    mean = {"lines": keys, "metric": "level * image choice of 2", "subset": "average of 3 lines"}
    primary = average_of(kinds, primary="H: level * image choice of 2") | mean
    text = printed([primary, *kinds], general_average=None)
    assert text.count("composition: H") == 1
    block = text[text.index("composition: H") :].split("\n\n")[0]
    assert "level 3 image choice" in block and "(primary)" in block


def test_a_run_without_the_same_batch_control_says_so():
    (sentence,) = judgement(without(changed(0.9), "same-batch"))
    assert "no same-batch control" in sentence


def test_what_was_forgotten_is_said_and_what_only_seems_so_is_not():
    lines = [line("all", "text-to-image recall@1", (0.6, 0.6, 0.6, 0.6, 0.6, lost), general=True, benchmark=name)
             for name, lost in (("COCO", 0.5), ("Flickr", 0.59))]  # fmt: skip
    (said,) = [sentence for sentence in judgement(changed(0.9) + lines) if "forgets" in sentence]
    assert "COCO text-to-image recall@1 -10.0 [-12.2, -7.8]" in said and "Flickr" not in said
    text = printed(changed(0.9) + lines)
    rows = table(text, "forgetting: points against base")
    assert "-10.0" in " ".join(rows["text"]) or "-10.0" in text
    assert re.search(r"-1\.0~", text)


def test_the_verdict_and_the_table_under_it_are_of_one_number():
    """Lines of "novel" repeat three kinds: they must not move a verdict whose table says otherwise."""
    lines = changed(0.45)
    novel = [line(kind, "group", (0.1, 0.2, 0.1, 0.3, 0.3, 0.99), benchmark="sandbox novel") for kind in GROUP]
    (sentence,) = judgement([*lines, average_of(novel), *novel])
    assert sentence.startswith("Slipform does not beat same-batch here, it is below it: -5.0 [-7.2, -2.8]")
    assert sentence.endswith("points on sandbox: average group (primary endpoint, p <0.001).")
    text = printed([*lines, average_of(novel), *novel])
    block = text[text.index("what Slipform adds") :].split("\n\n")[0]
    row = next(row for row in block[block.index("(primary)") :].splitlines() if "same-batch" in row)
    assert "-5.0" in row and "[-7.2, -2.8]" in row


def test_nothing_below_chance_is_called_the_best():
    """Chance of a group is 1 in 6: 10 % is more than 2 % for sure, and still worth nothing."""
    lines = [line(kind, "group", (0.01, 0.02, 0.02, 0.03, 0.03, 0.1)) for kind in GROUP]
    lines.insert(0, average_of(lines, primary="sandbox: average group"))
    (sentence,) = judgement(lines)
    assert sentence.startswith("Slipform is above same-batch here, but both are below chance: +8.0 [+5.8, +10.2]")
    block = printed(lines)
    block = block[block.index("composition: sandbox, group") :].split("\n\n")[0]
    assert "10.0" in block and "*" not in block


def test_composition_without_group_lines_is_headed_by_all_of_its_lines():
    lines = all_lines()
    assert {part["metric"] for part in headline(lines)} == {"group"}
    others = [part for part in lines if part["metric"] != "group"]
    assert len(headline(others)) == len(GROUP)


@pytest.mark.parametrize(
    "removed",
    [(), ("same-batch", "shuffled", "equal-images"), MODELS[1:5], MODELS[1:]],
    ids=["all", "plain", "no control", "base alone"],
)
@pytest.mark.parametrize("aspects", [("composition", "general"), ("composition",), ("general",)])
def test_reports_of_fewer_models_and_aspects_are_made_too(tmp_path, removed, aspects):
    lines = without([part for part in all_lines() if part["aspect"] in aspects], *removed)
    text = printed(lines)
    tables = text[text.index("gain beside forgetting") : text.index("\ncost\n")]
    assert not [name for name in removed if re.search(rf"\b{name}\b", tables) and name != "Slipform"]
    assert all(re.search(rf"^{name} ", tables, re.M) for name in lines[0]["models"])
    assert "## Cost" in markdown(lines, stages(), facts())
    draw_figure(tmp_path / "figure.png", lines)
    assert (tmp_path / "figure.png").is_file() == (len(lines[0]["models"]) > 1 or "composition" in aspects)


def unknown(entry: dict) -> dict:
    """What a file holds of a line with one image: null for NaN."""
    for share in [*entry["models"].values(), *(d for part in entry["differences"].values() for d in part.values())]:
        share.update(low=None, high=None, **({"p": None, "smallest": None} if "p" in share else {}))
    return {**entry, "chance": None}


def test_a_line_without_interval_or_chance_is_shown_without(tmp_path):
    lines = [unknown(part) for part in all_lines()]
    for text in (printed(lines), markdown(lines, stages(), facts())):
        assert "nan" not in text.lower() and "94.0" in text and "None" not in text
    draw_figure(tmp_path / "figure.png", lines)
    assert (tmp_path / "figure.png").is_file()


def test_ties_are_shown_where_there_are_any_and_denied_where_not():
    lines = all_lines()
    assert "No ties" in printed(lines) and "No ties" in markdown(lines, stages(), facts())
    lines[0]["models"]["plain"].update(ties=6, tie_rate=0.015)
    for text in (printed(lines), markdown(lines, stages(), facts())):
        assert "No ties" not in text and "ties, counted as wrong" in text.lower()
    assert "| sandbox | swap_att | caption choice | 0 (0.0 %) | 6 (1.5 %) |" in markdown(lines, stages(), facts())


def test_many_lines_are_set_against_one_reference_and_their_averages_against_all():
    lines = [line(f"kind {number}", "group", GROUP["swap_att"]) for number in range(12)]
    lines.append(average_of(lines))
    text = printed(lines)
    block = text[text.index("what Slipform adds") :].split("\n\n")[0]
    assert block.count("shuffled") == 1 and block.count("same-batch") == 13
    assert markdown(lines, stages(), facts()).count("+63.0 [+60.8, +65.2]") == 13  # minus shuffled


def test_markdown_holds_every_line_with_intervals_and_says_what_each_control_is():
    text = markdown(all_lines(), stages(), facts())
    assert "| sandbox | swap_att | group | 400 | 400 | 16.7 | 3.5 [1.4, 5.6] | 21.8 [19.7, 23.9] |" in text
    assert "+72.2 [+70.0, +74.4], p <0.001" in text
    for name in MODELS[1:-1]:
        assert f"\n- {name}: " in text
    assert "Synthetic: a drawn world" in text and "## Cost" in text and "## Data" in text
    widths = {row.count("|") for row in text.split("## Composition")[1].split("##")[0].splitlines() if row}
    assert len(widths) == 1


def test_names_of_data_sets_cannot_break_a_table():
    lines = [line("left | right\n# <img src=x>", "group", GROUP["swap_att"])]
    (row,) = [
        row
        for row in markdown(lines, stages(), facts()).splitlines()
        if row.startswith("| sandbox | left") and "400" in row
    ]
    assert row.count("|") == 13
    assert "<img" not in row


def test_a_figure_of_many_benchmarks_stays_of_one_size(tmp_path):
    lines = [
        line(f"kind {kind}", "group", GROUP["swap_att"], benchmark=f"benchmark {number}")
        for number in range(8)
        for kind in range(7)
    ]
    lines += [average_of(lines[start : start + 7]) for start in range(0, len(lines), 7)]
    draw_figure(tmp_path / "figure.png", lines)
    with Image.open(tmp_path / "figure.png") as picture:
        assert picture.height < 1600


def test_without_matplotlib_one_line_says_how_to_get_the_figure(tmp_path, monkeypatch, capsys):
    original = builtins.__import__

    def no_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    (tmp_path / "figure.png").write_bytes(b"of an earlier run")
    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    draw_figure(tmp_path / "figure.png", all_lines())
    assert capsys.readouterr().out == "figure.png is not drawn: pip install 'hfcomp[plots]'\n"
    assert not (tmp_path / "figure.png").exists()


def test_a_run_s_files_are_written_by_one_call(tmp_path):
    (tmp_path / "method").mkdir()
    items = crepe("Slipform", 0.5)
    write_results(tmp_path, items=items, lines=all_lines(), stages=stages(), facts=facts())
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {
        "items.parquet",
        "results.json",
        "report.md",
        "figure.png",
        "README.md",
        "method/README.md",
        "method/figure.png",
    }
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["results"] == all_lines()
    assert [stage["name"] for stage in results["stages"]] == list(MODELS)
    assert results["method"] == "Slipform" and "schema_version" in results
    assert items_hash(pd.read_parquet(tmp_path / "items.parquet")) == Outcomes(items).digest
