"""Sets from folder to report with tiny models: numbers by hand, sets side by side, bad images, missing parts."""

from __future__ import annotations

import io
import json
import re
import sys
import tomllib
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hfcomp.analysis.pairs import pictures
from hfcomp.analysis.pairs.analyze import analyze
from hfcomp.analysis.pairs.encoders import ImageEmbedder
from hfcomp.analysis.pairs.options import AnalyzeOptions
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.statistics.outcomes import read_table
from hfcomp.testing import write_tiny_dinov2
from tests import tiny
from tests.analysis.pairs import models


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    image_model, text_model = write_tiny_dinov2(folder / "dino"), models.roberta(folder / "roberta")
    return {"image_model": str(image_model), "text_model": str(text_model)}


@pytest.fixture
def options(clip, encoders, tmp_path):
    """The options of a run with all three models, and others on top."""

    def make(**changes):
        settings = {"models": (f"clip={clip}",), **encoders, "device": "cpu", "output_dir": tmp_path / "out"}
        return AnalyzeOptions(**{**settings, **changes})

    return make


def save(dataset, folder, name="set"):
    dataset.save_to_disk(folder / name)
    return str(folder / name)


def broken(dataset, column, rows):
    """The dataset with bytes that are no image in some rows."""
    dataset = dataset.cast_column(column, datasets.Image(decode=False))
    cells = [{"bytes": b"no image", "path": None} if row in rows else cell for row, cell in enumerate(dataset[column])]
    return dataset.remove_columns(column).add_column(column, cells, feature=datasets.Image(decode=False))


def test_numbers_are_those_of_the_embeddings(clip, options, tmp_path):
    rows = models.pairs(12)
    results = analyze([save(rows, tmp_path)], options())
    embedder = Embedder(clip, device="cpu")
    image, wrong = embedder.images(rows["image"]), embedder.images(rows["negative_image"])
    caption = embedder.texts(rows["caption"]).vectors
    negative = embedder.texts([captions[0] for captions in rows["negative_captions"]]).vectors
    scale = float(embedder.backbone.logit_scale.detach().exp())
    own, other, elsewhere, pair = (
        (vector * text).sum(1)
        for vector, text in ((image, caption), (image, negative), (wrong, caption), (wrong, negative))
    )
    expected = {
        "I2T accuracy": own > other,
        "T2I accuracy": own > elsewhere,
        "both images": (own > other) & (pair > elsewhere),
        "both captions": (own > elsewhere) & (pair > other),
        "group": (own > other) & (pair > elsewhere) & (own > elsewhere) & (pair > other),
        "pair accuracy": np.mean([own > other, pair > elsewhere, own > elsewhere, pair > other], axis=0),
        "I2T logit gap": scale * (own - other),
        "T2I logit gap": scale * (own - elsewhere),
        "CLIP-L": (caption * negative).sum(1),
        "CLIP-V": (image * wrong).sum(1),
    }
    table = results.table()
    for name, values in expected.items():
        np.testing.assert_allclose(table[f"clip: {name}"], values.astype(float), atol=2e-5, err_msg=name)
    assert table["set"].tolist() == ["set"] * 12 and table["word edit distance"].tolist() == [1] * 12
    assert np.isfinite(table[["DINOScore", "BERTScore"]].to_numpy()).all()
    (line,) = [line for line in results.summary.lines() if line["row"] == "T2I logit gap"]
    assert line["sets"]["set"]["value"] == pytest.approx((scale * (own - elsewhere)).mean(), abs=1e-4)


@pytest.mark.slow
def test_three_sets_side_by_side(options, tmp_path, capsys):
    places = {
        "high": save(models.pairs(24), tmp_path, "one"),
        "lc": save(models.pairs(24, first=8, shift=2), tmp_path, "two"),
        "text": save(models.pairs(8, first=60, images=False), tmp_path, "three"),
    }
    results = analyze(places, options(gallery=6, caveat="Random weights."))
    results.save(tmp_path / "out", command="hfcomp analyze ...")
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    results_file = json.loads((tmp_path / "out" / "results.json").read_text())
    rows = {line["row"]: line for line in results_file["results"]}
    assert rows["T2I accuracy"]["paper"] == {"high": 0.5087, "lc": 0.402}
    shared = {
        (difference["first"], difference["second"]): difference["shared_images"]
        for difference in rows["CLIP-L"]["differences"]
    }
    assert shared == {("high", "lc"): 16, ("high", "text"): 0, ("lc", "text"): 0}
    assert list(rows["T2I accuracy"]["sets"]) == list(rows["DINOScore"]["sets"]) == ["high", "lc"]
    assert "text: there are no negative images" in out and "high minus lc" in out and " paper: " in out
    report = (tmp_path / "out" / "report.md").read_text()
    for name in ("concreteness", "hardness", "keywords", "correlations", "gap", "gallery"):
        assert f"({name}.png)" in report
        with Image.open(tmp_path / "out" / f"{name}.png") as picture:
            assert picture.format == "PNG"
    assert "Random weights." in out and "\nRandom weights.\n" in report
    assert "each fit over the nearest 67% of a set's rated pairs. Fits are 1% of" in report
    assert "| T2I accuracy (%) |" in report and "| 50.87 | 40.20 |" in report
    table, _ = read_table(tmp_path / "out" / "pairs.parquet")
    pd.testing.assert_frame_equal(table, results.table(), check_dtype=False)


@pytest.mark.slow
def test_images_that_cannot_be_read_are_left_out_and_counted(options, tmp_path):
    rows = broken(broken(models.pairs(12), "negative_image", {1, 5}), "image", {5, 7})
    results = analyze([save(rows, tmp_path)], options())
    assert [note.split(";")[0] for note in results.notes if "cannot be read" in note] == [
        "set: 2 of 12 images of column 'image' cannot be read and are left out",
        "set: 2 of 12 images of column 'negative_image' cannot be read and are left out",
    ]
    table = results.table()
    bad = {
        "clip: I2T accuracy": [5, 7],
        "clip: T2I accuracy": [1, 5, 7],
        "clip: group": [1, 5, 7],
        "DINOScore": [1, 5, 7],
    }
    for column, expected in bad.items():
        assert table.index[table[column].isna()].tolist() == expected
    assert table["clip: CLIP-L"].notna().all()
    results.save(tmp_path / "out", shown=False)
    assert (tmp_path / "out" / "gallery.png").exists()


def test_a_set_of_which_no_image_can_be_read_is_refused(options, tmp_path):
    rows = broken(models.pairs(4), "negative_image", {0, 1, 2, 3})
    with pytest.raises(ValueError, match="4 images .*column 'negative_image', row 0"):
        analyze([save(rows, tmp_path)], options())


def test_missing_files_are_counted_too(options, tmp_path):
    tiny.image(0).save(tmp_path / "a.png")
    rows = [
        {"image": name, "caption": "a red cube", "negative_captions": [text]}
        for name, text in (("a.png", "a blue cube"), ("b.png", "a green cube"))
    ]
    (tmp_path / "set.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = analyze([str(tmp_path / "set.jsonl")], options(image_model="none", text_model="none"))
    assert any("1 of 2 images of column 'image'" in note and "b.png" in note for note in results.notes)
    assert results.table()["clip: I2T accuracy"].isna().tolist() == [False, True]


def test_equal_texts_tie_and_a_second_negative_has_no_image(options, tmp_path):
    rows = models.pairs(6).to_list()
    for row in rows:
        row["negative_captions"] = [row["caption"], "a green ball"]
        for name in ("negative_kinds", "negative_keywords", "negative_categories", "negative_concreteness"):
            row[name] = row[name] * 2
    rows = datasets.Dataset.from_list(rows, features=models.pairs(6).features)
    results = analyze([save(rows, tmp_path)], options())
    lines = {line["row"]: line["sets"]["set"] for line in results.summary.lines()}
    assert lines["I2T accuracy"]["items"] == 12 and lines["I2T accuracy"]["ties"] == 6
    assert lines["T2I accuracy"]["items"] == lines["DINOScore"]["items"] == 6
    assert (lines["group"]["value"], lines["CLIP-L"]["images"]) == (0, 6)
    table = results.table()
    assert (table["clip: I2T accuracy"][table["place"] == 0] == 0).all()


def test_one_row(options, tmp_path, capsys):
    results = analyze([save(models.pairs(1), tmp_path)], options())
    results.save(tmp_path / "out")
    report = json.loads((tmp_path / "out" / "results.json").read_text())
    assert report["correlations"] == [] and len(report["results"]) > 15
    assert all(line["sets"]["set"].get("low") is None for line in report["results"])
    assert "nan" not in capsys.readouterr().out.lower()


def test_nothing_is_loaded_that_is_not_needed(options, tmp_path):
    """Models that do not exist are no error where nothing asks for them."""
    rows = models.pairs(8, images=False)
    absent = {"image_model": "does/not-exist", "text_model": "none", "models": ("none",)}
    results = analyze([save(rows, tmp_path)], options(**absent))
    assert results.models == {} and "BERTScore" not in results.table()
    assert any("no negative images" in note for note in results.notes)
    text_only = analyze([save(rows.remove_columns("image"), tmp_path, "text")], options(image_model="does/not-exist"))
    assert {"clip: CLIP-L", "BERTScore"} <= set(text_only.table().columns)
    assert not any("accuracy" in column for column in text_only.table().columns)
    assert any("only the similarity of texts" in note for note in text_only.notes)


def test_without_matplotlib_or_statsmodels_the_numbers_are_kept(options, tmp_path, monkeypatch):
    results = analyze([save(models.pairs(16), tmp_path)], options())
    monkeypatch.setitem(sys.modules, "statsmodels.nonparametric.smoothers_lowess", None)
    results.save(tmp_path / "out", shown=False)
    assert (tmp_path / "out" / "gap.png").exists()
    assert "statsmodels: pip install 'hfcomp[plots]'" in (tmp_path / "out/report.md").read_text()
    extras = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert any(requirement.startswith("statsmodels") for requirement in extras["optional-dependencies"]["plots"])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    results.save(tmp_path / "out", shown=False)
    report = (tmp_path / "out" / "report.md").read_text()
    assert "matplotlib: pip install 'hfcomp[plots]'" in report and "gap.png)" not in report
    assert not list((tmp_path / "out").glob("gap.png")), "a figure of an earlier run is removed"


def test_a_second_run_encodes_nothing(options, tmp_path, monkeypatch):
    place = save(models.pairs(6), tmp_path)
    first = analyze([place], options())
    monkeypatch.setattr(ImageEmbedder, "load", lambda _: pytest.fail("the image model is loaded"))
    second = analyze([place], options())
    pd.testing.assert_frame_equal(first.table(), second.table())


def test_a_gallery_shows_shared_images_side_by_side(options, tmp_path, monkeypatch):
    shown, settings = [], {}

    def draw(dataset, path, **given):
        shown.extend(dataset)
        settings.update(given)
        return _png(path)

    monkeypatch.setattr(pictures, "draw_gallery", draw)
    places = {"a": save(models.pairs(10), tmp_path, "a"), "b": save(models.pairs(10, first=5), tmp_path, "b")}
    results = analyze(places, options(image_model="none", text_model="none", gallery=6))
    assert pictures.gallery_png(results.sets, 6, heading="Random weights.")
    names = [row["image_id"] for row in shown]
    assert len(names) == 6 and names[::2] == names[1::2]
    numbers = [int(name.removeprefix("image ")) for name in names]
    expected = [
        f"{name}, row {number - first}, image image {number}"
        for number, (name, first) in zip(numbers, [("a", 0), ("b", 5)] * 3, strict=True)
    ]
    assert settings["labels"] == expected and settings["heading"] == "Random weights."
    assert all(row["negative_concreteness"][0] >= 2 for row in shown)


def _png(path):
    content = io.BytesIO()
    tiny.image(0).save(content, "PNG")
    path.write_bytes(content.getvalue())
    return path


def test_wrong_options_are_named(options):
    for changes, match in (
        ({"loess_share": 0.0}, "loess_share: found 0"),
        ({"batch_size": 0}, "batch_size: found 0"),
        ({"models": ("none", "a")}, "models: found 'none,a'"),
        ({"text_model": "none", "text_layer": 3}, "text_layer and text_baseline .*text_model"),
    ):
        with pytest.raises(ValueError, match=match):
            options(**changes)
