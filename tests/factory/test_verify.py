"""`hfcomp build verify` reads every file of a set: no damage to any of them passes as intact."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import datasets
import pytest

from hfcomp.cli import main
from hfcomp.data.built_sets.verification import verify_set
from tests import tiny

LOCKS = ".lock"


@pytest.fixture(scope="module")
def built_set(tmp_path_factory) -> Path:
    """A set of one build with its card. Never write into it."""
    folder = tmp_path_factory.mktemp("sets")
    datasets.DatasetDict({"train": tiny.pairs(6).select_columns(["image", "caption"])}).save_to_disk(folder / "rows")
    words = ["--source", folder / "rows", "--output", folder / "set", "--kinds", "swap", "--parser", "rules"]
    main(["build", "negatives", *map(str, words)])
    return folder / "set"


def verify(folder: Path) -> list[str]:
    lines: list[str] = []
    verify_set(folder, lines.append)
    return lines


def flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)


def test_every_file_has_a_line(built_set):
    lines = verify(built_set)
    named = {line.split()[1] for line in lines if line.startswith("ok  ")}
    assert named == {path.relative_to(built_set).as_posix() for path in built_set.rglob("*") if path.is_file()} - {
        LOCKS
    }


def test_a_card_that_was_edited_or_damaged_is_a_note(built_set, tmp_path):
    folder = shutil.copytree(built_set, tmp_path / "set")
    card = folder / "README.md"
    content = card.read_bytes()
    for place in random.Random(0).sample(range(len(content)), 25):
        flip(card, place / len(content))
        lines = verify(folder)
        assert "ok  README.md" not in lines
        assert [line for line in lines if line.startswith("note  README.md")]
        card.write_bytes(content)
    card.write_text(card.read_text() + "\nOur notes.\n")
    assert [line for line in verify(folder) if line.startswith("note  README.md")]
    card.unlink()
    (note,) = [line for line in verify(folder) if line.startswith("note  README.md")]
    assert "missing" in note and "`hfcomp build`" in note


def test_the_command_writes_the_card_again(built_set, tmp_path):
    folder = shutil.copytree(built_set, tmp_path / "set")
    (folder / "README.md").unlink()
    words = ["--source", built_set.parent / "rows", "--output", folder, "--kinds", "swap", "--parser", "rules"]
    main(["build", "negatives", *map(str, words)])
    assert verify(folder) == verify(built_set)


def test_a_card_of_an_earlier_version_has_no_checksum(built_set, tmp_path):
    folder = shutil.copytree(built_set, tmp_path / "set")
    card = folder / "README.md"
    card.write_text("".join(card.read_text().splitlines(keepends=True)[:-2]))
    lines = verify(folder)
    assert any(line.startswith("note  README.md has no checksum") for line in lines)
    assert lines[-1].endswith("are intact")
