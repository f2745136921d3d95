"""`hfcomp analyze` from its words to files."""

from __future__ import annotations

import json

import pytest

from hfcomp import cli
from hfcomp.writing import locked
from tests.analysis.pairs import models

HEADER = "Word\tBigram\tConc.M\tConc.SD\tUnknown\tTotal\tPercent_known\tSUBTLEX\tDom_Pos\n"


@pytest.fixture
def words(tmp_path, clip):
    """The words of a run without downloads."""
    models.pairs(10).save_to_disk(tmp_path / "set")
    off = ["--image_model", "none", "--text_model", "none", "--device", "cpu", "--gallery", "0"]
    return ["analyze", f"high={tmp_path / 'set'}", "--models", str(clip), "--output_dir", str(tmp_path / "out"), *off]


def test_a_set_with_ratings_of_a_file(words, tmp_path, capsys):
    ratings = tmp_path / "ratings.txt"
    rated = "".join(
        f"{color}\t0\t{4 + place / 10}\t0\t0\t0\t1\t9\tAdjective\n" for place, color in enumerate(models.COLORS)
    )
    ratings.write_text(HEADER + rated + "cube\t0\t5\t0\t0\t0\t1\t9\tNoun\n")
    cli.main([*words, "--concreteness_ratings", str(ratings), "--limit", "6"])
    report = json.loads((tmp_path / "out" / "results.json").read_text())
    mean = report["results"][0]
    assert mean["row"] == "mean concreteness" and mean["paper"] == {"high": 4.77}
    expected = [5 if row % 4 == 0 else 4 + row % 6 / 10 for row in range(6)]  # "red cube" by its head
    assert mean["sets"]["high"]["value"] == pytest.approx(sum(expected) / 6)
    assert report["config"]["command"].startswith("hfcomp analyze high=") and report["sets"]["high"]["rows"] == 6
    out = capsys.readouterr().out
    assert "mean concreteness" in out and f"written to: {tmp_path / 'out'}" in out
    assert not (tmp_path / "out" / "gallery.png").exists()
    with pytest.raises(SystemExit, match=r"results\.json.*--overwrite"):
        cli.main(words)
    cli.main([*words, "--overwrite"])


def test_the_sandbox_is_a_set(words, tmp_path):
    cli.main([words[0], "sandbox", *words[2:], "--limit", "8"])
    report = json.loads((tmp_path / "out" / "results.json").read_text())
    assert report["sets"]["sandbox"]["rows"] == 8


def test_mistakes_end_in_one_line(words, tmp_path, monkeypatch):
    monkeypatch.setattr("hfcomp.writing.LOCK_SECONDS", 0)
    with pytest.raises(SystemExit, match="error: .*nothing.* concreteness ratings"):
        cli.main([*words, "--concreteness_ratings", "nothing"])
    with pytest.raises(SystemExit, match="error: no file .*nothing'"):
        cli.main(["analyze", str(tmp_path / "nothing"), *words[2:]])
    with pytest.raises(SystemExit, match="error: --batch_size: found 0"):
        cli.main([*words, "--batch_size", "0"])
    with locked(tmp_path / "out"), pytest.raises(SystemExit, match="error: .*out .*in use"):
        cli.main(words)
    assert not (tmp_path / "out").exists()
