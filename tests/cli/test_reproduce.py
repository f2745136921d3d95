"""`hfcomp reproduce`, as `make reproduce` calls it: without a connection, and its whole path on small local data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hfcomp import cli
from hfcomp.cli import environment, reproduce
from hfcomp.evaluation import hub
from tests import tiny
from tests.evaluation import small_sugarcrepe

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(repo, *words, **options):
        raise ConnectionError("no network")

    monkeypatch.setattr(environment, "_ask", lambda address, token: "ConnectError: no network")
    monkeypatch.setattr(hub, "load_dataset", refuse)
    monkeypatch.setattr(hub, "_newest", lambda repo: None)


@pytest.fixture(scope="module")
def places(clip, tmp_path_factory):
    """Two models, one under the name of a published one, and the data of a benchmark."""
    folder = tmp_path_factory.mktemp("reproduce")
    other = tiny.clip(folder / "other", seed=5)
    data = small_sugarcrepe.write(folder / "data")
    return [f"openai/clip-vit-base-patch32={clip}", f"mine={other}"], data


@pytest.fixture
def done(places, tmp_path, monkeypatch, capsys):
    models, data = places
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(reproduce, "MODELS", tuple(models))
    page = tmp_path / "docs" / "reproduced.md"
    words = ["--page", str(page), "--benchmarks", "sugarcrepe", "--data_dir", str(data), "--device", "cpu"]
    cli.main(["reproduce", *words, "--output_dir", str(tmp_path / "out")])
    return page, tmp_path / "out", capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["--page", "reproduced.md"], ["--data_dir", "."]])
def test_without_a_connection_it_says_so_in_one_line_and_writes_nothing(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", *words]) is None
    (line,) = capsys.readouterr().out.splitlines()
    assert "needs a connection to the Hub" in line and "no network" in line
    assert not list(tmp_path.iterdir())


def test_a_local_model_still_needs_the_hub_for_the_data(places, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cli.main(["reproduce", *places[0]])
    assert "needs a connection" in capsys.readouterr().out


def test_the_page_has_the_numbers_their_sources_and_how_they_were_made(done):
    page, folder, shown = done
    text = page.read_text()
    assert text.startswith("# Reproduced numbers\n") and "```" not in text
    row = next(line for line in text.splitlines() if line.startswith("| macro of 7 subsets |"))
    assert re.fullmatch(r"\| macro of 7 subsets \| \d+\.\d \| 73\.1 \| -\d+\.\d\d \| off \| \[.*\] \| \[\d\] \|", row)
    for part in ("[1] C2LIP, arXiv:2603.25722v1, Table A3.", "Without published numbers: mine.", "hfcomp reproduce"):
        assert part in text, part
    for heading in ("## Published numbers", "## Data", "## Models", "## How it was made"):
        assert f"\n{heading}\n" in text, heading
    assert "## Composition" not in text
    stored = json.loads((folder / "results.json").read_text())
    assert stored["published"] and (folder / "items.parquet").is_file()
    assert "published as CLIP ViT-B/32" in shown and f"page: {page}" in shown


@pytest.mark.parametrize("kept", ["out/results.json", "docs/reproduced.md"])
def test_earlier_results_and_an_earlier_page_stay_unless_overwritten(places, tmp_path, monkeypatch, kept):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    path = tmp_path / kept
    path.parent.mkdir()
    path.write_text("mine")
    words = ["--page", str(tmp_path / "docs/reproduced.md"), "--output_dir", str(tmp_path / "out")]
    words += ["--benchmarks", "sugarcrepe", "--data_dir", str(places[1]), "--device", "cpu"]
    with pytest.raises(SystemExit, match=f"{path.name}.*--overwrite"):
        cli.main(["reproduce", places[0][1], *words])
    assert path.read_text() == "mine"
    cli.main(["reproduce", places[0][1], *words, "--overwrite"])
    assert path.read_text() != "mine"


def test_make_reproduce_calls_it_with_the_page_of_the_docs():
    recipe = re.search(r"^reproduce:.*\n\t(.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    words = recipe.split("hfcomp.cli reproduce ")[1].replace("$(ARGS)", "").split()
    given = reproduce.parser().parse_args(words)
    assert given.page == Path("docs/reproduced.md") and given.overwrite
    assert (ROOT / "docs" / "reproduced.md").is_file()
