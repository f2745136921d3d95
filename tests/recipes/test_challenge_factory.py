"""`make challenge`: both steps on a small scale; photographs are drawn, and the models of the sandbox are random."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from datasets import load_dataset

from dataset_builders.inpaintcoco import factory
from hfcomp.data.built_sets.files import read_manifest
from hfcomp.reading import read_json
from tests import tiny

CAPTIONS = ("A red dog on a bed", "A small cat in a car", "A person with a large umbrella", "A green bus")
PHOTOGRAPHS = 8


@pytest.fixture(scope="module")
def data(tmp_path_factory, old_clip) -> Path:
    """A folder as `HFCOMP_REAL_DATA`."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("coco/open_256", "clip_tokenizer"):
        (folder / name).mkdir(parents=True)
    lines = []
    for number in range(PHOTOGRAPHS):
        name = f"coco/open_256/{number}.png"
        tiny.image(number).resize((64, 48)).save(folder / name)
        captions = [CAPTIONS[number % len(CAPTIONS)]]
        license = "Attribution License"
        lines.append({"image": name, "captions": captions, "image_id": str(number), "license": license})
    (folder / "coco_open_256.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in ("vocab.json", "merges.txt"):
        (folder / "clip_tokenizer" / name).write_bytes((old_clip / name).read_bytes())
    return folder


@pytest.fixture
def run(data, tmp_path, monkeypatch):
    def run(*words: str, has_data: bool = True) -> Path:
        monkeypatch.setenv("HFCOMP_REAL_DATA", str(data) if has_data else "")
        factory.main(["--output", str(tmp_path / "out"), "--device", "cpu", *words])
        return tmp_path / "out"

    return run


def written_files(out: str) -> dict[str, str]:
    """The list at the end, by what of the folder was written."""
    return dict(re.findall(r"^\S*/out/(\S+): (.+)$", out.rpartition("\nWritten\n")[2], re.MULTILINE))


def models(folder: Path) -> Path:
    """A run of the recipe with three random models."""
    for number, name in enumerate(("base", "controls/same-batch", "method")):
        tiny.clip(folder / name, seed=number)
    return folder


@pytest.mark.slow
def test_photographs_go_all_the_way_and_the_output_says_that_they_are_plumbing(run, capsys):
    folder = run("--only", "photographs")
    out = capsys.readouterr().out
    assert out.count("plumbing, not quality") == 2
    assert written_files(out)["photographs/evaluation/report.md"] == "a random CLIP on this set"
    built = folder / "photographs" / "inpaintcoco"
    rows = load_dataset(str(built), split="test")
    assert len(rows) >= PHOTOGRAPHS and {*rows["license"]} == {"Attribution License"}
    assert "automatic" in rows["worker"][:] and not any("script" in name for name in rows["worker"])
    card = (built / "README.md").read_text()
    assert "| every fifth automatic edit, by the script |" in card and "| segmenter | LOCAL/clipseg (sha256:" in card


def test_the_sandbox_needs_no_data_and_its_scores_are_those_of_its_own_evaluation(run, capsys, tmp_path):
    words = ("--only", "sandbox", "--scenes", "10", "--run", str(models(tmp_path / "run")))
    folder = run(*words, has_data=False)
    out = capsys.readouterr().out
    number = read_manifest(folder / "sandbox" / "inpaintcoco")["rows"]
    assert f"{number} of 30 scenes accepted; every edited image equals the counterfactual" in out
    assert f"{3 * number} of {3 * number} image scores equal those of 'sandbox edited' for the same scene" in out
    results = read_json(folder / "sandbox" / "evaluation" / "results.json")
    assert set(results["models"]) == {"base", "same-batch", "Slipform"}
    assert "plumbing" not in out


def test_what_is_missing_is_named(run, tmp_path):
    with pytest.raises(ValueError, match="HFCOMP_REAL_DATA"):
        run("--only", "photographs", has_data=False)
    with pytest.raises(ValueError, match="base .*missing.*accelerate launch"):
        run("--only", "sandbox", "--run", str(tmp_path / "nothing"), has_data=False)
    with pytest.raises(ValueError, match="scenes: found 0"):
        run("--only", "sandbox", "--scenes", "0", has_data=False)


@pytest.mark.slow
def test_without_a_run_one_is_trained(run, monkeypatch):
    """About two minutes: the recipe with its control, shortened."""

    def train(recipe, config, values):
        given = values | {"dataset_rows": 96, "max_steps": 2, "batch_size": 16, "evaluation_items": 2, "use_cpu": True}
        original(recipe, config, given)

    original = factory.train
    monkeypatch.setattr(factory, "train", train)
    folder = run("--only", "sandbox", "--scenes", "4", has_data=False)
    assert (folder / "sandbox" / "slipform" / "finished").is_file()
    assert (folder / "sandbox" / "evaluation" / "report.md").is_file()
