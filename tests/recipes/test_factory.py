"""`make factory`: its legs on a few drawn images with a scripted server; the whole of it is slow."""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from dataset_builders import serving as transformers_serving
from dataset_builders.concretebatch import factory
from hfcomp.errors import one_line_errors
from hfcomp.modeling.random_clip import RANDOM_CLIPS, write_random_clip
from hfcomp.reading import read_json
from hfcomp.writing import write_json
from tests import tiny
from tests.factory.writers.endpoint import Answer, caption_of, completion, serving, text

ROWS = 6
CONFIGS = ("high_concreteness", "random")
RATINGS = {
    **{"cube": 4.9, "ball": 4.9, "cone": 4.8, "ring": 4.7, "star": 4.6, "cross": 4.5},
    **{"red": 4.2, "blue": 3.8, "green": 4.1, "yellow": 4.2, "white": 4.4, "black": 3.8},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory, old_clip) -> Path:
    """A folder as `HFCOMP_REAL_DATA`, without what is trained and scored on."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("coco/open_256", "concreteness", "clip_tokenizer"):
        (folder / name).mkdir(parents=True)
    texts = tiny.captions()[::37]
    lines = []
    for number in range(ROWS):
        name = f"coco/open_256/{number}.png"
        tiny.image(number).save(folder / name)
        lines.append({"image": name, "captions": [texts[number]], "image_id": str(number), "license": "by"})
    (folder / "coco_open_256.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    images = [{"id": number} for number in range(20)]
    captions = [{"image_id": number, "caption": texts[number % len(texts)]} for number in range(20)]
    write_json(folder / "coco" / "captions_val2017.json", {"images": images, "annotations": captions})
    rated = (f"{word}\t{rating}\tNoun" for word, rating in RATINGS.items())
    (folder / factory.RATINGS).write_text("\n".join(["Word\tConc.M\tDom_Pos", *rated]) + "\n")
    for name in ("vocab.json", "merges.txt"):
        (folder / "clip_tokenizer" / name).write_bytes((old_clip / name).read_bytes())
    return folder


@pytest.fixture
def run(data, tmp_path, monkeypatch):
    def run(*steps: str) -> Path:
        monkeypatch.setenv("HFCOMP_REAL_DATA", str(data))
        factory.main(["--output", str(tmp_path / "out"), "--configs", ",".join(CONFIGS), "--only", *steps])
        return tmp_path / "out"

    return run


def written_files(out: str) -> dict[str, str]:
    """The list at the end, by what of the folder was written."""
    return dict(re.findall(r"^\S*/out/(\S+): (.+)$", out.rpartition("\nWritten\n")[2], re.MULTILINE))


def test_keywords_pairs_and_their_analysis_with_a_gallery(run, data, tmp_path, capsys):
    for name in ("base", "method"):  # in the place of what is trained
        config = RANDOM_CLIPS["vit_tiny"]()
        write_random_clip(tmp_path / "out" / "slipform" / name, str(data / "clip_tokenizer"), seed=0, config=config)
    folder = run("keywords", "pairs", "analysis")
    files = written_files(capsys.readouterr().out)
    assert list(files) == ["keywords.md", "concretebatch", "analysis/report.md", "analysis/gallery.png"]
    keywords = (folder / "keywords.md").read_text()
    assert keywords.count("| 4.77 / 4.85 |") == keywords.count("| high_concreteness |") == 3
    for order in ("top_k *", "category_first", "sample"):
        assert re.search(rf"\| high_concreteness \| {re.escape(order)} \| 3 \| 20 \|", keywords)
    assert files["concretebatch"].startswith(f"{2 * ROWS} pairs in the configurations {', '.join(CONFIGS)}")
    report = (folder / "analysis" / "report.md").read_text()
    assert "captions come from a lexicon" in report
    assert "| BERTScore |" in report and "| DINOScore |" in report and "gallery.png)" in report
    with Image.open(folder / "analysis" / "gallery.png") as picture:
        assert 4 * 224 < picture.width < 6 * 224  # two pairs side by side


def test_captions_of_a_random_model_are_refused_and_counted_or_the_run_fails(run, monkeypatch, capsys):
    answers = {"address": ""}

    @contextmanager
    def serve(model):
        yield answers["address"]

    monkeypatch.setattr(factory, "transformers_serve", serve)
    with serving(text("dog dog dog")) as server:
        answers["address"] = server.base_url
        folder = run("llm")
    out = capsys.readouterr().out
    assert re.search(f"{ROWS} of {ROWS} captions .* rejected, .* 3 attempts", out)
    assert re.search(rf"other words changed +{3 * ROWS}\n", out)
    (place,) = written_files(out)
    reasons = [json.loads(line)["reason"] for line in (folder / place).open()]
    assert reasons == ["no negative caption, other words changed"] * ROWS

    def good(body):
        caption, keyword = caption_of(body)
        return Answer(completion(caption.replace(keyword, "robot", 1)))

    with serving(good) as server, pytest.raises(ValueError, match="0 of 6 "):
        answers["address"] = server.base_url
        assert not (folder / "random_answers").exists(), "refused answers are not kept"
        (folder / "random_captions").rename(folder / "old_random_captions")
        run("llm")


def test_what_is_missing_is_said_before_anything_is_done(run, tmp_path, monkeypatch):
    monkeypatch.setattr(transformers_serving, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="fastapi, .*: pip install 'transformers"), \
            one_line_errors():  # fmt: skip
        run("keywords", "llm")
    monkeypatch.delenv("HFCOMP_REAL_DATA")
    with pytest.raises(ValueError, match="HFCOMP_REAL_DATA"):
        factory.main(["--output", str(tmp_path / "out"), "--only", "keywords"])
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_whole_of_it_on_some_photographs(tmp_path, monkeypatch, capfd):
    """About 100 s: the real folder, with fewer captions to choose keywords of, and 40 photographs."""
    if "HFCOMP_REAL_DATA" not in os.environ:
        pytest.skip("HFCOMP_REAL_DATA is not set; it names a folder with COCO photographs and SugarCrepe")
    real, data = Path(os.environ["HFCOMP_REAL_DATA"]), tmp_path / "data"
    (data / "coco").mkdir(parents=True)
    for name in ("coco_open_256.jsonl", "coco/open_256", "sugarcrepe", "concreteness", "clip_tokenizer"):
        (data / name).symlink_to(real / name)
    content = read_json(real / "coco" / "captions_val2017.json")
    ids = {image["id"] for image in content["images"][:50]}
    captions = [annotation for annotation in content["annotations"] if annotation["image_id"] in ids]
    write_json(data / "coco" / "captions_val2017.json", {"images": content["images"][:50], "annotations": captions})
    monkeypatch.setenv("HFCOMP_REAL_DATA", str(data))
    factory.main(["--output", str(tmp_path / "out"), "--limit", "40", "--allow_outside_files"])
    out = capfd.readouterr().out
    files = written_files(out)
    assert list(files)[:2] == ["keywords.md", "concretebatch"] and list(files)[3:] == [
        *("slipform/report.md", "analysis/report.md", "analysis/gallery.png")
    ]
    assert all((tmp_path / "out" / name).exists() for name in files)
    refused = re.search(r"(\d+) of (\d+) captions from a random language model were rejected", out)
    assert int(refused[1]) >= 0.9 * int(refused[2]) > 0
    assert "random weights" in (tmp_path / "out" / "slipform" / "report.md").read_text()
    results = json.loads((tmp_path / "out" / "slipform" / "results.json").read_text())
    assert results["stages"][-1]["images"] == 2 * results["stages"][-1]["steps"] * 16  # a negative image each
    assert "base" in results["models"] and "Slipform" in results["models"]
