"""Galleries of what `hfcomp build` makes, and of the sandbox, from the command line (about 10 s)."""

from __future__ import annotations

import json

import pytest

from hfcomp import cli
from hfcomp.data.loading import load_training_set
from hfcomp.factory.build import build_set
from hfcomp.factory.options import NegativeOptions
from hfcomp.testing import write_tiny_sdxl
from tests.analysis.gallery.pages import held
from tests.factory.concretebatch import sets as concretebatch
from tests.factory.inpaintcoco import sets as inpaintcoco
from tests.factory.inpaintcoco.test_project import build as build_inpaintcoco
from tests.factory.magic import sets as magic


def page_rows(tmp_path, capsys, source, *words):
    """The rows of the page of a set."""
    cli.main(["gallery", str(source), "--output", str(tmp_path / "page.html"), "--overwrite", *words])
    out = capsys.readouterr().out
    assert f"page: {tmp_path / 'page.html'}" in out
    return held(tmp_path / "page.html", "data")


def drop(tmp_path, rows, number, folder):
    """Drops one row of the set that is shown."""
    marks = [{"row": number, "id": rows[number]["id"], "mark": "drop"}]
    text = json.dumps(held(tmp_path / "page.html", "about")["set"] | {"marks": marks})
    (tmp_path / "marks.json").write_text(text)
    cli.main(["gallery", str(folder), "--apply", str(tmp_path / "marks.json"), "--output", str(tmp_path / "less")])


def test_negatives(tmp_path, capsys):
    source = str(concretebatch.photos(tmp_path / "photos"))
    settings = {"kinds": ("keyword", "swap"), "num_negatives": 2, "parser": "rules"}
    build_set(NegativeOptions(source=source, output=tmp_path / "set", **settings), log=[].append)
    rows = page_rows(tmp_path, capsys, tmp_path / "set")
    whole = load_training_set(str(tmp_path / "set"))
    assert [row["caption"] for row in rows] == whole["caption"][:]
    for row, texts, kinds in zip(rows, whole["negative_captions"], whole["negative_kinds"], strict=True):
        there = [(text, kind) for text, kind in zip(texts, kinds, strict=True) if text]
        assert [(negative["text"], negative["kind"]) for negative in row["negatives"]] == there
    assert any(row["negatives"] for row in rows)
    drop(tmp_path, rows, 0, tmp_path / "set")
    assert f"{len(rows)} rows read, 1 dropped, {len(rows) - 1} written" in capsys.readouterr().out
    assert load_training_set(str(tmp_path / "less"))["caption"][:] == whole["caption"][1:]


def test_concretebatch(tmp_path, capsys, clip):
    pipeline = write_tiny_sdxl(tmp_path / "sdxl", clip)
    ratings, source = concretebatch.ratings(tmp_path / "ratings.txt"), concretebatch.photos(tmp_path / "photos")
    build_set(concretebatch.options(source, ratings, pipeline, tmp_path / "set"), log=[].append)
    rows = page_rows(tmp_path, capsys, tmp_path / "set", "--models", str(clip), "--device", "cpu", "--no_cache")
    assert len(rows) == 10 and all(isinstance(row["negative_image"], int) for row in rows)
    assert all(None not in row["scores"][0] for row in rows)
    assert {row["negatives"][0]["kind"] for row in rows} <= {"replace_obj", "replace_att", "replace_rel"}
    drop(tmp_path, rows, 9, tmp_path / "set")
    assert len(load_training_set(str(tmp_path / "less"))) == 9


def test_inpaintcoco(tmp_path, capsys):
    folder = build_inpaintcoco(inpaintcoco.project(tmp_path / "project"), tmp_path / "set")
    rows = page_rows(tmp_path, capsys, folder, "--split", "test")
    assert rows[1]["caption"] == "A red dog number 1." and rows[1]["negatives"][0]["text"] == "A blue dog number 1."
    assert {row["negatives"][0]["kind"] for row in rows} == {"object", "color", "size"}
    assert all(isinstance(row[name], int) for row in rows for name in ("image", "negative_image", "mask"))
    drop(tmp_path, rows, 1, folder)  # the split is that of the page
    dataset = load_training_set(str(tmp_path / "less"), split="test")
    assert len(dataset) == 5 and "coco_caption" in dataset.column_names  # its columns keep their names


def test_magic(tmp_path, capsys):
    folder = magic.build_magic(tmp_path).folder
    rows = page_rows(tmp_path, capsys, folder, "--config", "captions", "--rows", "5", "--seed", "1")
    assert len(rows) == 5 and rows[0]["positives"] and not rows[0]["negatives"]
    facts = dict(rows[0]["facts"])
    assert facts["group"] in magic.WORDS and {"generalized_caption", "hard_negative_groups"} <= facts.keys()
    with pytest.raises(SystemExit, match="configuration"):
        run(["gallery", str(folder), "--config", "caption", "--output", str(tmp_path / "other.html")])


def test_the_sandbox(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hfcomp.analysis.gallery.rows.SANDBOX_ROWS", 12)
    # which asks the Hub for a card
    monkeypatch.setattr("hfcomp.analysis.gallery.marks.stated_license", lambda name: pytest.fail(name))
    rows = page_rows(tmp_path, capsys, "sandbox", "--rows", "4")
    assert len(rows) == 4 and all(row["mask"] is not None for row in rows)
    assert {"concepts", "group", "level_1"} <= dict(rows[0]["facts"]).keys()
    assert "concreteness" in rows[0]["negatives"][0]["facts"]
    drop(tmp_path, rows, 2, "sandbox")
    assert len(load_training_set(str(tmp_path / "less"))) == 11


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--apply", "marks.json"], "pass --output DIR"),
        (["--apply", "marks.json", "--output", "out", "--rows", "3"], "--rows .*--apply"),
        (["--allow_outside_files"], "--allow_outside_files .*without --apply"),
        (["--models", "a", "b,c"], "found 3 models"),
        (["--column_names", "caption=text"], "text.*not in the dataset"),
    ],
)
def test_options_that_do_not_fit_are_refused(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hfcomp.analysis.gallery.rows.SANDBOX_ROWS", 4)
    with pytest.raises(SystemExit, match=message):
        run(["gallery", "sandbox", *words])
    assert not list(tmp_path.iterdir())


def run(words):
    from hfcomp.errors import one_line_errors

    with one_line_errors():
        cli.main(words)
