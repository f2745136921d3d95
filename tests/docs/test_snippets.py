"""Every block of README, docs, recipes and cards runs in a test, is accepted by its parser, or says what it needs.

A page complies with one of these:

- ```` ```bash ````: each line is a command of hfcomp, a recipe, a builder, `make` or `pip install`; it is parsed here;
- ```` ```python ```` after a line `<!-- run by tests/docs/test_python.py -->`, which names the file of a test that
  runs the block and names the page;
- ```` ```yaml ````, ```` ```json ````: it is read here;
- any of them after a line `<!-- needs the Hub -->` (or one of `NEEDS`): commands of hfcomp are parsed and Python is
  compiled; nothing else is checked.
"""

from __future__ import annotations

import json

import pytest
import yaml

from tests.docs.commands import check_command
from tests.docs.snippets import ROOT, lines, snippets

NEEDS = {"the Hub", "vLLM", "a finished run"}
"""Needs that no test can meet."""
UNCHECKED = {"", "text", "bibtex"}
"""Output, lists of files, citations."""
RENDERED = "model_cards/"
"""Written by a template, which has tests of its own."""
HOW = (__doc__ or "").partition("A page complies")[2]


@pytest.fixture
def clone(monkeypatch, tmp_path):
    """The working directory of the commands: a clone, with the files that pages write, and real data somewhere."""
    for folder in ("recipes", "dataset_builders"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    search, *_ = (snippet.code for snippet in snippets("yaml") if snippet.page == "docs/search.md")
    (tmp_path / "mine.yaml").write_text(search)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HFCOMP_REAL_DATA", str(tmp_path))


def test_every_mark_is_one_of_two_and_every_language_is_known():
    for snippet in snippets():
        known = not snippet.mark or snippet.test or snippet.needs in NEEDS
        assert known, f"{snippet}: found <!-- {snippet.mark} -->; {HOW}"
        assert snippet.language in {"bash", "python", "yaml", "json", *UNCHECKED}, f"{snippet}: {HOW}"


@pytest.mark.parametrize("snippet", snippets("bash"), ids=str)
def test_commands_are_accepted(snippet, clone, capsys):
    for words in lines(snippet):
        if snippet.needs and words[0] != "hfcomp":
            continue
        try:
            check_command(words)
        except SystemExit as stop:
            if stop.code:
                pytest.fail(f"{' '.join(words)}\n{capsys.readouterr().err or stop}")
        except ValueError as error:
            pytest.fail(f"{' '.join(words)}\n{error}")


def test_python_compiles_and_names_the_test_that_runs_it():
    for snippet in snippets("python"):
        compile(snippet.code, str(snippet), "exec")
        if not snippet.needs and not snippet.page.startswith(RENDERED):
            assert snippet.test, f"{snippet}: {HOW}"
            test = ROOT / snippet.test
            runs = test.is_file() and snippet.page in test.read_text()
            assert runs, f"{snippet}: {snippet.test} does not run a block of {snippet.page}"


@pytest.mark.parametrize("snippet", snippets("yaml", "json"), ids=str)
def test_files_are_read(snippet):
    assert (yaml.safe_load if snippet.language == "yaml" else json.loads)(snippet.code)
