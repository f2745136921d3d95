"""Kinds of dataset that other packages add: the page's example is installed, found, built, verified and loaded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from datasets import Dataset

from hfcomp import cli
from hfcomp.data.loading import load_training_set
from hfcomp.factory.builder import ENTRY_POINTS, find_builder
from hfcomp.factory.magic.options import MAGIC

PAGE = Path(__file__).parents[2] / "docs/adding_a_builder.md"


@pytest.fixture
def source(tmp_path) -> Path:
    Dataset.from_dict({"caption": ["a dog", "", "two cats"]}).to_parquet(tmp_path / "texts.parquet")
    return tmp_path / "texts.parquet"


def page_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def test_the_kind_of_the_page_is_built_from_the_command_line_in_one_file(install, source, tmp_path, capsys):
    (code,), (toml,) = page_blocks("python"), page_blocks("text")
    assert len(code.splitlines()) <= 50
    name, place = re.search(r'^(\w+) = "(.*)"$', toml, flags=re.MULTILINE).groups()
    install({"loud": code}, {ENTRY_POINTS: {name: place}})
    folder = tmp_path / "out"
    with pytest.raises(SystemExit):
        cli.main(["build", name, "--help"])
    assert "--mark" in capsys.readouterr().out
    words = ["--source", str(source), "--output", str(folder), "--mark", "?"]
    cli.main(["build", name, *words])
    assert "letters" in capsys.readouterr().out, "the counts have the title that the builder gives them"
    assert load_training_set(str(folder))["loud"][:] == ["A DOG?", "TWO CATS?"]
    assert (folder / "README.md").read_text().count("Loud captions") >= 1
    cli.main(["build", "verify", str(folder)])
    prepared = find_builder(name).dataset_class()(cache_dir=str(tmp_path / "cache"), data_dir=str(folder))
    prepared.download_and_prepare()
    assert prepared.as_dataset("train")["loud"][:] == ["A DOG?", "TWO CATS?"]


def test_a_kind_that_nobody_makes_is_named_with_the_nearest():
    with pytest.raises(ValueError, match="'majic'.*magic.*: negatives, "):
        find_builder("majic")
    assert find_builder("magic") is MAGIC
