"""A recipe sends each of its arms, and its results, to the trackers as runs of one group."""

from __future__ import annotations

import io

import pytest
from datasets import Dataset
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hfcomp import cli
from hfcomp.experiments.arm import method_arm
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.tracking import example_pairs, results_table, tracked_arm
from hfcomp.trainers import trackers
from tests import tiny

SMALL = ("--max_steps", "2", "--logging_steps", "1", "--dataset_rows", "32", "--batch_size", "16")
SMALL += ("--evaluation_items", "4", "--controls", "plain", "--disable_tqdm", "true", "--seed", "42")


def test_runs_are_grouped_by_the_study_s_folder_or_name(tmp_path):
    run = tracked_arm(tmp_path / "slipform-2", method_arm(read_recipe("slipform"), None, name="plain"))
    assert run.arguments() == {"run_name": "slipform-2/plain", "project": "hfcomp"}
    assert run.folder == tmp_path / "slipform-2/tensorboard" and run.pictures() == {}
    recipe = read_recipe("slipform", ["--run_name", "mine", "--project", "thesis"])
    named = tracked_arm(tmp_path, method_arm(recipe, None, name="plain"))
    assert named.arguments() == {"run_name": "mine/plain", "project": "thesis"}


def test_the_first_pairs_are_a_picture_and_a_stream_has_none():
    rows = tiny.pairs(6)
    content = example_pairs("plain", rows)
    assert Image.open(io.BytesIO(content)).format == "PNG"
    assert content != example_pairs("plain", rows.select(range(2, 6)))
    assert example_pairs("plain", rows.to_iterable_dataset()) == b""
    pair = Dataset.from_dict({"image": rows["image"][:1], "caption": rows["caption"][:1]}, features=None)
    assert example_pairs("plain", pair.cast_column("image", rows.features["image"]))


def test_the_table_has_a_row_for_each_line_and_model():
    line = {"benchmark": "b", "subset": "s", "metric": "m", "aspect": "composition", "chance": 0.5}
    line["models"] = {"base": {"value": 0.5, "low": 0.4, "high": 0.6}, "method": {"value": 0.7}}
    header, rows = results_table([line])
    assert [dict(zip(header, row, strict=True))["model"] for row in rows] == ["base", "method"]
    assert rows[0][4:] == ["base", 0.5, 0.4, 0.6, 0.5] and rows[1][6:8] == [None, None]


def test_a_missing_tracker_stops_a_recipe_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda module: None)
    words = ["train", "slipform", *SMALL, "--output_dir", str(tmp_path / "run"), "--report_to", "wandb"]
    with pytest.raises(SystemExit, match=r"^error: .*wandb .*pip install 'hfcomp\[trackers\]'"):
        cli.main(words)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_recipe_has_a_run_for_each_arm_and_one_for_its_results(tmp_path):
    cli.main(["train", "slipform", *SMALL, "--output_dir", str(tmp_path / "run"), "--report_to", "tensorboard"])
    runs = tmp_path / "run" / "tensorboard"
    assert sorted(path.name for path in runs.iterdir()) == ["Slipform", "plain", "results"]
    for name in ("Slipform", "plain"):
        tags = EventAccumulator(str(runs / name)).Reload().Tags()
        assert "train/loss" in tags["scalars"] and tags["images"] == ["examples/training_pairs"]
    assert "train/margin" in EventAccumulator(str(runs / "Slipform")).Reload().Tags()["scalars"]
    results = EventAccumulator(str(runs / "results")).Reload()
    assert results.Tags()["images"] == ["results/figure"]
    assert b"| Slipform |" in results.Tensors("results/table/text_summary")[0].tensor_proto.string_val[0]
