"""Damaged images in what is scored: one line that names them, or left out and counted on request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from datasets import Dataset, Features, Image, List, Value

import hfcomp
from hfcomp import cli
from hfcomp.analysis.audit.audit import audit
from hfcomp.analysis.audit.options import AuditOptions
from hfcomp.evaluation.cells import CellsWithout, Crop, LazyCells, damaged_images, map_cells, pick_cells
from hfcomp.evaluation.probes.fits import fit_lbfgs
from hfcomp.evaluation.protocols.classification import Probe
from hfcomp.evaluation.spec import Benchmark, BenchmarkData, Folders, Origin
from tests import tiny
from tests.evaluation import small_sugarcrepe

PLACE = {"device": "cpu", "cache": False, "blind": "none"}
ADVICE = ("hfcomp/data/images.py", "Or skip and count such rows: --skip_damaged")


def write_rows(folder: Path, damaged: tuple[int, ...] = (1,), number: int = 4) -> str:
    """A set of files with a negative caption each, some of them cut short."""
    lines = []
    for row in range(number):
        path = folder / f"{row}.jpg"
        tiny.image(row).save(path)
        if row in damaged:
            path.write_bytes(path.read_bytes()[:-80])
        lines.append({"image": path.name, "caption": f"a red cube {row}", "negative_captions": [f"a blue ball {row}"]})
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return str(folder / "rows.jsonl")


@pytest.mark.follows(*ADVICE)
def test_the_command_ends_in_one_line_and_follows_its_advice(clip, tmp_path, capfd):
    given = ["evaluate", str(clip), "--benchmarks", write_rows(tmp_path), "--no_cache", "--device", "cpu"]
    given += ["--output_dir", str(tmp_path / "out"), "--blind", "none"]
    with pytest.raises(SystemExit) as stopped:
        cli.main(given)
    said = str(stopped.value)
    assert "column 'image', row 1" in said and "1.jpg" in said and "--skip_damaged" in said
    assert "other benchmarks" not in said and "Traceback" not in capfd.readouterr().err
    cli.main([*given, "--skip_damaged"])
    shown = " ".join(capfd.readouterr().out.split())
    assert "rows (part)" in shown and "1 of 4 rows left out: image damaged" in shown and "1.jpg" in shown
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    (facts,) = results["benchmarks"].values()
    assert facts["left_out"] == {"image damaged": 1} and facts["items"] == 3


@pytest.mark.follows(*ADVICE)
def test_python_says_the_same_and_scores_the_rest(clip, tmp_path):
    rows = write_rows(tmp_path, (0, 2))
    with pytest.raises(ValueError, match=r"'image', row 0 .*skip_damaged=True") as stopped:
        hfcomp.evaluate(clip, benchmarks=rows, **PLACE)
    assert "other benchmarks" not in str(stopped.value)
    results = hfcomp.evaluate(clip, benchmarks=rows, skip_damaged=True, **PLACE)
    assert set(results.outcomes.table["item"]) == {"1", "3"} and any(
        "2 of 4 rows left out" in note for note in results.notes
    )


def test_other_benchmarks_go_on_where_there_are_others(clip, tmp_path, capfd):
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    rows = [write_rows(tmp_path / "good", ()), write_rows(tmp_path / "bad")]
    results = hfcomp.evaluate(clip, benchmarks=rows, **PLACE)
    (skipped,) = results.skipped
    assert "other benchmarks" in skipped["how_to_fix"] and "--skip_damaged" in skipped["how_to_fix"]
    assert "Traceback" not in capfd.readouterr().err


def test_without_any_damage_nothing_changes(clip, tmp_path):
    rows = write_rows(tmp_path, ())
    first, second = (hfcomp.evaluate(clip, benchmarks=rows, skip_damaged=skip, **PLACE) for skip in (False, True))
    assert first.outcomes.table.equals(second.outcomes.table) and first.notes == second.notes


def test_a_set_of_which_all_images_are_damaged_is_an_error(clip, tmp_path):
    rows = write_rows(tmp_path, (0, 1), 2)
    with pytest.raises(ValueError, match="all 2 .*damaged .*'image', row 0"):
        hfcomp.evaluate(clip, benchmarks=rows, skip_damaged=True, **PLACE)


def test_benchmarks_are_scored_without_their_damaged_images(clip, tmp_path):
    folder = small_sugarcrepe.write(tmp_path)
    image = min(path for path in folder.rglob("*") if path.suffix in (".jpg", ".png"))
    whole = hfcomp.evaluate(clip, benchmarks="sugarcrepe", data_dir=folder, **PLACE)
    image.write_bytes(image.read_bytes()[:-60])
    results = hfcomp.evaluate(clip, benchmarks="sugarcrepe", data_dir=folder, skip_damaged=True, **PLACE)
    (facts,) = results.benchmarks.values()
    lost = facts["left_out"]["image damaged"]
    assert lost and facts["items"] + lost == next(iter(whole.benchmarks.values()))["items"]
    kept = whole.outcomes.table.merge(results.outcomes.table, on=["item", "subset", "metric"])
    assert len(kept) == len(results.outcomes.table) and (kept["value_x"] == kept["value_y"]).all()


def test_pairs_are_written_without_damaged_images(tmp_path, capsys):
    given = ["evaluate", "--benchmarks", write_rows(tmp_path), "--write_pairs"]
    cli.main([*given, str(tmp_path / "pairs.jsonl"), "--skip_damaged"])
    items = {json.loads(line)["item"] for line in (tmp_path / "pairs.jsonl").read_text().splitlines()}
    assert items == {"0", "2", "3"}


def test_each_distinct_image_is_decoded_once_and_a_part_of_it_too(tmp_path, monkeypatch):
    write_rows(tmp_path)
    decoded = []
    own = damaged_images.__globals__["decoded"]
    monkeypatch.setitem(damaged_images.__globals__, "decoded", lambda *given: decoded.append(given) or own(*given))
    good, bad = (str(tmp_path / f"{row}.jpg") for row in (0, 1))
    cells = [good, bad, None, good, Crop(bad, (0, 0, 4, 4)), b"<html>", {"bytes": None, "path": None}]
    messages = damaged_images(cells, "image")
    assert list(messages) == [1, 4, 5] and "column 'image', row 4" in messages[4] or "row 1" in messages[4]
    assert len(decoded) == 4


@dataclass(frozen=True)
class Given:
    """Data that is there already."""

    items: BenchmarkData
    layout: str = "given"

    def local(self, folder: Path, folders: Folders) -> BenchmarkData:
        return self.items

    def remote(self, folders: Folders) -> BenchmarkData:
        return self.items


# The other commands


@pytest.mark.follows(*ADVICE)
def test_an_audit_with_a_model_names_the_image_or_counts_it(clip, tmp_path):
    rows, options = write_rows(tmp_path), {"model": str(clip), "device": "cpu", "no_cache": True}
    with pytest.raises(ValueError, match="'image', row 1 .*--skip_damaged"):
        audit(rows, AuditOptions(**options), hashes=tmp_path / "hashes")
    result = audit(rows, AuditOptions(**options, skip_damaged=True), hashes=tmp_path / "hashes")
    (note,) = [note for note in result.notes if "damaged" in note]
    assert note.startswith("1 of 4 rows have a damaged 'image'") and "1.jpg" in note
    assert result.checks["true_negatives"].facts["pairs"] <= 3


@pytest.mark.follows("hfcomp/options.py", "--{name} needs --{needs.option}")
def test_an_audit_has_no_use_for_the_option_without_a_model():
    with pytest.raises(ValueError, match="--skip_damaged needs --model"):
        AuditOptions(skip_damaged=True)
    assert AuditOptions(skip_damaged=True, model="somebody/clip").skip_damaged


def test_embedded_images_are_named_by_row(clip, tmp_path):
    features = Features({"image": Image(), "caption": Value("string"), "negative_captions": List(Value("string"))})
    write_rows(tmp_path)
    images = [{"bytes": (tmp_path / f"{row}.jpg").read_bytes(), "path": None} for row in range(3)]
    rows = {"image": images, "caption": list("abc"), "negative_captions": [["d"]] * 3}
    Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "rows.parquet")
    results = hfcomp.evaluate(clip, benchmarks=str(tmp_path / "rows.parquet"), skip_damaged=True, **PLACE)
    assert set(results.outcomes.table["item"]) == {"0", "2"}


def test_the_images_of_a_probe_are_never_left_out(clip, tmp_path, capfd):
    write_rows(tmp_path)
    rows = [{"image": str(tmp_path / f"{row}.jpg"), "label": row % 2} for row in range(4)]
    good, bad = (Dataset.from_list([rows[row] for row in places]) for places in ((0, 2), (0, 1)))
    items = BenchmarkData(good, Origin("here"), classes=("a", "b"), train=BenchmarkData(bad, Origin("here")))
    data = (Given(items),)
    probe = Benchmark("probe", "Probe", "general", Probe(fit_lbfgs), data, "ours", "none", "It is here.")
    with pytest.raises(ValueError, match=r"\(train\)', row 1 .*part") as stopped:
        hfcomp.evaluate(clip, benchmarks=[probe], **PLACE)
    assert "--skip_damaged" not in str(stopped.value) and "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("without", [set(), {1}, {0, 1, 3}, {0, 1, 2, 3}])
def test_cells_of_most_rows_are_not_read_to_be_left_out(without):
    read = []

    class Cells(list):
        def __getitem__(self, row):
            read.append(row)
            return super().__getitem__(row)

        def __iter__(self):
            return (self[row] for row in range(len(self)))

    cells = Cells("abcd")
    expected = [None if row in without else letter for row, letter in enumerate("abcd")]
    assert list(CellsWithout(cells, without)) == expected
    if len(without) > 2:
        assert read == [row for row in range(4) if row not in without]


def test_cells_are_read_one_by_one_and_only_when_they_are_asked_for():
    read = []
    cells = LazyCells(3, lambda row: read.append(row) or f"cell {row}")
    assert len(cells) == 3 and not read
    assert (cells[1], cells[-1]) == ("cell 1", "cell 2") and read == [1, 2]
    assert list(cells) == ["cell 0", "cell 1", "cell 2"]
    with pytest.raises(IndexError):
        cells[3]
    assert list(pick_cells(["a", "b"], [1, None])) == ["b", None]
    assert list(map_cells([{"bytes": b"a"}, None], lambda cell, row: row)) == [0, None]
