"""What an audit reads: which photograph a row is of, and what is absent or not read."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import pytest
from datasets import Dataset

from hfcomp.analysis.audit.audit import audit
from hfcomp.analysis.audit.images import NO_IMAGES, duplicate_images
from hfcomp.analysis.audit.options import AuditOptions
from hfcomp.analysis.audit.reading import audit_set, read_audit_set
from hfcomp.analysis.audit.report import audit_report
from hfcomp.analysis.audit.texts import folds
from hfcomp.reporting.terminal import render_terminal
from tests import tiny
from tests.analysis.audit import sets
from tests.evaluation import small_sugarcrepe
from tests.evaluation.benchmarks import oracle


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photographs")
    for number in range(4):
        tiny.image(number).save(folder / f"{number}.png")
    return folder


def write_table(folder, rows, header=("image", "caption", "negative_captions")):
    with (folder / "own.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(folder / "own.csv")


def test_rows_of_a_file_without_ids_are_of_one_photograph(photographs, tmp_path):
    rows = [
        (photographs / f"{number}.png", f"a {number} {row}", f"b {row}") for number in range(4) for row in range(3)
    ]
    data = read_audit_set(write_table(tmp_path, rows), AuditOptions())
    assert data.image_ids == [f"{number}.png" for number in range(4) for _ in range(3)]
    assert len(data.first_rows) == 4 and len(folds(data.image_ids, 0)) == 4
    assert duplicate_images(data, folder=tmp_path / "hashes").value == 0
    assert len(data.notes) == 1 and "column image_id" in data.notes[0] and "image file" in data.notes[0]


def test_rows_with_neither_id_nor_image_are_counted():
    data = audit_set("own", Dataset.from_dict({"caption": ["a dog", "a cat"], "image_id": ["1", None]}), {})
    assert data.image_ids == ["1", "row 1"]
    assert any("neither an image_id" in note for note in data.notes)


def test_images_and_captions_that_are_absent_or_broken_are_named_in_the_terminal(photographs, tmp_path, capsys):
    (tmp_path / "broken.png").write_bytes(b"no image")
    files = [photographs / "0.png", tmp_path / "absent.png", photographs / "1.png", tmp_path / "broken.png"]
    captions = ["a dog", "a cat", "", "a bird"]
    path = write_table(tmp_path, [(*both, "a horse") for both in zip(files, captions, strict=True)])
    options = AuditOptions(no_cache=True)
    render_terminal(audit_report(audit(path, options, hashes=tmp_path / "hashes"), "own", ()))
    shown = " ".join(capsys.readouterr().out.split())
    assert "4 rows, 3 captions, 3 negatives, 3 images." in shown
    assert "1 row has no caption; the first: row 2" in shown
    assert "1 row has no image; the first: row 1" in shown and re.search(r"row 1, \S*absent\.png", shown)
    assert re.search("unreadable images.*: 1; .*row 3", shown)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("negative", "negative_captions=negative"),
        ("hard_negatives", "negative_captions=hard_negatives"),
        ("Negative_Captions", "negative_captions=Negative_Captions"),
    ],
)
def test_a_likely_name_of_the_negatives_is_proposed(name, meant):
    rows = Dataset.from_dict({"caption": ["a dog"], name: ["a cat"], "image_id": ["1"]})
    assert audit_set("own", rows, {}).notes == [f"column {name!r} is not read; did you mean --column_names {meant}?"]


def test_columns_under_unknown_names_are_listed_and_those_of_the_contract_are_not():
    rows = Dataset.from_dict({"caption": ["a dog"], "foil": ["a cat"], "image_id": ["1"], "license": ["CC0"]})
    (note,) = audit_set("own", rows, {}).notes
    assert "column 'foil'" in note and "license" not in note and "--column_names negative_captions=NAME" in note
    assert not sets.data().notes


def test_texts_of_blanks_are_empty():
    rows = {"caption": ["a dog", "  "], "negative_captions": [[" ", "a cat"], ["a cat"]], "image_id": ["1", "2"]}
    data = audit_set("own", Dataset.from_dict(rows), {})
    assert len(data.pairs) == 1 and len(data.texts) == 1
    without_caption, without_pair = data.notes
    assert "row 1" in without_caption and "caption" in without_caption and without_pair.endswith(": 2")


def test_checks_of_texts_count_rows_whose_image_is_missing(tmp_path):
    """35 rows of 20 photographs, of which the last 8 are missing: 11 rows."""
    folder = small_sugarcrepe.write(tmp_path)
    for number in range(12, 20):
        (folder / "val2017" / f"{number}.png").unlink()
    options = AuditOptions(data_dir=folder, benchmarks=("sugarcrepe_pp",), no_cache=True)
    data = read_audit_set("sugarcrepe", options)
    assert len(data) == len(data.pairs) == 35 and len(data.first_rows) == 12
    result = audit("sugarcrepe", options, hashes=tmp_path / "hashes")
    for name in ("blind", "bigram", "equal_negatives", "known_true", "duplicate_texts"):
        assert result.checks[name].of == 35
    assert any(note.startswith("sugarcrepe: 11 of 35 rows") for note in result.notes)
    copies = result.checks["duplicate_images"]
    assert copies.of == 12 and copies.reason == "11 of 35 rows have no image and are not compared"


def test_checks_of_texts_need_no_image_at_all(tmp_path, monkeypatch):
    oracle.HubOnDisk(monkeypatch)
    folder = small_sugarcrepe.write(tmp_path)
    (folder / "val2017").rename(tmp_path / "away")
    result = audit("sugarcrepe", AuditOptions(data_dir=folder, no_cache=True), hashes=tmp_path / "hashes")
    assert result.checks["blind"].of == 35
    assert result.checks["duplicate_images"].reason == result.checks["overlap"].reason == NO_IMAGES
    assert any(note.startswith("sugarcrepe: 35 of 35 rows") for note in result.notes)


def test_the_real_files(tmp_path):
    data = os.environ.get("HFCOMP_REAL_DATA")
    if data is None:
        pytest.skip("needs HFCOMP_REAL_DATA")
    (tmp_path / "sugarcrepe").symlink_to(Path(data) / "sugarcrepe")
    (tmp_path / "val2017").symlink_to(Path(data) / "coco" / "open_256")
    audited_set = read_audit_set("sugarcrepe", AuditOptions(data_dir=tmp_path))
    assert (
        len(audited_set.pairs) == 7511
        and int(audited_set.has_image.sum()) == 735
        and len(audited_set.first_rows) == 153
    )
