"""Mistakes of users end `hfcomp train` in one line, before a folder is taken; errors of ours keep their traceback."""

from __future__ import annotations

import math
from pathlib import Path

import datasets
import pytest

from hfcomp.experiments import command, prepare, study
from hfcomp.experiments.arm import method_arm
from hfcomp.experiments.command import main
from hfcomp.experiments.recipes import read_recipe
from tests import tiny

RECIPE = "method: Mine\nobjective: hfcomp.trainers.info_nce:InfoNCETrainer\ndataset: sandbox\nbatch_size: 4\n"
SWEEP = "seeds: [1]\nsettings: {all: {}}\nvariants: {a: {}}\nreference: a\n"
STUDY = "accuracy: {benchmark: sandbox keywords, metric: x}\nretrieval: {benchmark: sandbox retrieval, metric: x}\n"

BENCHMARK = ["--evaluation", "benchmarks", "--evaluation_benchmarks", "sugarcrepe"]


@pytest.fixture
def refusal_line(tmp_path, monkeypatch):
    """The line that a command ends in; nothing but what was there before lies in its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study, "run_folder", lambda *_, **__: pytest.fail("took a folder"))

    def line(*words: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SystemExit) as caught:
            main(*words[:1], words[1:])
        assert sorted(tmp_path.rglob("*")) == before
        assert str(caught.value).startswith("error: ") and "\n" not in str(caught.value)
        return str(caught.value)

    return line


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        ("batch_sise: 8", ["mine.yaml", "batch_sise", "Did you mean 'batch_size'?"]),
        ("method: Other", ["mine.yaml, line 5", "'method'", "line 1"]),
        ("max_steps: many", ["mine.yaml: max_steps", "'many'", "a whole number"]),
        ("max_steps: 3.5", ["mine.yaml: max_steps", "3.5", "a whole number"]),
        ("learning_rate: fast", ["mine.yaml: learning_rate", "'fast'", "a number"]),
        ("learning_rate: -1", ["mine.yaml: learning_rate", "-1", "at least 0"]),
        ("bf16: 1", ["mine.yaml: bf16", "1", "true or false"]),
        ("gradient_accumulation_steps: 0", ["gradient_accumulation_steps", "0", "at least 1"]),
        ("num_negatives: -1", ["mine.yaml: num_negatives", "-1", "at least 0"]),
        ("dataset_rows: 0", ["mine.yaml: dataset_rows", "0", "more than 0"]),
        ("evaluation_items: 2.5", ["mine.yaml: evaluation_items", "2.5", "a whole number"]),
        ("controls: 5", ["mine.yaml: controls", "5", "a list"]),
        ("controls: [plane]", ["mine.yaml: controls: entry 1", "'plane'", "Did you mean 'plain'?"]),
        ("model: [a, b]", ["mine.yaml: model", "['a', 'b']", "a string"]),
        ("evaluation: sandbx", ["mine.yaml: evaluation", "'sandbx'", "Did you mean 'sandbox'?"]),
        ("edit_noise: 1.5", ["mine.yaml: edit_noise", "1.5", "at most 1"]),
        ("lr_scheduler_type: 3", ["mine.yaml: lr_scheduler_type", "3"]),
        ("column_names: {caption: 3}", ["mine.yaml: column_names: caption", "3", "a string"]),
    ],
)
def test_a_recipe_that_is_wrong(refusal_line, tmp_path, changed, facts):
    (tmp_path / "mine.yaml").write_text(RECIPE + changed + "\n")
    said = refusal_line("mine.yaml")
    assert all(fact in said for fact in facts), said


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("batch_size: 0", ["mine.yaml: batch_size", "found 0", "more than 0"]),
        ("batch_size: 2.5", ["mine.yaml: batch_size", "found 2.5", "a whole number"]),
        ("batch_size: [4]", ["mine.yaml: batch_size", "found [4]", "a whole number"]),
        ("", ["mine.yaml: batch_size is missing"]),
    ],
)
def test_the_size_of_a_batch(refusal_line, tmp_path, line, facts):
    (tmp_path / "mine.yaml").write_text(RECIPE.replace("batch_size: 4", line))
    said = refusal_line("mine.yaml")
    assert all(fact in said for fact in facts), said


@pytest.mark.parametrize("name", ["../../evil", "/evil", "a/b", "base", "BASE", "evaluation", "plain", "shuffled"])
def test_a_method_is_a_plain_name_that_means_nothing_else(refusal_line, tmp_path, name):
    said = refusal_line("slipform", "--method", name)
    assert f"--method: {name!r}" in said and ("not a plain name" in said or "is reserved" in said)
    (tmp_path / "mine.yaml").write_text(RECIPE.replace("Mine", name))
    assert f"mine.yaml: method: {name!r}" in refusal_line("mine.yaml")


@pytest.mark.parametrize(
    ("file", "facts"),
    [
        (SWEEP.replace("seeds", "seds"), ["x.yaml: unknown key 'seds'. Did you mean 'seeds'?"]),
        (SWEEP.replace("[1]", "5"), ["x.yaml: seeds: found 5"]),
        (SWEEP.replace("[1]", "[1, 2]"), ["x.yaml: seeds: found two seeds, 1 and 2", "Remove one, or add a third."]),
        (SWEEP.replace("all: {}", "../all: {}"), ["x.yaml: settings: '../all' is not a plain name"]),
        (SWEEP.replace("{a: {}}", "{a: {}, base: {}}"), ["x.yaml: variants: 'base' is reserved"]),
        (SWEEP.replace("all: {}", "all: {max_steps: many}"), ["x.yaml: settings: all: max_steps: found 'many'"]),
        (SWEEP.replace("a: {}", "a: {margin: 3}"), ["x.yaml: variants: a: margin: found 3", "a string"]),
        (SWEEP + "embeddings: {variants: [a], rows: 2.5}", ["x.yaml: embeddings: rows: found 2.5, expected a whole"]),
        ("concepts: {a/b: [1]}\naccuracy: {}\nretrieval: {}", ["x.yaml: concepts: 'a/b' is not a plain name"]),
        ("concepts: {a: [1]}\naccuracy: x\nretrieval: {}", ["accuracy: found 'x', expected {benchmark: ..., metric:"]),
    ],
)  # fmt: skip
def test_a_sweep_or_study_that_is_wrong(refusal_line, tmp_path, file, facts):
    (tmp_path / "x.yaml").write_text(file)
    said = refusal_line("slipform", "--report", "x.yaml")
    assert all(fact in said for fact in facts), said


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--margin", "adaptve"], ["margin: found 'adaptve'", "adaptive, static"]),
        (["--per_device_train_batch_size", "4"], ["per_device_train_batch_size is derived from batch_size"]),
        (["--num_negatives", "3"], ["num_negatives=3", "exactly 1"]),
        (["--config", "hierarcaps", "--num_negatives", "3"], ["HierarCaps: num_negatives=3", "no negative captions"]),
        (["--config", "clear_glass", "--num_negatives", "3"], ["num_negatives=3", "no negative captions"]),
        (["--max_steps", "0"], ["--max_steps: found '0', expected at least 1, or -1"]),
        (["--primary", "sandbox: grup"], ["primary: 'sandbox: grup' is not scored", "Did you mean 'sandbox: group'?"]),
        (["--report", "margins", "--primary", "sandbx: *"], ["primary: 'sandbx: *' is not scored", "sandbox: "]),
        (["--num_negatives", "3.5"], ["--num_negatives: found '3.5', expected a whole number"]),
        (["--learning_rate", "abc"], ["--learning_rate: found 'abc', expected a number"]),
        (["--max_steps"], ["--max_steps: found nothing, expected one value"]),
        (["--max_steps", "1", "2"], ["--max_steps: found ['1', '2'], expected one value"]),
        (["--lr_scheduler_type", "cosin"], ["cosin", "cosine"]),
        (["--keyword_table", "no.yaml", "--keyword_negatives", "color"], ["no.yaml: no such file"]),
        (["--report", "nothing"], ["nothing: slipform has no such report", "margins"]),
        (["--config", "no.yaml"], ["no.yaml: no such file"]),
        (["--config", "slipform/vit_b32_coco", "--model", "no/such/folder"], ["model=no/such/folder: no such file"]),
        (["--config", "slipform/vit_b32_coco", "--model", "./no"], ["model=./no: no such file or folder"]),
        (["--dataset", "no.jsonl"], ["dataset=no.jsonl: no such file or folder"]),
        (["--dataset", "no/such/rows"], ["dataset=no/such/rows: no such file or folder"]),
        (["--controls", "nothing"], ["--controls: entry 1: found 'nothing'", "plain, same-batch"]),
        (["--evaluation_data", "val2017", *BENCHMARK], ["evaluation_data", "'val2017'", "NAME="]),
        (["--evaluation", "benchmarks", "--evaluation_benchmarks", "winogrund"], ["winogrund", "winoground"]),
        (["--report", "margins", "--search", "x"], ["--report and --search"]),
        (["--report"], ["--report"]),
        (["--objective", "nothing"], ["command line: objective 'nothing'", "module:class"]),
        (["--column_names", "caption"], ["--column_names: found 'caption'", "JSON"]),
        (["--seed", "-1"], ["--seed: found '-1', expected at least 0"]),
        (["--learning_rate", "nan"], ["--learning_rate: found 'nan'"]),
        (["words"], ["'words' does not belong to a field"]),
        (["--evaluation", "own", "--evaluation_dataset", "no.csv"], ["evaluation_dataset=no.csv: no such file"]),
    ],
)  # fmt: skip
def test_a_command_line_that_is_wrong(refusal_line, words, facts):
    said = refusal_line("slipform", *words)
    assert all(fact in said for fact in facts) and "Hub" not in said, said


SMALL = ["--controls", "none", "--max_steps", "1", "--evaluation_items", "2", "--use_cpu", "true", "--batch_size", "4"]


@pytest.mark.parametrize(
    ("recipe", "without", "words", "facts"),
    [
        ("negclip", "caption", [], ["'caption'", "the dataset has: 'image'", "column_names"]),
        ("dcl", "negative_captions", ["--num_negatives", "1"], ["DCLTrainer", "'negative_captions'"]),
        ("negclip", "", ["--num_negatives", "3"], ["column 'negative_captions', row 0", "2 entries, expected 3"]),
        ("ceclip", "", ["--num_negatives", "3"], ["column 'negative_captions', row 0", "2 entries, expected 3"]),
        ("negclip", "", ["--num_neighbors", "1"], ["'neighbor_ids'", "num_neighbors", "the dataset has:"]),
        ("tripletclip", "negative_image", [], ["'negative_image'", "TripletClipTrainer"]),
        ("slipform", "negative_image", [], ["none of the 8 rows has a negative_image"]),
        (
            "negclip",
            "",
            ["--batch_size", "9"],
            ["has 8 rows, fewer than one batch of 9", "Pass --batch_size 8 or less"],
        ),
    ],
)
def test_what_rows_lack_is_named(refusal_line, recipe, without, words, facts):
    rows = tiny.pairs(8)
    rows.remove_columns([without] if without else []).to_parquet("rows.parquet")
    neighbors = ["--hard_images", "0", "--num_neighbors", "0"] if recipe == "negclip" else []
    said = refusal_line(recipe, "--dataset", "rows.parquet", *SMALL, *neighbors, *words)
    assert all(fact in said for fact in facts), said


@pytest.mark.parametrize("what", ["report", "study"])
def test_what_the_rows_of_a_plan_lack_is_named(refusal_line, tmp_path, what):
    tiny.pairs(8).remove_columns("caption").to_parquet("rows.parquet")
    plans = {"report": SWEEP, "study": "concepts: {color: [1]}\n" + STUDY}
    (tmp_path / "x.yaml").write_text(plans[what])
    recipe, words = {"report": ("dcl", SMALL), "study": ("hard_negatives", SMALL[4:])}[what]
    said = refusal_line(recipe, "--dataset", "rows.parquet", *words, "--report", "x.yaml")
    assert "'caption'" in said, said


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ("- a\n- b\n", ["expected a mapping", "list"]),
        ("hello", ["expected a mapping", "str"]),
        ("", ["'objective' (module:class of a trainer) is missing"]),
        ("a: [", ["line 1", "not YAML"]),
        ("\0", ["not YAML"]),
        (RECIPE + "teacher_temperature_of_a_later_version: 1\n", ["unknown field 'teacher_temperature"]),
        (RECIPE.replace("InfoNCETrainer", "InfoNCETraner"), ["mine.yaml: objective", "InfoNCETraner"]),
        (RECIPE.replace("hfcomp.trainers", "hfcomp.triners"), ["mine.yaml: objective", "triners"]),
        (RECIPE + "keyword_table: x.yaml\n", ["mine.yaml: keyword_table has no effect without keyword_negatives"]),
        (RECIPE + "captions_columns: a,b\n", ["mine.yaml: captions_columns has no effect without captions_file"]),
        (RECIPE + "streaming: true\n", ["mine.yaml: streaming", "sandbox"]),
        (RECIPE + "hub_token: x\n", ["mine.yaml: hub_token", "HF_TOKEN"]),
        (SWEEP, ["--report mine"]),
        ("ranges: {}\n", ["--search mine"]),
    ],
)
def test_a_file_that_is_no_recipe(refusal_line, tmp_path, content, facts):
    (tmp_path / "mine.yaml").write_text(content)
    said = refusal_line("slipform", "--config", "mine.yaml")
    assert "mine.yaml" in said and all(fact in said for fact in facts), said


@pytest.mark.parametrize("option", ["--config", "--report", "--search"])
def test_a_folder_is_no_file(refusal_line, tmp_path, option):
    (tmp_path / "folder").mkdir()
    assert "folder" in refusal_line("slipform", option, "folder")
    assert "gone.yaml" in refusal_line("slipform", option, "gone.yaml")


@pytest.mark.parametrize(("name", "fact"), [("rows.parquet", "magic bytes"), ("rows.jsonl", "JSON parse error")])
def test_a_damaged_file_is_one_line_and_nothing_else_on_stderr(refusal_line, tmp_path, capfd, name, fact):
    (tmp_path / name).write_text('{"caption": 1}\n{\n')
    datasets.enable_progress_bars()
    said = refusal_line("dcl", "--dataset", name, *SMALL)
    assert name in said and fact in said
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("half", ["--bf16", "--fp16"])
def test_half_precision_on_the_cpu_trains_where_it_is_asked_for(clip, tmp_path, half):
    recipe = read_recipe("dcl", [half, "true", *SMALL, "--num_negatives", "1", "--save_strategy", "no"])
    cost = method_arm(recipe, tiny.pairs(4)).train(clip, tmp_path)
    assert cost.steps == 1 and math.isfinite(cost.loss)


def test_half_precision_without_a_gpu(refusal_line, monkeypatch):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    said = refusal_line("slipform", "--bf16", "true")
    assert "bf16=True" in said and "--use_cpu true" in said


def test_a_model_of_the_hub_that_cannot_be_reached_is_named_with_the_reason(refusal_line, monkeypatch):
    def unreachable(place: str) -> None:
        raise OSError("We couldn't connect to 'https://huggingface.co'\nto load the files.")

    monkeypatch.setattr(prepare, "load_config", unreachable)
    said = refusal_line(
        "slipform", "--config", "slipform/vit_b32_coco", "--dataset", "org/rows", "--model", "org/model"
    )
    assert "model=org/model: no such local folder, and from the Hub: We couldn't connect" in said


def test_a_package_that_is_not_installed_is_named(refusal_line, monkeypatch):
    monkeypatch.setattr("hfcomp.experiments.studies.plan_files.find_spec", lambda name: None)
    assert "pip install 'hfcomp[search]'" in refusal_line("clear_glass", "--search")


@pytest.mark.parametrize("error", [TypeError("x"), KeyError("x"), RuntimeError("x"), AssertionError("x")])
def test_an_error_of_ours_keeps_its_traceback(monkeypatch, error):
    def fail(*arguments: object) -> Path:
        raise error

    monkeypatch.setattr(command, "run", fail)
    with pytest.raises(type(error)):
        main("slipform", [])


def test_the_traceback_is_there_for_who_asks(monkeypatch):
    words = ["--max_steps", "many"]
    with pytest.raises(ValueError, match="--max_steps: found 'many'"):
        main("slipform", [*words, "--traceback"])
    monkeypatch.setenv("HFCOMP_TRACEBACK", "1")
    with pytest.raises(ValueError, match="--max_steps: found 'many'"):
        main("slipform", words)


def test_numbers_of_a_recipe_stay_as_they_were_written(tmp_path):
    (tmp_path / "mine.yaml").write_text(RECIPE + "max_grad_norm: 0\nlearning_rate: 1e-3\nweight_decay: 0.5\n")
    given = read_recipe(str(tmp_path / "mine.yaml"), ["--warmup_steps", "0"]).given
    assert repr(given["max_grad_norm"]) == "0" and given["learning_rate"] == 0.001
    assert repr(given["weight_decay"]) == "0.5" and repr(given["warmup_steps"]) == "0.0"
