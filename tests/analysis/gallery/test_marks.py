"""Marks of a page applied to its dataset: what is dropped, what stays, and marks that are not of the set."""

from __future__ import annotations

import json
import re

import pytest
from datasets import DatasetDict

from hfcomp.analysis.gallery.marks import apply_marks, read_marks
from hfcomp.data.built_sets.verification import verify_set
from hfcomp.data.loading import load_training_set, undecoded
from tests import tiny
from tests.analysis.gallery.pages import dataset, encode, held, page, save_rows


def write_marks(source, folder, marks, changes=()):
    """The file of marks that a page would save."""
    path = page(source, folder)
    rows = {row["row"]: row["id"] for row in held(path, "data")}
    records = [{"row": row, "id": rows[row], "mark": mark} for row, mark in marks.items()]
    file = folder / "marks.json"
    file.write_text(json.dumps(held(path, "about")["set"] | {"marks": records} | dict(changes)))
    return file


def test_dropped_rows_are_left_out_and_all_else_stays_as_it_is(tmp_path):
    rows = dataset()
    source = save_rows(tmp_path, rows)
    file = write_marks(source, tmp_path, {1: "drop", 6: "drop", 2: "keep"})
    done = apply_marks(source, file, tmp_path / "out", {}, log=[].append)
    assert (done.read, done.dropped, done.kept, done.written, done.set_aside) == (8, 2, 1, 6, {})
    verify_set(tmp_path / "out", log=[].append)
    kept_rows = undecoded(load_training_set(str(tmp_path / "out")))
    assert kept_rows.to_list() == rows.select([0, 2, 3, 4, 5, 7]).to_list()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["set_aside"] == {"dropped in the gallery": 2} and manifest["plan"]["source"]["rows"] == 8
    aside = [json.loads(line) for line in (tmp_path / "out" / "set_aside.jsonl").open()]
    assert [record["row"] for record in aside] == [1, 6]
    card = (tmp_path / "out" / "README.md").read_text()
    assert (
        "6 rows, built" in card
        and "8 rows of the" in card
        and "--apply marks.json" in card
        and str(tmp_path) not in card
    )
    again = apply_marks(source, file, tmp_path / "out", {}, log=[].append)
    assert again.written == 6
    with pytest.raises(ValueError, match="other settings"):
        apply_marks(source, write_marks(source, tmp_path, {3: "drop"}), tmp_path / "out", {}, log=[].append)


def test_split_and_names_of_columns_are_those_of_the_page(tmp_path):
    rows = dataset().rename_column("caption", "text")
    DatasetDict({"validation": rows}).save_to_disk(str(tmp_path / "splits"))
    source = str(tmp_path / "splits")
    path = page(source, tmp_path, split="validation[:6]", column_names="caption=text")
    file = tmp_path / "marks.json"
    mark = {"row": 0, "id": held(path, "data")[0]["id"], "mark": "drop"}
    file.write_text(json.dumps(held(path, "about")["set"] | {"marks": [mark]}))
    apply_marks(source, file, tmp_path / "out", {}, log=[].append)
    kept_rows = load_training_set(str(tmp_path / "out"), split="validation")
    assert len(kept_rows) == 5 and kept_rows["caption"][0] == rows["text"][1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"caption": {5: "another"}}, "another dataset: .*8 rows, .*sha256:.* has 8 rows .*sha256:"),
        ({"image": {1: encode(tiny.image(99))}}, "1 of 2 marked rows .*example 1"),
    ],
)
def test_marks_of_another_set_are_refused(tmp_path, changes, message):
    file = write_marks(save_rows(tmp_path), tmp_path, {1: "drop", 2: "keep"})
    with pytest.raises(ValueError, match=message):
        apply_marks(save_rows(tmp_path, dataset(**changes), "other"), file, tmp_path / "out", {}, log=[].append)
    assert not (tmp_path / "out").exists()


def test_an_unmarked_row_s_image_may_be_another(tmp_path):
    file = write_marks(save_rows(tmp_path), tmp_path, {1: "drop"})
    other = save_rows(tmp_path, dataset(image={4: encode(tiny.image(99))}), "other")
    assert apply_marks(other, file, tmp_path / "out", {}, log=[].append).written == 7


@pytest.mark.parametrize(
    ("marks", "changes", "message"),
    [
        ({0: "keep"}, {}, "drops no row"),
        (dict.fromkeys(range(8), "drop"), {}, "drops every row"),
        ({0: "drop"}, {"marks": [{"row": 9, "id": "", "mark": "drop"}]}, "row 9 does not exist, expected 0 to 7"),
        ({0: "drop"}, {"marks": [{"row": 1, "id": "", "mark": "maybe"}]}, "marks: entry 1: mark: found 'maybe'"),
        ({0: "drop"}, {"marks": [{"row": 1, "id": "", "mark": "drop"}] * 2}, "row 1 has 2 marks"),
        ({0: "drop"}, {"schema_version": 2}, "schema_version: found 2, expected 1"),
        ({0: "drop"}, {"extra": 2}, "unknown key 'extra'"),
    ],
)
def test_marks_that_make_no_sense_are_refused(tmp_path, marks, changes, message):
    source = save_rows(tmp_path)
    file = write_marks(source, tmp_path, marks, changes)
    with pytest.raises(ValueError, match=re.escape(message)):
        apply_marks(source, file, tmp_path / "out", {}, log=[].append)


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "marks.json").write_text("row,id\n")
    with pytest.raises(ValueError, match=r"marks\.json: not JSON"):
        read_marks(tmp_path / "marks.json")
