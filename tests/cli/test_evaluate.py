"""`hfcomp evaluate` from the command line to its files, on a small SugarCrepe (about 12 s)."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time

import numpy as np
import pandas as pd
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoProcessor

import hfcomp
from hfcomp import cli
from hfcomp.evaluation import engine, hub
from hfcomp.evaluation.benchmarks.composition.sugarcrepe import SUBSETS
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.spec import Unavailable
from hfcomp.modeling import merge_adapter
from hfcomp.writing import locked
from tests import processes, tiny
from tests.evaluation import small_sugarcrepe


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return small_sugarcrepe.write(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def models(clip, siglip, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {"clip": clip, "siglip": siglip, "other": tiny.clip(folder / "other", seed=5)}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(repo, *words, **options):
        raise ConnectionError("no network")

    monkeypatch.setattr(hub, "load_dataset", refuse)
    monkeypatch.setattr(hub, "_newest", lambda repo: None)


def main(words) -> None:
    cli.main(["evaluate", *words])


def words(models, data, folder, *more: str, names=("clip", "other"), benchmarks="sugarcrepe") -> list[str]:
    given = [f"{name}={models[name]}" for name in names]
    shared = ["--benchmarks", benchmarks, "--data_dir", str(data), "--device", "cpu", "--batch_size", "16"]
    return [*given, *shared, "--output_dir", str(folder / "out"), "--cache", str(folder / "cache"), *more]


@pytest.fixture(scope="module")
def done(models, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("done")
    names = ("clip", "other", "siglip")
    main(words(models, data, folder, "--blind", "shorter,constant", names=names))
    return folder / "out"


def results(folder) -> dict:
    return json.loads((folder / "results.json").read_text())


def test_every_model_and_blind_scorer_is_a_column(done, data, models):
    report = results(done)
    assert list(report["models"]) == ["clip", "other", "siglip", "shorter", "constant"]
    assert report["models"]["clip"]["path"] == str(models["clip"])
    assert report["models"]["clip"]["weights"].startswith("sha256:")
    line = report["results"][0]
    assert (line["subset"], line["metric"]) == ("macro of 7 subsets", "caption choice")
    assert line["chance"] == pytest.approx(0.5)  # a mean of seven, which Python versions sum differently
    constant = line["models"]["constant"]
    assert constant["value"] == 0 and constant["tie_rate"] == 1
    assert set(line["differences"]["other"]) == {"clip"}
    items = pd.read_parquet(done / "items.parquet")
    assert items.groupby("arm").size().to_dict() == dict.fromkeys(report["models"], 35)
    short = sum(
        len(row["caption"]) < len(row["negative_caption"])
        for file in (data / "sugarcrepe").glob("*.json")
        for row in json.loads(file.read_text()).values()
    )
    assert items[items["arm"] == "shorter"]["value"].sum() == short
    assert (done / "report.md").exists() and (done / "figure.png").exists()


def test_what_was_read_is_written_down(done, data):
    facts = results(done)["benchmarks"]["sugarcrepe"]
    assert facts["title"] == "SugarCrepe" and facts["items"] == 35 and facts["left_out"] == {}
    assert facts["data"]["place"] == str(data / "sugarcrepe") and facts["data"]["commit"] is None
    assert facts["data"]["pools"][0]["place"] == str(data / "val2017")


def test_a_second_run_encodes_nothing_and_finds_the_same(models, data, tmp_path, monkeypatch, capsys):
    main(words(models, data, tmp_path))
    first = pd.read_parquet(tmp_path / "out" / "items.parquet")
    monkeypatch.setattr(Embedder, "backbone", property(lambda self: pytest.fail("weights were loaded")))
    capsys.readouterr()
    main(words(models, data, tmp_path, "--overwrite"))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out" / "items.parquet"), first)
    assert "20 images and 55 texts, 75 of them cached" in " ".join(capsys.readouterr().out.split())


def test_an_adapter_is_scored_as_its_merged_model_and_cached_by_content_and_base(models, data, tmp_path):
    torch.manual_seed(0)
    settings = LoraConfig(target_modules=["q_proj", "fc1"], init_lora_weights=False)
    base = tiny.clip(tmp_path / "base")
    get_peft_model(AutoModel.from_pretrained(base), settings).save_pretrained(tmp_path / "adapter")
    merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    models = {**models, "adapter": tmp_path / "adapter", "merged": tmp_path / "merged"}

    main(words(models, data, tmp_path, names=("adapter", "merged", "clip")))
    items = pd.read_parquet(tmp_path / "out" / "items.parquet")
    adapter, merged, plain = (
        items[items["arm"] == name]["value"].to_numpy() for name in ("adapter", "merged", "clip")
    )
    assert (adapter == merged).all() and (adapter != plain).any()

    def is_cached() -> bool:
        shared = {"benchmarks": ["sugarcrepe"], "data_dir": data, "cache": tmp_path / "cache", "device": "cpu"}
        logged: list[str] = []
        hfcomp.evaluate({"adapter": tmp_path / "adapter"}, **shared, log=logged.append)
        counts = re.search(r"(\d+) images and (\d+) texts, (\d+) of them cached", " ".join(logged))
        images, texts, cached = map(int, counts.groups())
        return cached == images + texts

    assert is_cached()
    for folder, file in (("adapter", "adapter_model.safetensors"), ("base", "model.safetensors")):
        state = load_file(tmp_path / folder / file)
        name = next(name for name in sorted(state) if name.endswith("weight"))
        save_file(state | {name: state[name] * 1.5}, tmp_path / folder / file, metadata={"format": "pt"})
        assert not is_cached() and is_cached()


def test_a_run_that_encodes_nothing_keeps_the_cache_within_its_limit_too(models, data, tmp_path):
    main(words(models, data, tmp_path, names=("clip",)))
    old = tmp_path / "cache" / "0123456789abcdef" / f"{0:032x}.safetensors"
    old.parent.mkdir()
    old.write_bytes(bytes(10**6))
    os.utime(old, (0, 0))
    main(words(models, data, tmp_path, "--cache_limit", "1MB", "--overwrite", names=("clip",)))
    (note,) = [note for note in results(tmp_path / "out")["notes"] if "embedding cache" in note]
    assert not old.exists() and re.search(r" 1 .*\(1\.0 MB\)", note)


def test_a_damaged_cache_gives_the_same_outcomes_and_is_reported(models, data, tmp_path, capsys):
    main(words(models, data, tmp_path))
    first = pd.read_parquet(tmp_path / "out" / "items.parquet")
    assert not any("embedding cache" in note for note in results(tmp_path / "out")["notes"])
    files = sorted((tmp_path / "cache").glob("*/*.safetensors"))
    for path in files[::2]:
        tensors = load_file(path)
        tensors["vectors"][:5] = np.nan
        save_file(tensors, path)
    main(words(models, data, tmp_path, "--overwrite"))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out" / "items.parquet"), first)
    (note,) = [note for note in results(tmp_path / "out")["notes"] if "embedding cache" in note]
    assert f"{len(files[::2])} damaged files" in note and "encoded again" in note
    assert note in " ".join(capsys.readouterr().out.split())


def test_what_is_done_to_texts_is_written_down(done):
    entries = results(done)["models"]
    assert "ftfy" in entries["clip"]["texts"] and entries["siglip"]["texts"] == "as written"
    notes = [note for note in results(done)["notes"] if "texts are" in note]
    assert notes[0].startswith("clip, other: ") and "ftfy" in notes[0] and notes[1] == "siglip: texts are as written"


def test_results_are_not_replaced_unasked(models, data, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "results.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"out .*results\.json.*--overwrite"):
        main(words(models, data, tmp_path))


def test_a_comparison_leaves_the_results_it_compares_and_others(done, tmp_path):
    before = (done / "results.json").read_bytes()
    compare = ["compare", f"{done}:clip", f"{done}:other", "--no_page", "--output_dir"]
    with pytest.raises(SystemExit, match="one of the compared"):
        cli.main([*compare, str(done.parent / "x" / ".." / done.name), "--overwrite"])
    shutil.copytree(done, tmp_path / "other")
    with pytest.raises(SystemExit, match=r"other .*results\.json.*--overwrite"):
        cli.main([*compare, str(tmp_path / "other")])
    assert (done / "results.json").read_bytes() == before == (tmp_path / "other" / "results.json").read_bytes()
    cli.main([*compare, str(tmp_path / "other"), "--overwrite"])
    assert list(results(tmp_path / "other")["models"]) == ["clip", "other"]


def test_a_folder_in_use_is_named(models, data, tmp_path, monkeypatch):
    monkeypatch.setattr("hfcomp.writing.LOCK_SECONDS", 0)
    with locked(tmp_path / "out"), pytest.raises(SystemExit, match="^error: .*out .*in use"):
        main(words(models, data, tmp_path))
    assert not (tmp_path / "out").exists() and not (tmp_path / "cache").exists()


def test_what_cannot_be_had_is_skipped_and_shown(models, data, tmp_path, capsys):
    main(words(models, data, tmp_path, benchmarks="sugarcrepe,winoground", names=("clip",)))
    shown = " ".join(capsys.readouterr().out.split())
    (skipped,) = results(tmp_path / "out")["skipped"]
    assert skipped["benchmark"] == "winoground" and "facebook/winoground cannot be read" in skipped["reason"]
    assert "hf auth login" in skipped["how_to_fix"] and "hf auth login" in shown
    assert "hf auth login" in (tmp_path / "out" / "report.md").read_text()


def test_nothing_to_score_is_an_error_and_leaves_nothing(models, tmp_path):
    with pytest.raises(SystemExit, match="no benchmark"):
        main([str(models["clip"]), "--benchmarks", "winoground", "--output_dir", str(tmp_path / "out"), "--no_cache"])
    assert not (tmp_path / "out").exists()


def test_a_benchmark_that_fails_costs_no_other(models, data, tmp_path, monkeypatch, capsys):
    scored = engine.run_benchmark

    def fails(benchmark, items, encoder, **options):
        if benchmark.name == "sugarcrepe_broken" and encoder.config.model_type == "siglip":
            raise RuntimeError("out of memory")
        return scored(benchmark, items, encoder, **options)

    monkeypatch.setattr("hfcomp.evaluation.evaluator.run_benchmark", fails)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_benchmarks.py").write_text(
        "from dataclasses import replace\nfrom hfcomp.evaluation.benchmarks.composition.sugarcrepe import SUGARCREPE\n"
        "BROKEN = replace(SUGARCREPE, name='sugarcrepe_broken', title='Broken')\n"
    )
    given = words(models, data, tmp_path, benchmarks="my_benchmarks:BROKEN,sugarcrepe", names=("clip", "siglip"))
    with pytest.raises(SystemExit) as stopped:
        main([*given, "--data", f"sugarcrepe_broken={data / 'sugarcrepe'}", "--data", f"val2017={data / 'val2017'}"])
    assert stopped.value.code == 1
    report = results(tmp_path / "out")
    assert {line["benchmark"] for line in report["results"]} == {"SugarCrepe"}
    assert report["skipped"][0]["reason"] == "failed: siglip: out of memory"
    assert "out of memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--benchmarks", "sugarcrep"], "unknown benchmark 'sugarcrep'. Did you mean 'sugarcrepe'"),
        (["--benchmarks", ""], "name the benchmarks: --suite"),
        (["--reference", "third"], "reference: found 'third', expected one of the models clip, other"),
        (["--blind", "deaf"], "blind: found 'deaf', expected one of constant, random, shorter"),
        (["--data", "sugarcrepe=nowhere"], "data: found 'sugarcrepe=nowhere', expected NAME=DIR"),
        (["--data", "sugarcrepe=."], "sugarcrepe: . does not contain its data. Expected the seven JSON files"),
        (["--data_dir", "nowhere"], "nowhere is not a folder"),
        (["--data", "sugarcrep=."], "has data named 'sugarcrep'. Did you mean 'sugarcrepe'"),
        (["--data", "val2017=.", "--data", "val2017=.."], "data: found two folders for 'val2017'"),
        (["extra=nowhere/model"], "nowhere/model is not a local folder, and as a Hub id:"),
        (["--batch_size", "0"], "batch_size: found 0"),
        (["--device", "nothing"], "device: 'nothing' cannot be used here"),
        (["--cache_limit", "much"], "cache_limit: found 'much', expected a size such as 20GB"),
        (["--output_dir", "/proc/none"], "/proc/none is not writable"),
    ],
)
def test_mistakes_name_the_value_and_how_to_fix_it(models, data, tmp_path, change, message, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SystemExit, match="error: ") as stopped:
        main([*words(models, data, tmp_path), *change])
    assert message in str(stopped.value)
    assert not (tmp_path / "out").exists()


def test_models_are_named_by_the_end_of_their_place(models, data, tmp_path, monkeypatch):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    for name in "ab":
        (tmp_path / name / "clip").symlink_to(models["clip"])
    monkeypatch.chdir(tmp_path)
    shared = ["--benchmarks", "sugarcrepe", "--data_dir", str(data), "--no_cache", "--device", "cpu"]
    main(["a/clip", "b/clip/", *shared])
    assert list(results(tmp_path / "runs" / "evaluation-a-clip-b-clip")["models"]) == ["a/clip", "b/clip"]
    monkeypatch.chdir(tmp_path / "a" / "clip")
    main([".", *shared, "--output_dir", str(tmp_path / "here")])
    assert list(results(tmp_path / "here")["models"]) == ["clip"]


def test_missing_photographs_make_it_a_part_of_the_benchmark(models, data, tmp_path):
    (tmp_path / "some").mkdir()
    for number in range(0, 20, 2):
        (tmp_path / "some" / f"{number}.png").symlink_to(data / "val2017" / f"{number}.png")
    main(words(models, data, tmp_path, "--data", f"val2017={tmp_path / 'some'}"))
    report = results(tmp_path / "out")
    assert {line["benchmark"] for line in report["results"]} == {"SugarCrepe (part)"}
    assert report["results"][0]["subset"] == "macro of 7 subsets"
    assert report["benchmarks"]["sugarcrepe"]["left_out"] == {"image missing": 17}


def test_how_it_was_made_is_written_down(done):
    config = results(done)["config"]
    assert config["command"].startswith("hfcomp evaluate clip=") and config["date"].startswith("20")


def test_weights_that_give_nan_are_reported(models, data, tmp_path):
    broken = AutoModel.from_pretrained(models["clip"])
    torch.nn.init.constant_(broken.text_projection.weight, torch.nan)
    broken.save_pretrained(tmp_path / "broken")
    AutoProcessor.from_pretrained(models["clip"]).save_pretrained(tmp_path / "broken")
    with pytest.raises(SystemExit, match="sugarcrepe: failed: clip: .*NaN"):
        main(words({"clip": tmp_path / "broken"}, data, tmp_path, names=("clip",)))


def test_captions_that_tie_because_they_were_cut_are_counted(models, data, tmp_path):
    folder = shutil.copytree(data, tmp_path / "data")
    for path in (folder / "sugarcrepe").glob("*.json"):
        rows = json.loads(path.read_text())
        for row in rows.values():
            row["caption"] = " ".join([row["caption"]] * 20)
            row["negative_caption"] = f"{row['caption']} too"
        path.write_text(json.dumps(rows))
    main(words(models, folder, tmp_path, names=("clip",)))
    (note,) = [note for note in results(tmp_path / "out")["notes"] if "were cut" in note]
    match = re.fullmatch(
        r"sugarcrepe: (\d+) texts are longer .* and were cut, (\d+) of them to the tokens of .*", note
    )
    assert int(match[1]) == 2 * int(match[2])


def test_ties_may_count_as_other_tools_count_them(models, data, tmp_path):
    lines = {}
    for rule in ("wrong", "half", "win"):
        extra = ["--tie", rule, "--overwrite", "--blind", "constant"]
        main(words(models, data, tmp_path, *extra, names=("clip",)))
        report = results(tmp_path / "out")
        assert report["tie_rule"] == rule
        lines[rule] = report["results"][0]["models"]["constant"]["value"]
    assert lines == pytest.approx({"wrong": 0.0, "half": 0.5, "win": 1.0})


def test_unavailable_is_told_apart_from_wrong(models, data, tmp_path, monkeypatch):
    def gone(*_):
        raise Unavailable("it is gone.", "Ask its authors.")

    monkeypatch.setattr("hfcomp.evaluation.loaded.load_items", gone)
    with pytest.raises(SystemExit, match="no benchmark"):
        main(words(models, data, tmp_path))


def test_texts_alone_are_scored_where_no_image_can_be_had(models, tmp_path):
    (tmp_path / "data" / "sugarcrepe_pp").mkdir(parents=True)
    for subset in SUBSETS:
        row = {
            "id": 0,
            "filename": "1.jpg",
            "caption": "a red cube",
            "caption2": "a cube",
            "negative_caption": "a ball",
        }
        (tmp_path / "data" / "sugarcrepe_pp" / f"{subset}.json").write_text(json.dumps([row]))
    main(words(models, tmp_path / "data", tmp_path, benchmarks="sugarcrepe_pp", names=("clip",)))
    report = results(tmp_path / "out")
    assert {line["metric"] for line in report["results"]} == {"text only"}
    assert any(
        "COCO-Caption2017 cannot be read" in note and "--data val2017=FOLDER" in note for note in report["notes"]
    )


def test_an_incomplete_model_ends_the_command_with_one_line(models, data, tmp_path):
    broken = shutil.copytree(models["clip"], tmp_path / "broken")
    state = load_file(broken / "model.safetensors")
    del state["vision_model.encoder.layers.0.self_attn.q_proj.weight"], state["logit_scale"]
    save_file(state, broken / "model.safetensors", metadata={"format": "pt"})
    started = processes.start(words_of_process({"clip": models["clip"], "other": broken}, data, tmp_path))
    said = started.communicate(timeout=120)[0]
    assert started.returncode == 1
    (line,) = [line for line in said.splitlines() if "q_proj" in line]
    assert line.startswith(f"error: {broken}: the weights lack ['logit_scale', 'vision_model.encoder.layers.0.")
    assert "Traceback" not in said
    assert not list(tmp_path.glob("cache/**/*.safetensors")) and not (tmp_path / "out").exists()


def words_of_process(models, data, folder) -> list[str]:
    given = words(models, data, folder, benchmarks="magic,sugarcrepe")  # one is skipped
    given = [word for at, word in enumerate(given) if "--device" not in (word, given[at - 1])]
    return ["-m", "hfcomp.cli", "evaluate", *given]


def test_two_processes_write_the_same_items_as_one(models, data, tmp_path):
    main(words(models, data, tmp_path / "one"))
    started = processes.launch(2, words_of_process(models, data, tmp_path / "two"), env=os.environ)
    said = processes.outputs(started, 120)
    assert (tmp_path / "two" / "out" / "results.json").exists(), "\n".join(said)[-3000:]
    one, two = (pd.read_parquet(tmp_path / name / "out" / "items.parquet") for name in ("one", "two"))
    pd.testing.assert_frame_equal(one, two)


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_cache(models, data, tmp_path):
    main(words(models, data, tmp_path / "whole"))
    started = processes.start(words_of_process(models, data, tmp_path / "killed"))
    cache = tmp_path / "killed" / "cache"
    while started.poll() is None and not list(cache.glob("*/*.safetensors")):
        time.sleep(0.01)
    os.kill(started.pid, signal.SIGKILL)
    started.communicate()
    main(words(models, data, tmp_path / "killed", "--overwrite"))
    whole, killed = (pd.read_parquet(tmp_path / name / "out" / "items.parquet") for name in ("whole", "killed"))
    pd.testing.assert_frame_equal(whole, killed)


def test_a_table_of_your_own_is_scored_under_its_own_names(models, tmp_path):
    rows = tiny.pairs(4)
    for row, image in enumerate(rows["image"]):
        image.save(tmp_path / f"{row}.png")
    lines = [f"{row}.png\t{caption}\n" for row, caption in enumerate(rows["caption"])]
    (tmp_path / "pairs.tsv").write_text("filepath\ttitle\n" + "".join(lines))
    rows.to_parquet(tmp_path / "pairs.parquet")
    given = [f"clip={models['clip']}", "--device", "cpu", "--no_cache"]
    own = [*("--benchmarks", str(tmp_path / "pairs.tsv")), *("--column_names", "image=filepath,caption=title")]
    main([*given, *own, "--output_dir", str(tmp_path / "tsv")])
    main([*given, "--benchmarks", str(tmp_path / "pairs.parquet"), "--output_dir", str(tmp_path / "parquet")])
    items = {name: pd.read_parquet(tmp_path / name / "items.parquet") for name in ("tsv", "parquet")}
    recall = {name: frame[frame["metric"].str.contains("recall")] for name, frame in items.items()}
    assert len(recall["tsv"]) == 8
    assert recall["tsv"]["value"].tolist() == recall["parquet"]["value"].tolist()
    with pytest.raises(SystemExit, match="column_names .*own files"):
        main([*given, "--benchmarks", "sugarcrepe", *own[2:]])
    with pytest.raises(SystemExit, match="columns 'image', 'caption'.*image=filepath,caption=title"):
        main([*given, *own[:2], "--output_dir", str(tmp_path / "unnamed")])


def test_published_numbers_are_beside_the_measured_ones(models, data, tmp_path, capsys):
    given = words(models, data, tmp_path, "--published", names=())
    main([f"openai/clip-vit-base-patch32={models['clip']}", f"mine={models['other']}", *given])
    shown = " ".join(capsys.readouterr().out.split())
    assert "openai/clip-vit-base-patch32 (published as CLIP ViT-B/32): " in shown and "numbers: mine." in shown
    numbers = results(tmp_path / "out")["published"]
    assert {number["model"] for number in numbers} == {"openai/clip-vit-base-patch32"}
    assert {
        (number["source"], number["published"]) for number in numbers if number["subset"] == "macro of 7 subsets"
    } >= {("C2LIP", 0.731)}
    cli.main(["compare", str(tmp_path / "out"), "--published"])
    assert "[1] C2LIP, arXiv:2603.25722v1, Table A3." in capsys.readouterr().out
