"""The cards of `model_cards/` are what the template makes of the runs of the sandbox recipes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from hfcomp.data.publishing import ABSOLUTE, TOKEN, without_local_paths
from hfcomp.experiments import program
from hfcomp.experiments.recipe_files import recipe_files, recipes_folder
from hfcomp.experiments.recipes import read_recipe
from tests.hub.card_rules import card_errors
from tests.reporting.cards import examples

NAMES = sorted(path.parent.name for path in recipe_files(recipes_folder()) if path.stem == "sandbox")
RUNS = os.environ.get("HFCOMP_WRITE_CARDS")
SMALL = "--dataset_rows 96 --max_steps 2 --evaluation_items 5 --disable_tqdm true --logging_steps 1 --save_strategy no"


@pytest.fixture(scope="module", autouse=True)
def anew() -> None:
    for name in NAMES if RUNS else ():
        examples.write(name, None if RUNS == "1" else Path(RUNS) / name)


def card(name: str) -> str:
    return (examples.CARDS / f"{name}.md").read_text(encoding="utf-8")


def test_every_method_has_a_card_and_no_other_has():
    assert sorted(path.stem for path in examples.CARDS.glob("*.md")) == sorted([*NAMES, "template"])
    assert sorted(path.stem for path in examples.FACTS.iterdir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_neither_the_facts_nor_the_card_name_a_place_on_a_machine(name):
    facts = json.loads((examples.FACTS / f"{name}.json").read_text(encoding="utf-8"))
    assert without_local_paths(facts) == facts
    assert without_local_paths(card(name)) == card(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_card_is_what_the_template_makes_of_the_run(name):
    assert examples.render_example(name) == card(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_card_is_valid_and_whole(name):
    text = card(name)
    assert card_errors(text) == [] and ModelCard(text).data.eval_results
    for words in (
        "## Composition",
        "[",
        "bibtex",
        f"hfcomp train {name}",
        "| torch |",
        "Synthetic",
        "## Overlap of",
        " base ",
    ):
        assert words in text
    assert "Not checked" not in text  # the overlap of images
    assert "not stated" not in text  # every value of a recipe says whose it is


@pytest.mark.parametrize("name", NAMES)
def test_the_card_names_no_machine_no_path_and_no_token(name):
    text = card(name)
    assert not TOKEN.search(text)
    assert [match[0] for match in ABSOLUTE.finditer(text)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_the_recipe_has_a_card_of_the_same_parts(name, tmp_path):
    recipe = read_recipe(name, [*SMALL.split(), "--output_dir", str(tmp_path / "run")])
    text = (program.run(recipe) / "README.md").read_text(encoding="utf-8")
    assert parts(text) == parts(card(name))


def parts(text: str) -> list[str]:
    """The headings down to the third level; that of ties is there where an item has one."""
    return [heading for heading in headings(text) if not heading.startswith("####") and heading != "### Ties"]


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ .*$", text, re.MULTILINE)
