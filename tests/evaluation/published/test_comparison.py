"""Measured numbers beside published ones: differences, verdicts, and what is said of the rest."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import hfcomp
from hfcomp.evaluation.benchmarks.composition.sugarcrepe import SUBSETS, SUGARCREPE
from hfcomp.evaluation.benchmarks.sandbox import sandbox_benchmarks
from hfcomp.evaluation.evaluation_results import evaluation_report, evaluation_to_json
from hfcomp.evaluation.published import comparison
from hfcomp.evaluation.published.comparison import PublishedComparison
from hfcomp.evaluation.published.scores import PublishedScore
from hfcomp.reporting.saving import render_markdown
from hfcomp.sandbox.bases import base_folder
from hfcomp.statistics.results import write_results
from tests.evaluation.evaluations import outcomes, report_of

CLIP = "openai/clip-vit-base-patch32"
LINE = ("SugarCrepe", "add_obj", "caption choice")


def score(value: float, *, model="CLIP ViT-B/32", line=LINE, decimals=1, **changes) -> PublishedScore:
    rounding = 0.5 * 10.0**-decimals / 100
    return PublishedScore(model, *line, value, rounding, decimals, "Paper", "Somebody 2026", "Table 1", **changes)


def compare_score(published: PublishedScore, low=0.70, high=0.80) -> PublishedComparison:
    line = {"models": {"clip": {"value": 0.75, "low": low, "high": high}}}
    return PublishedComparison("clip", line, published)


@pytest.mark.parametrize(
    ("published", "verdict"),
    [
        (score(0.75), "close"),
        (score(0.753), "close"),  # 0.3 points, for the rounding of both numbers and preprocessing
        (score(0.747), "close"),
        (score(0.7466), "off"),
        (score(0.762), "off"),  # 1.2 points, well inside the interval
        (score(0.754, decimals=0), "close"),  # printed as whole percents, the number may be half a point away
        (score(0.756, decimals=0), "off"),
        (score(0.5, differs="Other images."), "differs"),
    ],
)
@pytest.mark.parametrize("interval", [{}, {"low": None, "high": None}])
def test_a_tolerance_decides_and_not_the_interval(published, verdict, interval):
    """Both numbers score the same items: what other images would change says nothing about a reproduction."""
    entry = compare_score(published, **interval)
    assert entry.verdict == verdict
    assert entry.difference == pytest.approx(0.75 - published.value)


def test_a_model_that_lacks_quickgelu_is_off_inside_its_interval():
    """NegCLIP on SugarCrepe: 1.2 points below its number, with an interval of 1.25 points to either side."""
    macro = ("SugarCrepe", "macro of 7 subsets", "caption choice")
    line = {"models": {"NegCLIP": {"value": 0.825, "low": 0.8125, "high": 0.8375}}}
    entry = PublishedComparison("NegCLIP", line, score(0.837, model="NegCLIP", line=macro))
    assert (entry.verdict, round(entry.difference, 6)) == ("off", -0.012)


def test_a_checkpoint_loaded_with_another_activation_is_off(tmp_path, monkeypatch):
    """The fault itself, measured: the bundled model taken as trained with QuickGELU, then loaded without."""
    wordings = next(benchmark for benchmark in sandbox_benchmarks(50) if benchmark.title == "sandbox wordings")
    for name in ("quick_gelu", "gelu"):
        shutil.copytree(base_folder(), tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        for tower in ("text_config", "vision_config"):
            config[tower]["hidden_act"] = name
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    ways = {"as trained": str(tmp_path / "quick_gelu"), "NegCLIP": str(tmp_path / "gelu")}
    evaluation = hfcomp.evaluate(ways, benchmarks=wordings, cache=False, published=True)
    (line,) = evaluation.lines
    printed = round(100 * line["models"]["as trained"]["value"], 1) / 100
    keys = (line["benchmark"], line["subset"], line["metric"])
    table = [score(printed, model=name, line=keys) for name in ("NegCLIP", "CLIP ViT-B/32")]
    monkeypatch.setattr(comparison, "published_scores", lambda: table)
    models = {"as trained": {"path": CLIP}, "NegCLIP": {"path": ways["NegCLIP"]}}
    verdicts = {entry.model: entry for entry in comparison.compare_with_published(evaluation.lines, models)}
    assert verdicts["as trained"].verdict == "close"
    assert verdicts["NegCLIP"].verdict == "off"
    fault = verdicts["NegCLIP"].measured
    assert fault["low"] < printed < fault["high"]  # which the interval alone would have passed


def crepe(model: str, share: float) -> pd.DataFrame:
    values = np.arange(40) < round(share * 40)
    parts = [outcomes(model, values, benchmark=SUGARCREPE.title, subset=subset) for subset in SUBSETS]
    return pd.concat(parts)


def results(published=True, models=None, title=None):
    models = models or {"clip": {"path": CLIP}, "mine": {"path": "runs/mine"}}
    items = pd.concat([crepe(name, 0.75) for name in models], ignore_index=True)
    items = items if title is None else items.assign(benchmark=title)
    averages = {SUGARCREPE.title: SUGARCREPE.averages}
    return report_of(items, models=models, averages=averages, published=published)


@pytest.fixture
def three(monkeypatch):
    """Published: one equal, one far off, one by another protocol; and one of a line that was not scored."""
    macro = ("SugarCrepe", "macro of 7 subsets", "caption choice")
    scores = (
        score(0.75, line=macro, protocol="fp16."),
        score(0.2),
        score(0.99, line=("SugarCrepe", "add_att", "caption choice"), differs="Other captions."),
        score(0.3, line=("Winoground", "all items", "text")),
        score(0.9, model="NegCLIP"),
    )
    monkeypatch.setattr(comparison, "published_scores", lambda: scores)
    return scores


def test_only_lines_of_a_published_model_are_compared(three):
    table = results().compare_published()
    assert list(table["model"]) == ["clip"] * 3
    assert list(table["subset"]) == ["macro of 7 subsets", "add_att", "add_obj"]  # as the lines of the results
    assert list(table["verdict"]) == ["close", "differs", "off"]
    assert list(table["difference"]) == pytest.approx([0, 0.75 - 0.99, 0.55])
    assert set(table["published_model"]) == {"CLIP ViT-B/32"}


def test_the_report_shows_table_sources_and_models_without_numbers(three):
    text = str(results())
    row = next(line for line in text.splitlines() if line.startswith("add_obj") and " off " in line)
    assert row.split()[:2] == ["add_obj", "75.0"]
    assert row.split()[-6:] == ["20.0", "+55.00", "off", "[58.6,", "88.3]", "[1]"]
    joined = " ".join(text.split())
    counts = "3 published numbers, 1 close, 1 off, 1 by another protocol"
    assert f"clip (published as CLIP ViT-B/32): {counts}" in joined
    assert "[1] Somebody 2026, Table 1. fp16. Differs (add_att): Other captions." in joined
    assert "Without published numbers: mine." in joined
    assert "at most 0.3 points" in joined
    assert max(map(len, text.splitlines())) <= 80
    markdown = render_markdown(evaluation_report(results(), brief=False))
    assert "| add_obj | 75.0 | 20.0 | +55.00 | off | [" in markdown


def test_a_difference_names_its_models_and_lines_unless_it_is_of_all(three, monkeypatch):
    models = {"clip": {"path": CLIP}, "NegCLIP": {"path": "runs/converted"}}
    add_att = ("SugarCrepe", "add_att", "caption choice")
    other = score(0.7, model="NegCLIP", line=add_att, differs="No QuickGELU.")
    monkeypatch.setattr(comparison, "published_scores", lambda: (*three, other))
    joined = " ".join(str(results(models=models)).split())
    assert "Differs (CLIP ViT-B/32: add_att): Other captions. Differs (NegCLIP: add_att): No QuickGELU." in joined
    monkeypatch.setattr(comparison, "published_scores", lambda: (other,))
    assert "Table 1. Differs: No QuickGELU." in " ".join(str(results(models=models)).split())


def test_without_the_option_nothing_is_said_of_them(three):
    assert "ublished" not in str(results(published=False))


def store(folder, evaluation):
    """The files that a comparison reads, without a figure."""
    folder.mkdir()
    write_results(folder / "results.json", evaluation_to_json(evaluation))
    evaluation.outcomes.write(folder / "items.parquet")
    return folder


def test_a_file_has_them_and_a_stored_evaluation_shows_them_again(three, tmp_path):
    folder = store(tmp_path / "a", results())
    comparisons = json.loads((folder / "results.json").read_text())["published"]
    assert [entry["verdict"] for entry in comparisons] == ["close", "differs", "off"]
    assert comparisons[0]["reference"] == "Somebody 2026" and comparisons[0]["table"] == "Table 1"
    again = hfcomp.EvaluationResults.load(folder)
    assert again.published and len(again.compare_published()) == 3
    assert not hfcomp.EvaluationResults.load(store(tmp_path / "b", results(published=False))).published


def test_stored_evaluations_are_compared_with_them_by_the_model_s_id(three, tmp_path):
    first, second = (store(tmp_path / name, results(published=False)) for name in ("a", "b"))
    both = hfcomp.compare([f"{first}:clip", f"{second}:clip"], published=True)
    assert set(both.compare_published()["model"]) == set(both.models)


def test_a_folder_is_compared_by_the_name_that_it_is_given(three):
    table = results(models={"NegCLIP": {"path": "runs/converted"}}).compare_published()
    assert list(table["published"]) == [0.9]


def test_a_blind_scorer_is_neither_compared_nor_missed(three):
    text = str(results(models={"clip": {"path": CLIP}, "shorter": {"path": "blind", "weights": "none"}}))
    assert "Without published" not in text and "clip (published as" in text


def test_a_part_of_a_benchmark_is_not_compared(three):
    part = results(title="SugarCrepe (part)")
    assert part.compare_published().empty
    joined = " ".join(str(part).split())
    assert "SugarCrepe (part) is not compared" in joined
    assert "no published number" not in joined  # the part is why
    for report in (
        evaluation_report(part, brief=True),
        comparison.reproduction_report(evaluation_report(part, brief=False)),
    ):
        assert comparison.LEGEND not in report.legend
    assert comparison.LEGEND in evaluation_report(results(), brief=True).legend
    assert comparison.reproduction_report(evaluation_report(results(), brief=False)).legend == [comparison.LEGEND]


def test_a_published_model_without_numbers_of_what_was_scored_is_named(three):
    other = " ".join(str(results(title="Winoground")).split())
    assert "clip: CLIP ViT-B/32 has no published number" in other
