"""`hfcomp audit` from the command line to its files and its status."""

from __future__ import annotations

import json

import pytest

from hfcomp import cli
from hfcomp.analysis.audit.checks import CHECKS
from hfcomp.testing import write_tiny_llama
from tests.analysis.audit import sets


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    rows = sets.rows(24).rename_columns({"caption": "text", "negative_captions": "wrong"})
    rows.to_parquet(folder / "own.parquet")
    return folder / "own.parquet"


def main(source, folder, *more: str) -> dict:
    names = "caption=text,negative_captions=wrong"
    cli.main(["audit", str(source), "--column_names", names, "--output_dir", str(folder), "--no_cache", *more])
    return json.loads((folder / "audit.json").read_text())


def test_a_page_and_numbers_are_written_and_limits_decide_the_status(source, tmp_path, capsys):
    with pytest.raises(SystemExit) as status:
        main(source, tmp_path, "--fail_if", "full_stop>60", "--fail_if", "blind>100", "--fail_if", "same_words>100")
    assert status.value.code == 1
    report = json.loads((tmp_path / "audit.json").read_text())
    assert list(report["checks"]) == list(CHECKS)
    assert (report["rows"], report["pairs"], report["images"]) == (24, 24, 24)
    assert report["checks"]["full_stop"]["value"] == 100 and report["checks"]["full_stop"]["right"] == 24
    assert report["checks"]["true_negatives"]["value"] is None
    assert "--model" in report["checks"]["true_negatives"]["note"]
    assert [bool(limit["failed"]) for limit in report["limits"]] == [True, False, False]
    assert report["dataset"].startswith("LOCAL/")
    said = " ".join(capsys.readouterr().out.split())
    assert "failed: full_stop is 100.0, above 60" in said and f"page: {tmp_path}" in said
    assert "full_stop" in (tmp_path / "audit.html").read_text()


def test_a_model_and_a_language_model_judge(source, clip, tmp_path, capsys):
    llama = write_tiny_llama(tmp_path / "llama")
    words = ["--model", str(clip), "--language_model", str(llama), "--margin", "0", "--fail_if", "blind>100"]
    checks = main(source, tmp_path / "out", *words)["checks"]
    assert checks["language_model"]["of"] == 24 and checks["language_model"]["model"].endswith("llama")
    for name in ("embedding_probe", "image_probe", "true_negatives"):
        assert checks[name]["value"] is not None and checks[name]["of"] == 24, name
    assert checks["true_negatives"]["pairs"] == checks["true_negatives"]["preferred"]


def test_earlier_results_stay_unless_overwritten(source, tmp_path):
    main(source, tmp_path, "--fail_if", "blind>100")
    with pytest.raises(SystemExit) as error:
        main(source, tmp_path)
    assert "already contains audit.json" in str(error.value)
    main(source, tmp_path, "--overwrite")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sugarcrep"], "Did you mean 'sugarcrepe'"),
        (["vtab"], "stands for"),
        (["sandbox", "--fail_if", "blnd>1"], "Did you mean 'blind'"),
        (["sandbox", "--examples", "-1"], "examples: found -1"),
    ],
)
def test_mistakes_are_named(words, said, tmp_path):
    with pytest.raises(SystemExit) as error:
        cli.main(["audit", *words, "--output_dir", str(tmp_path)])
    assert said in str(error.value)


def test_help_lists_the_checks(capsys):
    with pytest.raises(SystemExit):
        cli.main(["audit", "--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in CHECKS)
