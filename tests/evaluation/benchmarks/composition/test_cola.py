"""COLA's pairs in the authors' file, with photographs of Visual Genome (about 1 s)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks.composition.image_pairs import COLA, COLA_FILE, COLA_WEB
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, run_benchmark
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Unavailable
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import (
    Sighted,
    check_chance,
    check_known_scorers,
    items,
    numbered_texts,
    photos,
    repositories,
    scores,
)

PAIRS = ((0, 1), (2, 3), (4, 1))  # two of them share a photograph
TRUE = {number: [f"caption {number}"] for number in range(5)}
ADDRESS = "https://example.org/vg_gqa_images/{}.jpg"


def write(folder: Path, entries: list) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / COLA_FILE).write_text(json.dumps(entries))
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    pairs = [[ADDRESS.format(a), f"caption {a}", ADDRESS.format(b), f"caption {b}"] for a, b in PAIRS]
    photos(tmp_path / "cola" / "visual_genome", {f"{number}.jpg": number for number in range(5)})
    return write(tmp_path / "cola", pairs)


def test_known_scorers(folder):
    rows = items(COLA, folder)
    assert rows.rows["image_id"][:] == ["0.jpg", "2.jpg", "4.jpg"]
    check_known_scorers(COLA, rows, TRUE)


def test_a_random_scorer_is_at_chance():
    check_chance(COLA, numbered_texts("negative_captions"))


def test_the_paper_s_score_comes_first_and_asks_for_the_image_of_each_caption(folder):
    """Photograph 1 fits every caption, so that both captions of its two pairs have no answer."""
    every = [text for texts in TRUE.values() for text in texts]
    report = run_benchmark(COLA, items(COLA, folder), Sighted(oracle.knowing(TRUE | {1: every})))
    assert list(report.items["metric"].unique()) == ["image", "group", "text"]
    assert scores(COLA, report)["all", "image"] == pytest.approx(1 / 3)


def test_the_file_of_the_repository_and_a_folder_of_photographs(folder, monkeypatch):
    asked = repositories(monkeypatch, {COLA_WEB: folder})
    images = (folder / "visual_genome").rename(folder.with_name("photographs"))
    assert len(items(COLA, None, visual_genome=images).rows) == 3 and asked == [(COLA_WEB, (COLA_FILE,))]
    with pytest.raises(Unavailable, match="The folder visual_genome of images is missing"):
        load_items(COLA)


def test_gaps_are_left_out_and_errors_named(folder):
    (folder / "visual_genome" / "3.jpg").unlink()
    assert items(COLA, folder).left_out == {NO_IMAGE: 1}
    write(folder, [["0.jpg", "a", "1.jpg", ""], ["0.jpg", "a", "1.jpg", "b"]])
    assert items(COLA, folder).left_out == {EMPTY_CAPTION: 1}
    write(folder, [["0.jpg", "a", "1.jpg"]])
    with pytest.raises(ValueError, match="entry 0: expected a list of image, caption, other image, other caption"):
        items(COLA, folder)
