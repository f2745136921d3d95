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

from hfcomp.experiments.experiment_config import CONTROLS
from hfcomp.experiments.report import answers, lines_that_fall, publish_run, questions_panel, run_report
from hfcomp.reporting.lines import general_of, select_aspect, strictest
from hfcomp.reporting.pages.report import report_page
from hfcomp.reporting.saving import render_markdown, save_report
from hfcomp.reporting.terminal import render_terminal
from hfcomp.statistics import Outcomes, items_hash
from tests.evaluation.evaluations import crepe
from tests.experiments.lines import (
    GENERAL,
    GROUP,
    MODELS,
    all_lines,
    average_of,
    facts,
    general_average,
    line,
    stages,
    without,
)

EXTREME = (1.0, 0.0, 1.0, 1.0, 1.0, 1.0)


def printed_tables(lines: list[dict], width: int = 80, **changes) -> str:
    """The tables and sentences in the terminal, without the closing lines."""
    return re.sub(r"\n(report|model|next): .*", "", whole(lines, width, **changes))


# not a run's: paths of files that are there are printed too, in lines that are not folded
NO_FOLDER = Path("not-there/slipform")


def whole(lines: list[dict], width: int = 80, folder: Path = NO_FOLDER, **changes) -> str:
    console = Console(file=io.StringIO(), width=width)
    assert not console.is_terminal
    render_terminal(run_report(lines, stages(), facts(**changes), brief=True, folder=folder), console)
    return console.file.getvalue()


def markdown(lines: list[dict], **changes) -> str:
    return render_markdown(run_report(lines, stages(), facts(**changes), brief=False))


def table(text: str, title: str) -> dict[str, list[str]]:
    """The rows below a title, by their first word, up to the next blank line."""
    block = text[text.index(f"\n{title}") + 1 :].split("\n\n")[0].splitlines()
    rule = next(index for index, row in enumerate(block) if row.startswith("─"))
    return {row.split()[0]: row.split()[1:] for row in block[rule + 1 :]}


@pytest.mark.parametrize("extreme", [False, True])
def test_every_number_is_whole_in_80_columns_without_color(extreme):
    lines = all_lines()
    if extreme:
        lines += [line("all", "text-to-image recall@1", EXTREME, general=True, benchmark="Flickr30k")]
    text = printed_tables(lines)
    assert "\x1b" not in text and "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    rows = table(text, "sandbox: group (percent; 400 items from 400 images")
    for kind, shares in GROUP.items():
        chance, *cells = [cell for cell in rows[kind] if cell not in ("(floor)", "(ceiling)")]
        assert chance == "16.7"
        assert [cell.rstrip("*") for cell in cells] == [f"{100 * share:.1f}" for share in shares]
    assert table(text, "Cost")["same-batch"][:5] == ["12,500", "12,800,000", "25,600,000", "18,432.2", "1,152.7"]
    assert {"39.52", "GiB,", "resident", "0.6422", "1.23%"} <= set(text[text.index("\nCost") :].split())
    differences = re.findall(r"^ *same-batch +([+-]\d+\.\d) +\[([+-]\d+\.\d), ([+-]\d+\.\d)\]", text, re.M)
    assert ("+3.1", "+0.9", "+5.3") in differences


def test_a_wider_terminal_shows_the_same_tables():
    assert printed_tables(all_lines(), 200) == printed_tables(all_lines(), 80)


def test_long_names_are_folded_and_numbers_are_not():
    subset, method = "a_subset_with_an_unusually_long_name_of_its_own", "A-method with an unusually-long name"
    lines = [line(subset, "group", GROUP["swap_att"], benchmark="A benchmark of many words" * 2)]
    for part in (lines[0]["models"], lines[0]["differences"]):
        part[method] = part.pop("Slipform")
    text = printed_tables(lines, method=method, general_average=None)
    assert max(map(len, text.splitlines())) <= 80
    for model, share in zip((*MODELS[1:-1], "A-method"), GROUP["swap_att"][1:], strict=True):
        assert model in text and re.search(rf" {100 * share:.1f}[* ]", text)
    assert "+43.0  [+40.8, +45.2]  <0.001  <0.001" in text


def test_the_highest_of_a_line_is_starred_and_equals_share_the_star():
    rows = table(printed_tables(all_lines()), "sandbox: group")
    assert [cell for cell in rows["swap_att"] if cell.endswith("*")] == ["94.0*"]
    assert [cell for cell in rows["replace_att"] if cell.endswith("*")] == ["98.0*", "98.0*"]


def test_of_a_metric_of_which_lower_is_better_no_value_is_starred():
    text = printed_tables([line("swap", metric, GROUP["swap_att"]) for metric in ("brittleness", "group")])
    starred = [row.split()[0] for row in text.splitlines() if re.search(r"\d\*", row)]
    assert starred == ["group"] and re.search(r"brittleness \(%,.*\n *lower is better\)", text)


def test_gain_stands_beside_forgetting_for_every_model():
    rows = table(printed_tables(all_lines()), "Gain vs. forgetting")
    assert list(rows) == list(MODELS)
    gain = sum(row[5] - row[0] for row in GROUP.values()) / len(GROUP)
    lost = sum(row[2] - row[0] for row in GENERAL.values()) / len(GENERAL)
    assert rows["Slipform"][1] == f"{100 * gain:+.1f}"
    assert rows["same-batch"][5] == f"{100 * lost:+.1f}"


def slipform_lines(kind_share: float) -> list[dict]:
    """Slipform at a share on every group line, where same-batch has 0.5."""
    lines = [line(kind, "group", (0.1, 0.2, 0.5, 0.3, 0.3, kind_share)) for kind in GROUP]
    return [average_of(lines, primary="sandbox: average group"), *lines]


@pytest.mark.parametrize(
    ("share", "sentence"),
    [
        (0.9, "What did Slipform add? A gain over same-batch: +40.0 ["),
        (0.505, "What did Slipform add? No difference from same-batch is shown: +0.5 [-1.7, +2.7] points (p <0.001)."),
        (0.2, "What did Slipform add? A loss relative to same-batch: -30.0 ["),
    ],
)
def test_the_answers_are_in_every_report(share, sentence):
    lines = slipform_lines(share)
    negatives = "What did the negatives contribute? The difference from plain is unknown: +30.0 points (no interval)."
    assert any(said.startswith(sentence) for said in answers(lines))
    for text in (printed_tables(lines), markdown(lines)):
        said = " ".join(text.replace("*", "").split())
        assert sentence in said and negatives in said and "endpoint is sandbox: average group" in said
    assert markdown(lines).index("**What did Slipform") < markdown(lines).index("## Gain vs. forgetting")


@pytest.mark.parametrize(
    ("p", "sentence"),
    [
        (0.0004, "A gain over same-batch: +40.0 points (p <0.001, no interval)."),
        (0.4, "No difference from same-batch is shown: +40.0 points (p 0.400, no interval)."),
        (None, "The difference from same-batch is unknown: +40.0 points (p -, no interval)."),
    ],
)
def test_an_answer_without_an_interval_goes_by_p(p, sentence):
    """A subset of a single image leaves the average without an interval."""
    lines = slipform_lines(0.9)
    lines[0]["differences"]["Slipform"]["same-batch"].update(low=None, high=None, p=p)
    assert answers(lines)[2] == f"What did Slipform add? {sentence}"


def with_models(lines: list[dict], **shares: float) -> list[dict]:
    """The same lines with further models before the method, each with a share of every line."""
    entries = []
    for entry in lines:
        models, method = dict(entry["models"]), entry["models"]["Slipform"]
        del models["Slipform"]
        new = {name.replace("_", "-"): {"value": share} for name, share in shares.items()}
        differences = {name: dict(part) for name, part in entry["differences"].items()}
        for name, cell in {**new, "Slipform": method}.items():
            for other in {**models, **new}:
                if other != name:
                    value = cell["value"] - {**models, **new}[other]["value"]
                    change = {"value": value, "low": value - 0.02, "high": value + 0.02, "p": 0.01}
                    differences.setdefault(name, {}).setdefault(other, change)
        entries.append({**entry, "models": {**models, **new, "Slipform": method}, "differences": differences})
    return entries


def test_a_static_margin_and_human_ratings_are_answers_too():
    shares = {"static_margin": 0.8, "static_margin_human": 0.505, "Slipform_human": 0.51}
    lines = with_models(slipform_lines(0.9), **shares)
    published = [{"model": "Slipform", "reference": "static-margin", "value": 0.0011, "place": "a paper, Table 2"}]
    _, _, margin, human, _ = answers(lines, None, published)
    assert margin == (
        "What did the margin add? A gain over static-margin: +10.0 [+8.0, +12.0] points; a gain over same-batch: "
        "+40.0 [+37.8, +42.2] points (p <0.001). Published values: +0.11 against static-margin (Table 2)."
    )
    assert human == (
        "And with human ratings? No difference from static-margin-human is shown: +0.5 [-1.5, +2.5] points; "
        "no difference from same-batch is shown: +1.0 [-1.0, +3.0] points (p 0.010)."
    )
    panel = questions_panel(lines, None)
    assert [label for label, _, _ in panel.rows] == [
        "negatives: same-batch minus plain",
        "method: Slipform minus static-margin",
        "method: Slipform minus same-batch",
        "human: Slipform-human minus static-margin-human",
        "human: Slipform-human minus same-batch",
    ]
    assert panel.notes[1] == "+10.0 [+8.0, +12.0], a gain" and panel.title == "Gain on sandbox: average group"


def test_over_several_seeds_the_answers_do_not_say_that_they_are_of_one():
    lines = slipform_lines(0.9)
    for entry in lines:
        entry["models"]["Slipform"] = {"value": 0.9, "lowest": 0.8, "highest": 0.95, "seeds": [0.8, 0.95, 0.95]}
    assert answers(lines)[0].startswith("Over 3 seeds. The primary endpoint is sandbox: average group")


def test_what_was_forgotten_without_an_interval_goes_by_p():
    lines = [line("all", name, (0.6, 0.6, 0.6, 0.6, 0.6, 0.5), general=True) for name in ("recall@1", "recall@5")]
    for entry, p in zip(lines, (0.001, 0.3), strict=True):
        for other in ("base", "same-batch"):
            entry["differences"]["Slipform"][other].update(low=None, high=None, p=p)
    assert answers(lines)[-1] == (
        "How did Slipform change general abilities? Of 2 lines, 1 falls significantly below same-batch and "
        "1 falls significantly below base."
    )
    forgotten = "sandbox retrieval recall@1 -10.0 points against same-batch, -10.0 points against base"
    assert lines_that_fall(lines) == [f"falls more than same-batch: {forgotten}"]


def test_the_cost_is_what_the_method_forgets_beyond_its_control_with_the_base_beside_it():
    """Every control loses the places, since captions never mention them: the method adds nothing to that."""
    place = line("place", "accuracy", (0.9, 0.18, 0.2, 0.19, 0.17, 0.2), general=True, benchmark="zero-shot")
    recall = line("all", "recall@1", (0.6, 0.6, 0.58, 0.6, 0.6, 0.5), general=True, benchmark="COCO")
    said = answers([place, recall], general_of([place, recall], average_of([place, recall])))[-1]
    assert said == (
        "How did Slipform change general abilities? A loss relative to same-batch: -4.0 [-6.2, -1.8] points; a loss "
        "relative to base: -40.0 [-42.2, -37.8] points. Of 2 lines, 1 falls significantly below same-batch and 2 fall "
        "significantly below base."
    )
    more, alone = lines_that_fall([place, recall])
    assert more == (
        "falls more than same-batch: COCO recall@1 -8.0 [-10.2, -5.8] points against same-batch, -10.0 [-12.2, -7.8] "
        "points against base"
    )
    assert alone == (
        "falls only against base: zero-shot place accuracy +0.0 [-2.2, +2.2] points against same-batch, -70.0 [-72.2, "
        "-67.8] points against base"
    )
    kept = without([place, recall], "same-batch")
    assert all("same-batch" not in text for text in lines_that_fall(kept))
    said = answers(kept, general_of(kept, average_of([place])))[-1]
    assert "same-batch" not in said and "Of 2 lines, 2 fall significantly below base." in said
    assert markdown([place, recall]).count(f"- {more}") == 1 and "Lines that fall" not in printed_tables(
        [place, recall]
    )


def test_a_line_without_a_test_against_the_control_is_not_said_to_be_kept():
    lines = [line(name, "accuracy", (0.9, 0.5, 0.6, 0.5, 0.5, 0.6), general=True) for name in ("place", "shape")]
    del lines[0]["differences"]["Slipform"]["same-batch"]
    assert "none falls significantly below same-batch (1 not tested) and 2 fall significantly" in answers(lines)[-1]


def test_every_caveat_is_in_terminal_markdown_and_page():
    caveat = "Synthetic: a drawn world. One seed: on this seed."
    known = {"caveat": caveat}
    assert caveat in " ".join(printed_tables(all_lines(), **known).split())
    assert caveat in markdown(all_lines(), **known)
    report = run_report(all_lines(), stages(), facts(**known), brief=False)
    assert caveat in report_page(report, {})


def test_the_run_ends_with_verdict_price_files_and_the_next_command(tmp_path):
    for name in ("report.md", "figure.png"):
        (tmp_path / name).touch()
    models = {name: {"path": "openai/clip"} for name in MODELS}
    text = whole(all_lines(), folder=tmp_path, models=models, method="Slipform")
    said = " ".join(text[text.index("\nreport: ") :].split())
    match = re.fullmatch(
        r"report: (.*), (.*) model: (.*) next: (.*) (On this seed.* add\? A gain .*\.) (How did Slipform change .*\.)",
        said,
    )
    assert "add? A gain over same-batch: +3.1 [+0.9, +5.3] points (p <0.001). How did" in said
    assert "a gain over base: +5.4 [+3.2, +7.6] points. Of 2 lines, 1 falls significantly below same-batch" in match[6]
    assert text[text.index("\nOn this seed.") :].count("\n") <= 11  # with an empty line at either end
    folder = str(tmp_path)
    assert match.groups()[:3] == (f"{folder}/report.md", f"{folder}/figure.png", f"{folder}/method")
    assert match[4] == f"hfcomp evaluate base=openai/clip Slipform={folder}/method --suite compositional"
    assert f"\nnext: {match[4]}\n" in text  # not broken over lines, so that it can be copied


def test_a_primary_endpoint_that_is_no_share_has_one_unit_everywhere():
    tau = line("all", "kendall tau", (0.4, 0.45, 0.5, 0.42, 0.43, 0.55), benchmark="H", primary="H: kendall tau")
    rank = line("all", "reciprocal rank", (0.6, 0.6, 0.6, 0.6, 0.6, 0.5), benchmark="R", general=True)
    _, _, won, forgotten = answers([tau, rank], rank)
    assert won.startswith("What did Slipform add? A gain over same-batch: +0.050 [+0.028, +0.072] (-1 to 1) (p <")
    lost = "-0.100 [-0.122, -0.078] (0 to 1)"
    assert f"A loss relative to same-batch: {lost}; a loss relative to base: {lost}. Of 1 line, 1 falls" in forgotten
    assert lines_that_fall([tau, rank]) == [
        f"falls more than same-batch: R reciprocal rank {lost} against same-batch, {lost} against base"
    ]
    text = printed_tables([tau, rank], general_average=None)
    assert table(text, "Gain vs. forgetting")["Slipform"][:3] == ["0.550", "+0.150", "[+0.128,"]
    assert "0.550*" in text and "55.0" not in text and "+0.050  [+0.028, +0.072]" in text and "+5.0" not in text
    assert re.search(r"-0\.100 +\[-0\.122, -0\.078\]", text) and "-10.0" not in text
    for sheet in (text, markdown([tau, rank], general_average=None)):
        assert "(-1 to 1)" in sheet and "(0 to 1)" in sheet
        assert "0.550" in sheet and "55.0" not in sheet and "+5.0" not in sheet


def test_a_mean_of_metrics_is_a_row_of_its_benchmark_s_one_table():
    kinds = [line("all", f"level {level} image choice of 2", GROUP["swap_att"], benchmark="H") for level in (1, 2, 3)]
    keys = [[entry["benchmark"], entry["subset"], entry["metric"]] for entry in kinds]
    mean = {"lines": keys, "metric": "level * image choice of 2", "subset": "average of 3 lines"}
    primary = average_of(kinds, primary="H: level * image choice of 2") | mean
    text = printed_tables([primary, *kinds], general_average=None)
    block = text[text.index("\nComposition\nH (percent") + 1 :].split("\n\n")[0]
    assert "level 3 image" in block and "(primary)" in block


def test_a_run_without_the_same_batch_control_says_so():
    lines = without(slipform_lines(0.9), "same-batch")
    _, sentence, cost = answers(lines)
    assert sentence == (
        "What did Slipform contribute? A gain over plain: +70.0 [+67.8, +72.2] points. "
        "Without a same-batch control, the report cannot show what Slipform adds to the same batch."
    )
    assert "Unknown" in cost and "no general ability" in cost
    _, sentence, _ = answers(without(lines, "plain"))
    assert sentence.startswith("Without a same-batch control")


def test_what_was_forgotten_is_said_and_what_only_seems_so_is_not():
    lines = [line("all", "text-to-image recall@1", (0.6, 0.6, 0.6, 0.6, 0.6, lost), general=True, benchmark=name)
             for name, lost in (("COCO", 0.5), ("Flickr", 0.59))]  # fmt: skip
    for names in ((), ("same-batch",)):
        given = without(slipform_lines(0.9) + lines, *names)
        said = " ".join(lines_that_fall(given))
        assert "COCO text-to-image recall@1 -10.0 [-12.2, -7.8]" in said and "Flickr" not in said
        assert lines_that_fall([part for part in given if part["benchmark"] != "COCO"]) == []
    text = printed_tables(slipform_lines(0.9) + lines)
    assert re.search(r"^COCO text-to-image recall@1 .* -10\.0 *$", text, re.M)
    assert re.search(r"^Flickr text-to-image recall@1 .* -1\.0~$", text, re.M)


def test_the_verdict_and_the_table_under_it_are_of_one_number():
    """Lines of "novel" repeat three kinds: they must not move a verdict whose table says otherwise."""
    lines = slipform_lines(0.45)
    novel = [line(kind, "group", (0.1, 0.2, 0.1, 0.3, 0.3, 0.99), benchmark="sandbox novel") for kind in GROUP]
    heading, _, sentence, _ = answers([*lines, average_of(novel), *novel])
    assert "endpoint is sandbox: average group (" in heading
    assert sentence.endswith("A loss relative to same-batch: -5.0 [-7.2, -2.8] points (p <0.001).")
    text = printed_tables([*lines, average_of(novel), *novel])
    block = text[text.index("\nSlipform minus each") :].split("\n\n")[0]
    block = re.sub(r"(?m)^sandbox novel.*|^sandbox(?= +[a-z])", "", block)
    row = next(row for row in block.splitlines() if " same-batch" in row)
    assert "-5.0" in row and "[-7.2, -2.8]" in row


def test_nothing_below_chance_is_called_the_best():
    """Chance of a group is 1 in 6: 10% is more than 2% for sure, and still worth nothing."""
    lines = [line(kind, "group", (0.01, 0.02, 0.02, 0.03, 0.03, 0.1)) for kind in GROUP]
    lines.insert(0, average_of(lines, primary="sandbox: average group"))
    heading, _, sentence, _ = answers(lines)
    assert "add? A gain over same-batch, but both are below chance: +8.0 [+5.8, +10.2]" in sentence
    assert heading.endswith("(of its 6 parts, 6 are at the floor).")
    block = printed_tables(lines)
    block = block[block.index("\nsandbox: group") + 1 :].split("\n\n")[0]
    assert "10.0" in block and "*" not in block


def test_composition_without_group_lines_is_headed_by_all_of_its_lines():
    lines = all_lines()
    assert {part["metric"] for part in strictest(select_aspect(lines, "composition"))} == {"group"}
    others = [part for part in lines if part["metric"] != "group"]
    assert {part["metric"] for part in strictest(select_aspect(others, "composition"))} == {"caption choice"}


@pytest.mark.parametrize(
    "removed",
    [(), ("same-batch", "shuffled", "equal-images"), MODELS[1:5], MODELS[1:]],
    ids=["all", "plain", "no control", "base alone"],
)
@pytest.mark.parametrize("aspects", [("composition", "general"), ("composition",), ("general",)])
def test_reports_of_fewer_models_and_aspects_are_made_too(tmp_path, removed, aspects):
    lines = without([part for part in all_lines() if part["aspect"] in aspects], *removed)
    average = without([general_average()], *removed)[0] if "general" in aspects else None
    text = printed_tables(lines, general_average=average)
    tables = text[: text.index("\nCost\n")]
    assert not [name for name in removed if re.search(rf"\b{name}\b", tables) and name != "Slipform"]
    assert all(name in " ".join(tables.replace("-\n", "-").split()) for name in lines[0]["models"] if "-" not in name)
    assert "## Cost" in markdown(lines)
    write(tmp_path, lines)
    assert (tmp_path / "figure.png").is_file()


def write(folder: Path, lines: list[dict]) -> None:
    save_report(run_report(lines, stages(), facts(), brief=False), folder)


def unknown(entry: dict) -> dict:
    """What a file holds of a line with one image: null for NaN."""
    for share in [*entry["models"].values(), *(d for part in entry["differences"].values() for d in part.values())]:
        share.update(low=None, high=None, **({"p": None, "smallest": None} if "p" in share else {}))
    return {**entry, "chance": None}


def test_a_line_without_interval_or_chance_is_shown_without(tmp_path):
    lines = [unknown(part) for part in all_lines()]
    for text in (printed_tables(lines), markdown(lines, config={})):
        assert "nan" not in text and "94.0" in text and "None" not in text
    write(tmp_path, lines)
    assert (tmp_path / "figure.png").is_file()


def test_ties_are_shown_where_there_are_any_and_denied_where_not():
    lines = all_lines()
    assert "no ties" in printed_tables(lines) and "no ties" in markdown(lines)
    lines[0]["models"]["plain"].update(ties=6, tie_rate=0.015)
    for text in (printed_tables(lines), markdown(lines)):
        assert "no ties" not in text and "counted as wrong, percent of items" in text
    assert "| sandbox swap_att caption choice | 0.0 | 1.5 (6) |" in markdown(lines)


def test_the_terminal_compares_averages_and_the_report_every_line():
    lines = [line(f"kind {number}", "group", GROUP["swap_att"]) for number in range(12)]
    lines.append(average_of(lines))
    text = printed_tables(lines)
    block = text[text.index("\nDifferences") :].split("\n\n")[0]
    assert all(block.count(f"\n{name} ") == 1 for name in MODELS[:-1])
    assert markdown(lines).count("| shuffled | +63.0 | [+60.8, +65.2] |") == 13


def test_markdown_holds_every_line_with_intervals_and_says_what_each_control_is():
    text = markdown(all_lines())
    assert "| swap_att | 16.7 | 3.5 [1.4, 5.6] | 21.8 [19.7, 23.9] |" in text
    assert "| swap_att group | plain | +72.2 | [+70.0, +74.4] | <0.001 | <0.001 | 3.1 |" in text
    for name in MODELS[:-1]:
        assert f"\n- {name}: " in text
    titles = re.findall("^## (.*)$", text, re.M)
    assert titles == [
        "Gain vs. forgetting",
        "Composition",
        "General abilities",
        "Differences",
        "Lines that fall",
        "Cost",
        "Models",
        "How it was made",
        "Notes",
    ]
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({row.count("|") for row in block.splitlines()}) == 1


def test_names_of_data_sets_cannot_break_a_table():
    lines = [line("left | right\n# <img src=x>", "group", GROUP["swap_att"])]
    (row,) = [row for row in markdown(lines).splitlines() if row.startswith("| sandbox left") and "16.7" in row]
    assert row.count("|") == 9
    assert "<img" not in row


@pytest.mark.parametrize("number", [2, 20])
def test_the_figure_begins_with_the_primary_endpoint_and_has_every_benchmark(number):
    """Winoground's groups once drove out the mean that a run is judged by, and benchmarks without groups."""
    about = {"benchmark": "Im et al. 2026, Table 2", "average": True, "primary": "the mean"}
    lines = [line(f"kind {kind}", "caption choice", GROUP["swap_att"], benchmark="choices") for kind in range(number)]
    lines += [line("all", metric, GROUP["swap_att"], benchmark="pairs") for metric in ("text", "group")]
    lines.append(line("", "compositional mean", GROUP["swap_att"], **about))
    (figure,) = run_report(lines, stages(), facts(), brief=False).images()
    (panel,) = figure.nonempty_panels()
    assert figure.styles.keys() == {*CONTROLS} and figure.main == "Slipform"
    labels = [label for label, _, _ in panel.rows]
    assert labels[0] == "Im et al. 2026, Table 2 compositional mean" and "pairs group" in labels
    assert any(label.startswith("choices kind 0") for label in labels) and "pairs text" not in labels
    lines[-1].pop("primary")
    lines[-3]["primary"] = "pairs: text"
    (figure,) = run_report(lines, stages(), facts(), brief=False).images()
    assert figure.nonempty_panels()[0].rows[0][0] == "pairs text"


def test_a_figure_of_many_benchmarks_stays_of_one_size(tmp_path):
    lines = [
        line(f"kind {kind}", "group", GROUP["swap_att"], benchmark=f"benchmark {number}")
        for number in range(8)
        for kind in range(7)
    ]
    lines += [average_of(lines[start : start + 7]) for start in range(0, len(lines), 7)]
    write(tmp_path, lines)
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
    write(tmp_path, all_lines())
    assert (
        capsys.readouterr().out
        == "figure.png was not drawn because matplotlib is missing: pip install 'hfcomp[plots]'\n"
    )
    assert not (tmp_path / "figure.png").exists()


def test_a_run_s_files_are_written_by_one_call(tmp_path):
    (tmp_path / "method").mkdir()
    items = crepe("Slipform", 0.5)
    publish_run(tmp_path, items=items, lines=all_lines(), stages=stages(), facts=facts())
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {
        "items.parquet",
        "results.json",
        "report.md",
        "report.html",
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
