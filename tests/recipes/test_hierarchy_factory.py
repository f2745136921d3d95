"""`make hierarchy`: its legs on a few drawn images with a scripted server; with training, which is slow."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from pathlib import Path

import pytest

from dataset_builders.magic import calibration, factory
from hfcomp.data.loading import load_training_set
from hfcomp.factory.magic.hierarchy import read_hierarchy
from hfcomp.reading import read_json
from hfcomp.writing import write_json
from tests import tiny
from tests.factory.magic.sets import TAXONOMY, WORDS
from tests.factory.writers.endpoint import serving, text

PHOTOGRAPHS, CAPTIONED = 48, 80


def caption(number: int) -> str:
    return f"A {WORDS[number % len(WORDS)]} number {number}"


@pytest.fixture(scope="module")
def data(tmp_path_factory, old_clip) -> Path:
    """A folder as `HFCOMP_REAL_DATA`: 80 images with captions, and photographs of the first 48."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("coco/open_256", "clip_tokenizer"):
        (folder / name).mkdir(parents=True)
    lines = []
    for number in range(PHOTOGRAPHS):
        name = f"coco/open_256/{number}.png"
        tiny.image(number).save(folder / name)
        lines.append({"image": name, "captions": [caption(number)], "image_id": str(number), "license": "by"})
    (folder / "coco_open_256.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    annotations = [{"image_id": number, "caption": caption(number)} for number in range(CAPTIONED)]
    images = [{"id": number} for number in range(CAPTIONED)]
    write_json(folder / "coco" / "captions_val2017.json", {"images": images, "annotations": annotations})
    for name in ("vocab.json", "merges.txt"):
        (folder / "clip_tokenizer" / name).write_bytes((old_clip / name).read_bytes())
    (folder / "taxonomy.yaml").write_text(TAXONOMY)
    return folder


@pytest.fixture
def run(data, tmp_path, monkeypatch):
    def run(*steps: str) -> Path:
        monkeypatch.setenv("HFCOMP_REAL_DATA", str(data))
        taxonomy = ["--taxonomy", str(data / "taxonomy.yaml"), "--shared_levels", "3", "--negative_similarity", "-1"]
        factory.main(["--output", str(tmp_path / "out"), *taxonomy, "--only", *steps])
        return tmp_path / "out"

    return run


def written_files(out: str) -> dict[str, str]:
    """The list at the end, by what of the folder was written."""
    return dict(re.findall(r"^\S*/out/(\S+): (.+)$", out.rpartition("\nWritten\n")[2], re.MULTILINE))


def test_the_hierarchy_is_of_all_captions_and_the_set_of_the_photographs(run, capsys):
    folder = run("set")
    out = capsys.readouterr().out
    assert written_files(out) == {"magic": f"{PHOTOGRAPHS} photographs in groups of abstract concepts"}
    assert "Plumbing, not quality" in out
    concepts = read_hierarchy(folder / "magic").concepts
    assert {concept.name: concept.images for concept in concepts} == dict.fromkeys(WORDS, 20)
    rows = [load_training_set(str(folder / "magic"), split=split, config="levels") for split in ("train", "test")]
    assert sum(map(len, rows)) == PHOTOGRAPHS
    assert set(rows[0]["level_4"]) == {"living thing", "artifact"}


def test_concepts_of_a_random_model_are_refused_and_counted_or_the_run_fails(run, monkeypatch, capsys):
    answers = {"address": ""}

    @contextmanager
    def serve(model):
        yield answers["address"]

    monkeypatch.setattr(factory, "transformers_serve", serve)
    with serving(text("one two three four five six seven")) as server:
        answers["address"] = server.base_url
        folder = run("llm")
    asked, files = factory.LLM_ROWS, written_files(capsys.readouterr().out)
    (summary,) = files.values()
    assert re.match(f"{asked} of {asked} concepts .* rejected", summary)
    lines = (folder / next(iter(files))).read_text().splitlines()
    assert len(lines) == asked and all("longer than a name" in line for line in lines)
    with serving(text("pet")) as server, pytest.raises(ValueError, match=f"0 of {asked} .* 50%"):
        answers["address"] = server.base_url
        assert not (folder / "random_answers").exists(), "refused answers are not kept"
        (folder / "random_concepts").rename(folder / "old_random_concepts")
        run("llm")


def test_thresholds_are_measured_on_names_of_captions(monkeypatch):
    scenes = {"ride": "wave", "eat": "pizza", "throw": "frisbee"}
    captions = {
        f"{verb}{number}": [f"A man is {verb.rstrip('e')}ing a {noun} number {number}"]
        for verb, noun in scenes.items()
        for number in range(6 if verb != "throw" else 2)
    }
    reports = []
    monkeypatch.setattr(calibration, "read_captions", lambda: captions)
    monkeypatch.setattr(calibration, "render_terminal", reports.append)
    calibration.main(["--encoder", "captions"])
    rows = {row[0]: row[1:4] for row in reports[0].sections[0].parts[0].rows}
    assert rows["verb object"] == ["3", "0", "2"]  # "throw frisbee" is too small


@pytest.mark.slow
def test_clear_glass_trains_on_the_set_and_is_scored_by_level(run):
    """About 60 s, in a process of its own."""
    folder = run("set", "training")
    report = (folder / "clear_glass" / "report.md").read_text()
    assert "MAGIC levels" in report and "MAGIC captions" in report
    results = read_json(folder / "clear_glass" / "results.json")
    assert results["stages"][-1]["steps"] == 20
