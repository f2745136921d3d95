"""Fresh files for tests that follow advice."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest

from hfcomp import cli
from hfcomp.experiments import study
from tests import tiny

ROWS = 8
CAPTIONS = ("a red cube on a blue ball", "a green cone on a white ring", "a dog on the large table")


@pytest.fixture
def photographs(tmp_path) -> Path:
    """A CSV file whose columns have other names, beside its images."""
    folder = tmp_path / "photographs"
    folder.mkdir()
    lines = ["file,text"]
    for row in range(ROWS):
        tiny.image(row).save(folder / f"{row}.png")
        lines.append(f"{row}.png,{CAPTIONS[row % len(CAPTIONS)]} {row}")
    (folder / "rows.csv").write_text("\n".join([*lines, ""]))
    return folder / "rows.csv"


@pytest.fixture
def pairs_file(tmp_path) -> Path:
    """JSON lines with images beside them, captions and a negative caption each."""
    folder = tmp_path / "pairs"
    folder.mkdir()
    lines = []
    for row in range(ROWS):
        tiny.image(row).save(folder / f"{row}.png")
        text = f"{CAPTIONS[row % len(CAPTIONS)]} {row}"
        negatives = [text.replace(" a ", " another ")]
        lines.append({"image": f"{row}.png", "caption": text, "negative_captions": negatives})
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder / "rows.jsonl"


@pytest.fixture
def splits(tmp_path) -> Path:
    """16 rows to train on and 8 others to score, with negatives and negative images, as a folder of a dataset."""
    rows = tiny.pairs(24, ragged=False)
    parts = {"train": rows.select(range(16)), "test": rows.select(range(16, 24))}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "splits")
    return tmp_path / "splits"


class Begins(Exception):
    """A run that would take its folder now: everything that is checked before has passed."""


@pytest.fixture
def train_begins(monkeypatch, tmp_path):
    """Gives `hfcomp train` words, and wants it to come as far as its folder; of a dry run nothing else is done."""

    def take(*words, **options):
        raise Begins

    def begins(*words: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(study, "run_folder", take)
            with pytest.raises(Begins):
                cli.main(["train", *map(str, words)])

    monkeypatch.chdir(tmp_path)
    return begins
