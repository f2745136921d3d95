"""What the commands advise when options do not go together, done."""

from __future__ import annotations

import json

import pytest

from hfcomp import cli
from tests.analysis.gallery.pages import held


@pytest.mark.follows("hfcomp/cli/__init__.py", "`hfcomp --help` lists the commands.")
@pytest.mark.follows("hfcomp/cli/__init__.py", "`hfcomp COMMAND --help` says more; --traceback shows")
def test_an_unknown_command(advice, capsys):
    advice.of(cli.main, ["trian"])
    cli.main(["--help"])
    advice.read(capsys.readouterr().out)
    with pytest.raises(SystemExit) as ended:
        cli.main(["cache", "--help"])
    assert ended.value.code == 0
    with pytest.raises(ValueError, match="not a folder"):
        cli.main(["cache", "--cache", "nowhere", "--traceback"])


@pytest.mark.follows("hfcomp/cli/train.py", "`hfcomp train --help` lists the recipes.")
def test_train_without_a_recipe(advice, capsys):
    advice.of(cli.main, ["train"])
    cli.main(["train", "--help"])
    assert "slipform" in capsys.readouterr().out


@pytest.mark.follows("hfcomp/cli/gallery.py", "--apply writes a new data set: pass --output DIR, its folder.")
@pytest.mark.follows("hfcomp/cli/gallery.py", "--{others[0]} only applies to the page, not to --apply. Remove it.")
@pytest.mark.follows(
    "hfcomp/cli/gallery.py",
    "--allow_outside_files only applies to --apply, which copies images into a new data set. Remove it.",
)
def test_gallery(advice, pairs_file, tmp_path):
    page, marks = tmp_path / "page.html", tmp_path / "marks.json"
    whole = ["gallery", str(pairs_file), "--output", str(page)]
    advice.command(*whole, "--allow_outside_files")
    cli.main(whole)
    row = held(page, "data")[0]
    dropped = {"row": row["row"], "id": row["id"], "mark": "drop"}
    marks.write_text(json.dumps(held(page, "about")["set"] | {"marks": [dropped]}))
    apply = ["gallery", str(pairs_file), "--apply", str(marks)]
    advice.command(*apply)
    apply += ["--output", str(tmp_path / "applied")]
    advice.command(*apply, "--rows", "3")
    cli.main(apply)
    assert (tmp_path / "applied").is_dir()
