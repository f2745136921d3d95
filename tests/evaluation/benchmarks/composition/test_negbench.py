"""NegBench in its authors' CSV files (about 1 s)."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks.composition.negbench import NEGBENCH
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, run_benchmark
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Unavailable
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import Sighted, check_chance, check_known_scorers, items, photos, scores

MCQ_COCO, MCQ_VOC, RETRIEVAL, PLAIN = NEGBENCH
FILES = {benchmark.name: benchmark.data[0].required_files[0] for benchmark in NEGBENCH}
KINDS = ("positive", "negative", "hybrid", "hybrid")
TRUE = {row: [f"true {row}"] for row in range(4)}
PHOTOS = 12


def table(folder: Path, file: str, columns: list[str], rows: list[list]) -> Path:
    stream = io.StringIO()
    csv.writer(stream).writerows([columns, *rows])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(stream.getvalue(), encoding="utf-8")
    return folder


def questions(folder: Path, file: str, answers: tuple = (0, 0, 2, 3)) -> Path:
    """The right caption is first in the authors' files; elsewhere it counts too."""
    rows = []
    for row, (answer, kind) in enumerate(zip(answers, KINDS, strict=True)):
        texts = [f"false {row} {place}" for place in range(3)]
        if str(answer).isdigit():
            texts.insert(int(answer), f"true {row}")
        rows.append([answer, *[*texts, ""][:4], kind, f"/their/disk/{row}.jpg"])
    columns = ["correct_answer", *(f"caption_{place}" for place in range(4)), "correct_answer_template", "image_path"]
    return table(folder, file, columns, rows)


def retrieval(folder: Path, file: str) -> Path:
    """Lists as Python writes them; one caption has an apostrophe."""
    rows = [[f"/disk/{row}.jpg", str([f"no dog's on {row}", f"second, {row}"]), row] for row in range(PHOTOS)]
    return table(folder, file, ["filepath", "captions", "image_id"], rows)


@pytest.mark.parametrize(("benchmark", "pool"), [(MCQ_COCO, "val2017"), (MCQ_VOC, "voc2007")], ids=["coco", "voc"])
def test_known_scorers_on_questions(tmp_path, benchmark, pool):
    folder = questions(tmp_path / "negbench", FILES[benchmark.name])
    photos(folder / pool, {f"{row}.jpg": row for row in range(4)})
    rows = items(benchmark, folder)
    assert rows.rows["image_id"][:] == [f"{row}.jpg" for row in range(4)] and rows.rows["subset"][:] == list(KINDS)
    check_known_scorers(benchmark, rows, TRUE)


def test_a_random_scorer_is_at_chance():
    negatives = [[f"{slot} of {row}" for slot in range(3)] for row in range(1500)]
    check_chance(MCQ_COCO, {"caption": [f"a {row}" for row in range(1500)], "negative_captions": negatives})


def test_scores_by_kind_of_question(tmp_path):
    folder = questions(tmp_path / "negbench", FILES[MCQ_COCO.name])
    photos(folder / "val2017", {f"{row}.jpg": row for row in range(4)})
    encoder = Sighted(oracle.knowing(TRUE | {1: []}))
    values = scores(MCQ_COCO, run_benchmark(MCQ_COCO, items(MCQ_COCO, folder), encoder))
    expected = {"positive": 1, "negative": 0, "hybrid": 1, "all questions": 3 / 4}
    assert {subset: values[subset, "caption choice"] for subset in expected} == expected


@pytest.mark.parametrize("benchmark", [RETRIEVAL, PLAIN], ids=lambda benchmark: benchmark.name)
def test_scorers_against_chance_in_retrieval(tmp_path, benchmark):
    folder = retrieval(tmp_path / "negbench", FILES[benchmark.name])
    photos(folder / "val2017", {f"{row}.jpg": row for row in range(PHOTOS)})
    true = {row: [f"no dog's on {row}", f"second, {row}"] for row in range(PHOTOS)}
    check_known_scorers(benchmark, items(benchmark, folder), true)
    drawn = oracle.run(benchmark, folder, oracle.random(PHOTOS)).items.query("metric == 'text-to-image recall@5'")
    assert drawn["chance"].eq(5 / PHOTOS).all()
    assert drawn["value"].mean() == pytest.approx(5 / PHOTOS, abs=4 * (5 / 12 * 7 / 12 / len(drawn)) ** 0.5)


def test_gaps_are_left_out_and_counted(tmp_path):
    folder = questions(tmp_path / "negbench", FILES[MCQ_COCO.name])
    text = (folder / FILES[MCQ_COCO.name]).read_text().replace("true 1", " ")
    (folder / FILES[MCQ_COCO.name]).write_text(text)
    photos(folder / "val2017", {f"{row}.jpg": row for row in range(3)})
    assert items(MCQ_COCO, folder).left_out == {EMPTY_CAPTION: 1, NO_IMAGE: 1}


def test_what_is_wrong_in_a_file_is_named(tmp_path):
    folder = questions(tmp_path / "negbench", FILES[MCQ_COCO.name], answers=(0, 0, 4, 0))
    with pytest.raises(ValueError, match="line 4, .*'correct_answer': found '4', .* 0 to 3"):
        items(MCQ_COCO, folder)
    table(folder, FILES[RETRIEVAL.name], ["filepath", "captions"], [["1.jpg", "a dog"]])
    with pytest.raises(ValueError, match="line 2, .*'captions': found 'a dog'.*list"):
        items(RETRIEVAL, folder)
    table(folder, FILES[PLAIN.name], ["filepath"], [["1.jpg"]])
    with pytest.raises(ValueError, match="COCO_val_retrieval.csv, line 2: .*'captions'"):
        items(PLAIN, folder)


def test_without_the_files_it_says_where_they_are():
    for benchmark in NEGBENCH:
        with pytest.raises(Unavailable, match="https://drive.google.com.*--data negbench=DIR"):
            load_items(benchmark)
