"""What commands make of models: a point between two, the best point, another layout; and the list of benchmarks."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoProcessor

from hfcomp import cli
from hfcomp.evaluation.benchmarks import benchmarks
from hfcomp.sandbox.bases import base_folder
from tests.golden import rows
from tests.golden.folders import everything
from tests.golden.record import check, needs_newer_libraries
from tests.golden.test_golden import WRITE


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """The sandbox's CLIP, and the same with noise as a model that was tuned from it."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "base").symlink_to(base_folder("clip"))
    model, drawn = AutoModel.from_pretrained(folder / "base"), torch.Generator().manual_seed(7)
    with torch.no_grad():
        for values in model.parameters():
            values += 0.2 * values.abs().mean() * torch.randn(values.shape, generator=drawn)
    model.save_pretrained(folder / "tuned")
    AutoProcessor.from_pretrained(folder / "base").save_pretrained(folder / "tuned")
    return folder


@pytest.fixture(autouse=True)
def here(root, monkeypatch):
    monkeypatch.chdir(root)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


@needs_newer_libraries
def test_a_point_between_two_models(root):
    cli.main(["merge", "base", "tuned", "--alpha", "0.4", "--output", "merged"])
    check("merge", everything(root / "merged", root), write=WRITE)


@pytest.mark.slow
def test_the_best_point_between_two_models(root):
    for write in (rows.sugarcrepe, rows.flickr8k):
        write(root / "data")
    scored = ["--benchmarks", "sugarcrepe,flickr8k", "--data_dir", "data", "--device", "cpu"]
    cli.main(["merge", "base", "tuned", "--sweep", *scored, "--output", "swept"])
    files = everything(root / "swept", root, skip=["report.html"])
    del files["points.parquet"], files["items.parquet"]
    check("merge_sweep", files, write=WRITE)


@needs_newer_libraries
def test_the_layout_of_open_clip_and_back(root):
    cli.main(["convert", "base", "--to", "open_clip", "--output", "for_open_clip"])
    cli.main(["convert", "for_open_clip", "--output", "back"])
    files = {name: everything(root / name, root) for name in ("for_open_clip", "back")}
    check("convert", files, write=WRITE)


def test_all_that_is_known_of_the_benchmarks(capsys):
    cli.main(["evaluate", "--list"])
    hashes = {}
    listed = capsys.readouterr().out.splitlines()
    for name in benchmarks():
        cli.main(["evaluate", "--list", name])
        hashes[name] = hashlib.sha256(capsys.readouterr().out.encode()).hexdigest()[:16]
    check("benchmarks", {"all": listed, "hashes of all that is known": hashes}, write=WRITE)
