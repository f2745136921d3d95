"""`hfcomp merge`, from the command line to the files that it leaves."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoProcessor, CLIPModel

from hfcomp.checksums import read_checked
from hfcomp.cli import main
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.evaluation.stored import read_evaluation
from hfcomp.merging.merge import HALVES, RECORD_FILE
from hfcomp.writing import locked, write_json
from tests import tiny
from tests.evaluation import small_sugarcrepe


@pytest.fixture(scope="module")
def tuned_model(tmp_path_factory):
    return tiny.clip(tmp_path_factory.mktemp("tuned"), seed=1, dtype=torch.float16)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return small_sugarcrepe.write(tmp_path_factory.mktemp("data"), images=40, per_subset=20)


@pytest.fixture(scope="module")
def swept(clip, tuned_model, root, tmp_path_factory):
    """The folder of a sweep over SugarCrepe and scenes of the sandbox."""
    folder = tmp_path_factory.mktemp("swept") / "out"
    names = "sugarcrepe,sandbox_zero_shot"
    main(sweep(clip, tuned_model, folder, "--benchmarks", names, "--data_dir", str(root)))
    return folder


def sweep(base, tuned, folder, *more: str) -> list[str]:
    return ["merge", str(base), str(tuned), "--sweep", "--output_dir", str(folder), "--device", "cpu", *more]


def section_of(text: str, title: str) -> str:
    return text.partition(f"\n{title}\n")[2].partition("\n## ")[0]


def assert_plain(folder, dtype):
    model, info = CLIPModel.from_pretrained(folder, dtype="auto", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and model.dtype == dtype
    AutoProcessor.from_pretrained(folder)


def test_one_point_is_a_plain_model_with_its_record(clip, tuned_model, tmp_path, capsys):
    main(["merge", str(clip), str(tuned_model), "--alpha", "0.4", "--output_dir", str(tmp_path / "point")])
    assert f"model: {tmp_path / 'point'} (alpha 0.4)" in capsys.readouterr().out
    assert_plain(tmp_path / "point", torch.float16)
    record = read_checked(tmp_path / "point" / RECORD_FILE, "")
    assert record["alpha"] == 0.4 and record["chosen"] is None
    assert record["base"] == {"path": f"LOCAL/{clip.name}", "weights": identity(clip)}
    assert record["tuned"]["weights"] == identity(tuned_model)
    assert str(tmp_path) not in (tmp_path / "point" / RECORD_FILE).read_text()
    card = (tmp_path / "point" / "README.md").read_text()
    assert "The user set this point" in card and "Not evaluated" in card
    assert str(tmp_path) not in card and "### Values" not in card


def test_a_merge_is_not_written_over_unless_asked(clip, tuned_model, tmp_path, monkeypatch):
    monkeypatch.setattr("hfcomp.writing.LOCK_SECONDS", 0)
    words = ["merge", str(clip), str(tuned_model), "--alpha", "1", "--output_dir", str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    write_json(tmp_path / "out" / RECORD_FILE, {})
    (tmp_path / "out" / "old").touch()
    with pytest.raises(SystemExit, match=r"out .*merge\.json.*--overwrite"):
        main(words)
    with locked(tmp_path / "out"), pytest.raises(SystemExit, match="out .*in use"):
        main([*words, "--overwrite"])
    main([*words, "--overwrite"])
    assert_plain(tmp_path / "out", torch.float16)
    assert not (tmp_path / "out" / "old").exists()


@pytest.mark.parametrize("place", [0, 1])
def test_a_model_that_is_not_there_is_named_as_by_other_commands(clip, tuned_model, tmp_path, place):
    models = [str(clip), str(tuned_model)]
    models[place] = str(tmp_path / "nothing")
    with pytest.raises(SystemExit, match=r"^error: .*/nothing: no such"):
        main(["merge", *models, "--alpha", "0.5", "--output_dir", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_files_that_no_merge_wrote_are_never_deleted(clip, tuned_model, root, tmp_path, overwrite):
    mine = [tmp_path / "keep/notes.txt", tmp_path / "keep/config.json", tmp_path / "sweep/model/notes.txt"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    words = ["merge", str(clip), str(tuned_model), "--alpha", "0.5", "--output_dir", str(tmp_path / "keep")]
    with pytest.raises(SystemExit, match=r"keep .*other files \(config\.json, notes\.txt\)"):
        main([*words, *overwrite])
    words = sweep(clip, tuned_model, tmp_path / "sweep", "--benchmarks", "sugarcrepe", "--data_dir", str(root))
    with pytest.raises(SystemExit, match=r"model .*other files \(notes\.txt\)"):
        main([*words, *overwrite])
    assert [path.read_text() for path in mine] == ["mine"] * 3


def test_a_sweep_leaves_the_chosen_model_and_says_how_it_was_chosen(swept):
    names = {path.name for path in swept.iterdir()}
    files = {"points.parquet", "items.parquet", "results.json", "report.md", "report.html", "figure.png"}
    assert names == {"model", ".lock", *files}
    assert_plain(swept / "model", torch.float16)
    chosen = read_checked(swept / "model" / RECORD_FILE, "")["chosen"]
    assert chosen["benchmarks"] == ["sugarcrepe", "sandbox_zero_shot"]
    points = {point["alpha"]: point for point in chosen["points"]}
    assert len(points) == 11 and not points[chosen["alpha"]]["dominated"]
    report = (swept / "report.md").read_text()
    assert f"Alpha {chosen['alpha']:g} is chosen: it has {chosen['rule']}." in report
    assert "![" in report and "(figure.png)" in report


def test_the_chosen_model_has_a_card_with_the_numbers_of_the_other_half(swept, clip):
    card, record = ModelCard.load(swept / "model/README.md"), read_checked(swept / "model" / RECORD_FILE, "")
    _, results = read_evaluation(swept)
    chosen = next(name for name, facts in results["models"].items() if facts["path"] == str(swept / "model"))
    scored = {(entry.dataset_config, entry.metric_name): entry.metric_value for entry in card.data.eval_results}
    assert len(scored) == len({(line["subset"], line["metric"]) for line in results["results"]})
    for line in results["results"]:
        assert scored[line["subset"], line["metric"]] == round(line["models"][chosen]["value"], 4)
    assert f"Alpha is {record['alpha']:g} " in card.text
    assert record["chosen"]["rule"] in card.text and HALVES in card.text and "wortsman2022robust" in card.text
    assert "](figure.png)" in card.text and (swept / "model" / "figure.png").is_file()
    assert "the choice by " in section_of(card.text, "## Notes")
    assert str(clip.parent) not in card.content and "Objective" not in card.text


def test_no_item_that_chose_is_reported(swept):
    points, (reported, results) = pd.read_parquet(swept / "points.parquet"), read_evaluation(swept)
    images, all_images = set(reported.table["image_id"]), set(points["image_id"])
    assert 0 < len(images) < len(all_images)
    assert results["sweep"]["images"][0] <= len(all_images - images)
    # the scores of the points are those of the other images alone
    kept = points[~points["image_id"].isin(images) & (points["benchmark"] == "SugarCrepe")]
    subsets = kept[kept["arm"] == "alpha 0.2"].groupby("subset")["value"].mean()
    composition = {point["alpha"]: point for point in results["sweep"]["points"]}[0.2]["composition"]
    assert len(subsets) == 7 and composition == pytest.approx(subsets.mean())


def test_what_a_sweep_reports_is_what_evaluating_the_chosen_model_finds(swept, clip):
    reported, results = read_evaluation(swept)
    chosen = next(name for name, facts in results["models"].items() if facts["path"] == str(swept / "model"))
    assert results["models"][chosen]["weights"] == identity(swept / "model")
    base = swept / "model" if chosen == "base" else clip  # with weight 0, the chosen model is the base
    assert results["reference"] == "base" and results["models"]["base"]["path"] == str(base)
    assert set(reported.table["arm"]) == set(results["models"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--alpha", "2"], "alpha: found 2, expected 0 (the base) to 1"),
        (["--alpha", "0.5", "--rule", "mean"], "--rule only applies to --sweep. Remove it, or use --sweep instead"),
        (["--sweep"], "Name a compositional"),
        (["--sweep", "--benchmarks", "sugarcrepe", "--data_dir", "ROOT"], "No general ability is scored"),
        (["--sweep", "--benchmarks", "sandbox_zero_shot"], "No composition is scored"),
        (["--sweep", "--benchmarks", "sugarcrepe", "--tolerance", "3"], "tolerance: found 3, expected 0 to 1"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(clip, tuned_model, root, tmp_path, more, said):
    with pytest.raises(SystemExit, match=re.escape(said)):
        main(
            [
                "merge",
                str(clip),
                str(tuned_model),
                "--output_dir",
                str(tmp_path / "out"),
                *(str(root) if word == "ROOT" else word for word in more),
            ]
        )
    assert not (tmp_path / "out").exists()


def test_the_records_of_two_runs_are_the_same(clip, tuned_model, tmp_path):
    for name in ("one", "two"):
        main(["merge", str(clip), str(tuned_model), "--alpha", "0.3", "--output_dir", str(tmp_path / name)])
    one, two = (json.loads((tmp_path / name / RECORD_FILE).read_text()) for name in ("one", "two"))
    assert one == two and identity(tmp_path / "one") == identity(tmp_path / "two")
