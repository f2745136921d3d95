"""`hfcomp probe` from its words to table, figure and files."""

from __future__ import annotations

import json
import re

import datasets
import pytest
from PIL import Image

from hfcomp import cli
from tests.analysis.figures import texts_of
from tests.analysis.pairs import models

RATINGS = "Word\tBigram\tConc.M\tConc.SD\tUnknown\tTotal\tPercent_known\tSUBTLEX\tDom_Pos\n"
PROBE = "hfcomp/analysis/probe/probe.py"
follows = pytest.mark.follows


@pytest.fixture
def words(clip, tmp_path):
    """The words of a run on a small set of a folder."""
    models.pairs(20).save_to_disk(tmp_path / "set")
    return _words(clip, tmp_path)


def _words(model, tmp_path, dataset="set", sizes=("4", "8")):
    place = dataset if dataset == "sandbox" else str(tmp_path / dataset)
    out = ["--output_dir", str(tmp_path / "out"), "--overwrite", "--no_cache", "--device", "cpu"]
    return ["probe", str(model), "--dataset", place, "--batch_sizes", *sizes, *out]


def results(tmp_path):
    return json.loads((tmp_path / "out" / "results.json").read_text())


def shares(report, direction="both"):
    return {
        (share["batch_size"], share["margin"]): share["value"]
        for share in report["shares"]
        if share["direction"] == direction
    }


def test_the_base_on_the_sandbox(tmp_path, monkeypatch, capsys):
    written = texts_of(monkeypatch)
    cli.main([*_words("sandbox", tmp_path, "sandbox", ("8", "32", "256")), "--limit", "96"])
    results_file, out = results(tmp_path), re.sub(r"\s+", " ", capsys.readouterr().out)
    share = shares(results_file)
    assert set(share) == {(size, margin) for size in (8, 32) for margin in (0, 1, 2, "adaptive")}
    assert share[8, 0] > share[32, 0] and share[32, 0] < share[32, 1] < share[32, 2]
    assert (
        results_file["smaller"]["32"]["batch_size"] == 4
    )  # 32 / exp(2); 8 / exp(2) leaves one pair, which has no batch
    assert list(results_file["smaller"]) == ["32"]
    assert results_file["dataset"]["pairs"] == 96 and results_file["config"]["command"].startswith(
        "hfcomp probe sandbox"
    )
    assert results_file["notes"] == [
        "sandbox: batch sizes above its 96 pairs of distinct photographs are left out: 256"
    ]
    assert re.search(rf"N = 32, .*{100 * share[32, 0]:.1f}% .*margin of 2", out)
    assert "Synthetic: " in out
    assert "exp(2) = 7.4 times smaller (N = 4) to" in out
    report = (tmp_path / "out" / "report.md").read_text()
    assert "image to text" in report and "at least 72%" in report
    with Image.open(tmp_path / "out" / "shares.png") as picture:
        assert picture.format == "PNG"
    assert {"margin 2", "paper: above 32", "paper: below 20"} <= {*written}


def test_a_sigmoid_model_and_a_set_without_negative_images(siglip, tmp_path, capsys):
    models.pairs(20, images=False).save_to_disk(tmp_path / "set")
    ratings = tmp_path / "ratings.txt"
    ratings.write_text(RATINGS + "red\t0\t4\t0\t0\t0\t1\t9\tAdjective\n")
    more = ["--margins", "0", "-1", "--rows", "16", "--concreteness_ratings", str(ratings), "--mask_equal_texts"]
    cli.main([*_words(siglip, tmp_path), *more])
    report, out = results(tmp_path), re.sub(r"\s+", " ", capsys.readouterr().out)
    assert {share["direction"] for share in report["shares"]} == {"both", "image to text"}
    assert shares(report) == shares(report, "image to text") and not report["smaller"]
    assert {margin for _, margin in shares(report)} == {0, -1, "adaptive"}
    assert shares(report)[8, -1] < shares(report)[8, 0]
    assert "sigmoid loss" in out and "16 of 16 pairs" in out
    assert "negatives have no rating" in out


def test_photographs_and_first_negatives(clip, tmp_path):
    rows = models.pairs(12).remove_columns("negative_concreteness").to_list()
    rows[1]["image_id"] = rows[0]["image_id"]
    rows[2]["negative_captions"] = ["", "a second one"]  # which is not read
    rows[2] |= {name: [None, None] for name in rows[2] if name.startswith("negative_") and name.endswith("s")
                and name != "negative_captions"}  # fmt: skip
    rows[3]["image"] = None
    rows[4]["negative_image"] = None
    features = models.pairs(1).remove_columns("negative_concreteness").features
    datasets.Dataset.from_list(rows, features=features).save_to_disk(tmp_path / "set")
    cli.main(_words(clip, tmp_path))
    report = results(tmp_path)
    assert report["dataset"]["pairs"] in (9, 10)  # 0 or 1, which may be drawn; not 2; not 3
    assert {margin for _, margin in shares(report)} == {0, 1, 2} and report["dataset"]["adaptive_margin"] is None
    notes = " ".join(report["notes"])
    assert "concreteness is left out" in notes and "only one per photograph" in notes
    assert re.search("1 of (9|10) pairs .*negative image", notes)


@follows(PROBE, "Choose a size up to this number.")
@follows(PROBE, "Name the image column: --column_names image=...")
def test_advice(advice, words, clip, tmp_path):
    advice.command(*_words(clip, tmp_path, sizes=("64", "128")))
    cli.main(_words(clip, tmp_path, sizes=("20",)))
    models.pairs(20).rename_column("image", "photo").save_to_disk(tmp_path / "odd")
    advice.command(*_words(clip, tmp_path, "odd"))
    cli.main([*_words(clip, tmp_path, "odd"), "--column_names", "image=photo"])


def test_mistakes_end_in_one_line(words, tmp_path):
    def ends(expected, *given):
        with pytest.raises(SystemExit, match=f"error: .*{expected}"):
            cli.main([*given])

    ends(
        "needs the column 'negative_captions'.*--column_names negative_captions=",
        *words[:2],
        "--dataset",
        str(_save(tmp_path, "bare", [])),
    )
    none = models.pairs(4).map(lambda row: {"negative_captions": [""]})
    none.save_to_disk(tmp_path / "none")
    ends("none of its 4 rows has a caption with a negative caption", *_words(words[1], tmp_path, "none"))
    blank = models.pairs(4).map(lambda row: {"image": None})
    blank.save_to_disk(tmp_path / "blank")
    ends("no row with a negative caption has an image", *_words(words[1], tmp_path, "blank", ("2",)))
    same = models.pairs(4).map(lambda row: {"negative_captions": [row["caption"]]})
    same.save_to_disk(tmp_path / "same")
    equal = [*_words(words[1], tmp_path, "same", ("2",)), "--mask_equal_texts"]
    ends("every negative caption equals its caption", *equal)
    ends("gone: no such folder", "probe", "./gone", *words[2:])
    ends("gone .*concreteness ratings", *words, "--concreteness_ratings", "gone")
    cli.main(words)
    ends(r"already contains results\.json", *(word for word in words if word != "--overwrite"))
    with pytest.raises(SystemExit):
        cli.main([*words, "--margins", "high"])


def _save(tmp_path, name, kept):
    models.pairs(4).select_columns(["image", "caption", *kept]).save_to_disk(tmp_path / name)
    return tmp_path / name
