"""Each objective has a page under the same headings, and what the page says of fields and columns is so."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import hfcomp
import hfcomp.losses
from hfcomp.data.columns import COLUMNS
from hfcomp.experiments.recipe_files import recipes_folder
from hfcomp.fields import FIELDS
from hfcomp.trainers.config import OPTIMIZATION, CompositionalConfig

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "objectives").glob("*.md"))
HEADINGS = [
    *("Idea", "Equations and functions", "Columns", "Defaults", "Logged metrics", "Paper and released code"),
    "Recipe",
]
# documented with the paper's form, whose page says where they differ
RELEASED = {"AHNPLReleasedTrainer", "ClearGlassReleasedTrainer"}
# no objectives, but what several of them share
PARENTS = {"CompositionalTrainer", "DrawnBatchTrainer", "GroupedTrainer", "ThresholdTrainer"}


def part(page: Path, heading: str) -> str:
    return page.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def trainer_of(page: Path) -> type:
    (name,) = re.findall(r"`hfcomp\.(\w+Trainer)`", page.read_text().partition("\n## ")[0])
    return getattr(hfcomp, name)


def table(text: str) -> list[list[str]]:
    rows = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in text.splitlines() if line.startswith("| ")]
    return rows[1:]


def test_every_trainer_has_a_page():
    trainers = {name for name in hfcomp.__all__ if name.endswith("Trainer")} - PARENTS
    text = "".join(page.read_text() for page in PAGES)
    assert {trainer_of(page).__name__ for page in PAGES} | RELEASED == trainers
    assert all(name in text for name in RELEASED)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_all_headings_functions_and_its_recipe(page):
    assert re.findall(r"^## (.*)$", page.read_text(), flags=re.MULTILINE) == HEADINGS
    for cell, *_ in table(part(page, "Equations and functions")):
        for name in re.findall(r"`(\w+)`", cell):
            assert callable(getattr(hfcomp.losses, name))
    recipes = re.findall(r"recipes/(\w+)/README", part(page, "Recipe"))
    assert recipes and all((recipes_folder() / f"{name}.py").is_file() for name in recipes)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_columns_are_those_that_the_trainer_reads(page):
    stated = {name.strip("`"): needed for name, needed in table(part(page, "Columns"))}
    assert set(stated) <= {*COLUMNS}
    read = {FIELDS[name].column for name in trainer_of(page).required_features if FIELDS[name].column}
    if page.stem != "hierarcaps":  # reads columns of the user's choice
        assert read <= set(stated)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_defaults_are_those_of_the_config(page):
    config = trainer_of(page).config_class
    own = {name for kind in config.__mro__ if issubclass(kind, CompositionalConfig) for name in _fields_of(kind)}
    known = {field.name: field for field in dataclasses.fields(config)}
    stated = {name.strip("`"): default.strip("`") for name, default, _ in table(part(page, "Defaults"))}
    assert own <= set(stated)
    for name, default in stated.items():
        field = known[name]
        value = field.default_factory() if field.default is dataclasses.MISSING else field.default
        assert default == ("unset" if value is None else str(value)), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_logged_metrics_are_explained(page):
    meanings = (DOCS / "objectives.md").read_text()
    for name in re.findall(r"`(\w+)`", part(page, "Logged metrics")):
        start = "accuracy_" if name.startswith("accuracy_") else name
        assert f"`{name}`" in meanings or f"`{start}" in meanings, name


def _fields_of(kind: type) -> set[str]:
    """Fields that a config adds, and the optimizer's that it sets anew."""
    own = {name for name in kind.__dict__.get("__annotations__", {}) if not name.startswith("_")}
    return own & {*OPTIMIZATION} - {"decoupled_weight_decay"} if kind is CompositionalConfig else own
