"""`hfcomp.evaluate` from Python: two tiny CLIPs on a small SugarCrepe and a file of pairs."""

from __future__ import annotations

import io
import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from transformers import CLIPModel, CLIPProcessor

import hfcomp
from hfcomp.evaluation.blind.encoders import BLIND
from hfcomp.evaluation.evaluation_results import print_evaluation
from hfcomp.writing import locked
from tests import tiny
from tests.evaluation import small_sugarcrepe

PLACE = {"device": "cpu", "cache": False}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = small_sugarcrepe.write(tmp_path_factory.mktemp("data"))
    tiny.pairs(12, ragged=False).to_parquet(folder / "pairs.parquet")
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return tiny.clip(tmp_path_factory.mktemp("models") / "other", seed=5)


@pytest.fixture(scope="module")
def results(clip, other, data):
    benchmarks = ["sugarcrepe", str(data / "pairs.parquet")]
    return hfcomp.evaluate([f"clip={clip}", str(other)], benchmarks=benchmarks, data_dir=data, **PLACE)


def test_print_shows_what_the_command_shows(results, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    print_evaluation(results, console=console)
    assert str(results) == console.file.getvalue().strip("\n") and "\x1b" not in str(results)
    for text in ("SugarCrepe: caption choice", "macro of 7 subsets", "pairs", "other minus clip"):
        assert text in str(results), text
    assert repr(results) == "<EvaluationResults of clip, other on SugarCrepe, pairs>"
    assert "| macro of 7 subsets |" in results._repr_markdown_()


def test_the_table_has_a_row_for_each_line_and_model(results):
    table = results.to_pandas()
    columns = ["benchmark", "subset", "metric", "aspect", "average", "model", "value", "low", "high", "ties", "chance"]
    assert list(table.columns[:13]) == [*columns, "items", "images"]
    assert len(table) == 2 * len(results.lines)
    assert set(table["benchmark"]) == {"SugarCrepe", "pairs"}
    (line,) = [line for line in results.lines if (line["benchmark"], line["subset"]) == ("SugarCrepe", "add_att")]
    chosen = table[(table["benchmark"] == "SugarCrepe") & (table["subset"] == "add_att")].set_index("model")
    for name in ("clip", "other"):
        assert chosen.loc[name, "value"] == line["models"][name]["value"]
        assert chosen.loc[name, "low"] <= chosen.loc[name, "value"] <= chosen.loc[name, "high"]
    assert (chosen["items"] == 5).all() and (chosen["chance"] == 0.5).all() and not chosen["average"].any()
    change = chosen.loc["other", "value"] - chosen.loc["clip", "value"]
    assert chosen.loc["other", "difference"] == pytest.approx(change)
    assert np.isnan(chosen.loc["clip", ["difference", "p", "q"]].astype(float)).all()


def test_two_models_are_compared_by_name_or_place_either_way(results, clip, other):
    change = results.compare("clip", str(other))
    assert list(change.models) == ["other", "clip"] and change.reference == "other"
    assert "clip minus other" in str(change) and "other minus clip" not in str(change)
    there, back = (
        table.to_pandas().set_index(["benchmark", "subset", "metric", "model"])["difference"].dropna()
        for table in (results, change)
    )
    assert (there.to_numpy() == -back.to_numpy()).all() and (there != 0).any()
    with pytest.raises(ValueError, match="'othr'.*clip, other.*'other'"):
        results.compare("othr", "clip")
    with pytest.raises(ValueError, match="'clip' .*twice"):
        results.compare("clip", str(clip))


def test_blind_scorers_are_compared_when_they_are_named(clip, data):
    evaluation = hfcomp.evaluate(clip, benchmarks="sugarcrepe", data_dir=data, blind=["shorter"], **PLACE)
    name = clip.name
    assert evaluation.models["shorter"] == {"path": "blind", "weights": BLIND["shorter"][0]}
    assert evaluation.lines[0]["differences"] == {}
    change = evaluation.compare(name, "shorter").lines[0]
    values = [change["models"][model]["value"] for model in (name, "shorter")]
    assert change["differences"][name]["shorter"]["value"] == pytest.approx(values[0] - values[1])


def test_what_is_saved_is_loaded_and_compared(results, tmp_path):
    results.save(tmp_path / "out")
    names = {"items.parquet", "scores.parquet", "results.json", "report.md", "report.html", "figure.png"}
    assert names <= {path.name for path in (tmp_path / "out").iterdir()}
    again = hfcomp.EvaluationResults.load(tmp_path / "out")
    assert str(again) == str(results) and again.config == results.config and not again.skipped
    pd.testing.assert_frame_equal(again.to_pandas(), results.to_pandas())
    stored = hfcomp.compare([tmp_path / "out"], reference="other")
    assert str(stored.compare("clip", "other").lines) == str(results.compare("clip", "other").lines)
    with locked(tmp_path / "out"), pytest.raises(ValueError, match="out .*in use"):
        results.save(tmp_path / "out")


def test_objects_score_as_their_folders_do(results, clip, other, data):
    model, processor = CLIPModel.from_pretrained(clip), CLIPProcessor.from_pretrained(other)
    bare = CLIPModel(CLIPModel.from_pretrained(other).config)
    bare.load_state_dict(CLIPModel.from_pretrained(other).state_dict())
    bare.config._name_or_path = bare.name_or_path = ""
    encoder = BLIND["shorter"][1]()
    evaluation = hfcomp.evaluate(
        {"model": model, "pair": (bare, processor), "mine": encoder},
        benchmarks=["sugarcrepe"],
        data_dir=data,
        device="cpu",
        reference="pair",
    )
    values = evaluation.to_pandas().pivot(index=["benchmark", "subset", "metric"], columns="model", values="value")
    known = results.to_pandas().pivot(index=["benchmark", "subset", "metric"], columns="model", values="value")
    assert (values["model"] == known.loc[values.index, "clip"]).all()
    assert (values["pair"] == known.loc[values.index, "other"]).all()
    assert evaluation.models["model"]["path"] == str(clip) and evaluation.models["mine"]["path"] == "BlindEncoder"
    assert evaluation.lines[0]["differences"].keys() == {"model", "mine"}
    alone = hfcomp.evaluate((bare, processor), benchmarks=["sugarcrepe"], data_dir=data, device="cpu")
    assert list(alone.models) == ["CLIPModel"] and alone.reference is None


@pytest.mark.parametrize(
    ("models", "change", "message"),
    [
        (["x"], {"benchmarks": ["sugarcrep"]}, "'sugarcrep'.*'sugarcrepe'"),
        (["x"], {"benchmarks": ["no/such/pairs.parquet"]}, "^no/such/pairs.parquet: no such file"),
        (["x"], {"benchmarks": []}, "name the benchmarks"),
        (["x"], {"suite": "composition"}, "suite: found 'composition'.*'compositional'"),
        (["x"], {"tie": "hlf"}, "tie: found 'hlf',.* wrong, half, win"),
        (["x"], {"data": {"val2017": "nowhere"}}, "data: found 'val2017=nowhere',.* NAME=DIR"),
        (["./runs/nowhere"], {}, "^./runs/nowhere: no such"),
        (["/runs/nowhere/x"], {}, "^/runs/nowhere/x: no such"),
        (["nowhere/model"], {}, "^nowhere/model .*local folder.* Hub id:"),
        ([{}], {}, "models: found a dict"),
        ([], {}, "at least one model"),
    ],
)
def test_mistakes_name_the_value_before_anything_is_fetched(models, change, message, data, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=message):
        hfcomp.evaluate(models, **{"benchmarks": ["sugarcrepe"], "data_dir": data, **PLACE, **change})


def test_nothing_scored_is_an_error_that_says_why(clip, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="magic: MAGIC .*not released"):
        hfcomp.evaluate(clip, benchmarks=["magic"], **PLACE)


def test_what_fails_for_one_model_is_left_out_of_the_lines_and_kept_in_the_items(clip, data, tmp_path, capsys):
    class Failing:
        def index_images(self, *words, **options):
            raise RuntimeError("out of memory")

        index_texts = index_images

    pairs = str(data / "pairs.parquet")
    evaluation = hfcomp.evaluate({"clip": clip, "mine": Failing()}, benchmarks=[pairs], **PLACE)
    assert evaluation.failed and evaluation.lines == [] and set(evaluation.outcomes.table["arm"]) == {"clip"}
    assert re.search(r"pairs.parquet: failed: mine: out of memory", str(evaluation))
    evaluation.save(tmp_path / "out")
    again = hfcomp.EvaluationResults.load(tmp_path / "out")
    assert again.lines == [] and len(again.outcomes) == len(evaluation.outcomes)
