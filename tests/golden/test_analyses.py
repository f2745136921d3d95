"""What the commands leave that look at sets and models without training: files, pages, tables (about 5 s)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hfcomp import cli
from hfcomp.sandbox import training_set
from hfcomp.sandbox.bases import base_folder
from tests import tiny
from tests.analysis.pairs import models
from tests.factory.inpaintcoco import sets as inpaintcoco
from tests.factory.magic import sets as magic
from tests.golden import rows
from tests.golden.folders import everything, page, plain
from tests.golden.record import BY_MODELS, check, needs_newer_libraries
from tests.golden.test_golden import WRITE

MODEL = "--device cpu --no_cache"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("analyses")
    models.pairs(10).to_parquet(folder / "high.parquet")
    models.pairs(10, first=5, shift=2).to_parquet(folder / "low.parquet")
    drawn = training_set(24, 7, num_negatives=1)
    drawn.map(lambda _, row: {"image_id": f"image-{row // 2}"}, with_indices=True).to_parquet(
        folder / "scenes.parquet"
    )
    (folder / "base").symlink_to(base_folder("clip"))
    return folder


@pytest.fixture
def run(root, monkeypatch):
    """Runs a command whose paths begin at the root, without figures; returns what is in `out/<name>`."""
    monkeypatch.chdir(root)
    monkeypatch.setenv("HF_HOME", str(root / "home"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    def run(name: str, command: str, **settings: Any) -> dict[str, Any]:
        cli.main([*command.split(), "--output", f"out/{name}"])
        return everything(root / "out" / name, root, **settings) if (root / "out" / name).is_dir() else {}

    return run


@needs_newer_libraries
def test_pairs_of_two_sets_by_their_texts(run):
    words = "high=high.parquet low=low.parquet --models none --image_model none --text_model none --gallery 0"
    check("analyze", run("analyze", f"analyze {words} --device cpu", skip=["report.html"]), write=WRITE)


@pytest.mark.slow
def test_pairs_of_two_sets_by_models(run, root):
    from hfcomp.testing import write_tiny_dinov2

    write_tiny_dinov2(root / "dino")
    models.roberta(root / "roberta")
    words = "--models sandbox=base --image_model dino --text_model roberta --gallery 0"
    files = run("analyze_models", f"analyze high=high.parquet low=low.parquet {words} {MODEL}", skip=["report.html"])
    del files["report.md"]  # digits of the numbers in results.json
    for curve in files["results.json"]["curves"]:
        for name in ("across", "value", "low", "high"):
            curve[name] = curve[name][::20] if isinstance(curve.get(name), list) else curve.get(name)
    check("analyze_models", {BY_MODELS: files}, write=WRITE)


@pytest.mark.slow
def test_the_hierarchy_of_a_set(run, root):
    magic.source(root / "captioned", per_concept=5)
    words = "--writer taxonomy --taxonomy taxonomy.yaml --encoder captions --negative_similarity -1 --shared_levels 3"
    cli.main(["build", "magic", "--source", "captioned", *words.split(), "--output", "magic"])
    check("analyze_magic", run("hierarchy", "analyze magic magic --thumbnails 1"), write=WRITE)


def test_an_audit_with_a_model(run, root):
    rows.sugarcrepe(root / "benchmarks")
    check("audit", run("audit", f"audit scenes.parquet --model base --data_dir benchmarks {MODEL}"), write=WRITE)


def test_a_page_of_pairs_and_the_set_without_dropped_rows(run, root):
    run("gallery.html", f"gallery scenes.parquet --models sandbox=base --rows 4 --image_size 16 {MODEL}")
    held = page(root / "out" / "gallery.html")
    marks = [
        {"row": row["row"], "id": row["id"], "mark": mark}
        for row, mark in zip(held["data"][:2], ("drop", "keep"), strict=True)
    ]
    (root / "marks.json").write_text(json.dumps(held["about"]["set"] | {"marks": marks}))
    kept = run("kept", "gallery scenes.parquet --apply marks.json")
    scores = [row.pop("scores") for row in held["data"]]
    held["pictures"] = len(held["pictures"])
    check("gallery", {"page": plain(held, root), BY_MODELS: scores, "kept": kept}, write=WRITE)


def test_shares_of_the_gradient(run):
    files = run("probe", f"probe sandbox --dataset scenes.parquet --batch_sizes 4 8 --margins 0 1 {MODEL}")
    check("probe", {BY_MODELS: files["results.json"]}, write=WRITE)


def test_levels_of_names(run):
    files = run("levels", "levels base --rows 24 --candidates 2,all --device cpu", skip=["report.html"])
    files.pop("items.parquet")
    check("levels", files, write=WRITE)


def test_attention_of_image_tokens(root):
    tiny.image(0, (60, 40)).save(root / "image.png")
    words = ["--image", root / "image.png", "--text", "a red circle", "--values", root / "values.json"]
    cli.main(["attention", *map(str, [root / "base", *words, "--output", root / "drawn.png"]), "--device", "cpu"])
    values = json.loads((root / "values.json").read_text())
    check("attention", {BY_MODELS: plain(values, root)}, write=WRITE)


def test_the_progress_of_annotators(root, capsys):
    inpaintcoco.project(root / "project")
    capsys.readouterr()
    cli.main(["annotate", "progress", str(root / "project")])
    check("annotate_progress", plain(capsys.readouterr().out.splitlines(), root), write=WRITE)
