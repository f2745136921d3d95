"""What cards say of methods: every recipe and every trainer has papers, whose entries fit the paper index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hfcomp.trainers
from hfcomp.experiments.recipe_files import recipe_files, recipes_folder
from hfcomp.reading import read_yaml
from hfcomp.reporting.cards.methods import class_names, find_method
from hfcomp.trainers.base import CompositionalTrainer

INDEX = (Path(__file__).resolve().parents[3] / "docs/paper_index.md").read_text()
NAMES = sorted({read_yaml(path)["method"] for path in recipe_files(recipes_folder())})
# bases of several objectives, which are not trained with themselves
BASES = {"CompositionalTrainer", "DrawnBatchTrainer", "GroupedTrainer", "ThresholdTrainer"}
TRAINERS = [name for name in hfcomp.trainers.__all__ if name.endswith("Trainer") and name not in BASES]


@pytest.mark.parametrize("name", NAMES)
def test_every_method_of_a_recipe_is_known_by_its_name(name):
    method = find_method(name, [])
    assert method.name == name and method.idea and method.papers


@pytest.mark.parametrize("name", TRAINERS)
def test_every_trainer_and_what_derives_from_it_is_known(name):
    kind = getattr(hfcomp.trainers, name)
    method = find_method(None, class_names(kind))
    assert method.papers
    assert class_names(type("Mine", (kind,), {}))[0] == "Mine"
    assert find_method(None, class_names(type("Mine", (kind,), {}))) == method


def test_an_objective_of_nobody_we_know_has_no_papers():
    assert find_method("Mine", class_names(type("MyTrainer", (CompositionalTrainer,), {}))) is None


PAPERS = {paper.url: paper for name in NAMES for paper in find_method(name, []).papers}


@pytest.mark.parametrize("paper", PAPERS.values(), ids=list(PAPERS))
def test_a_paper_s_entry_is_whole_and_its_number_is_that_of_the_index(paper):
    number = paper.url.removeprefix("https://arxiv.org/abs/")
    assert number in INDEX
    fields = dict(re.findall(r"^  (\w+) = \{(.*)\},?$", paper.bibtex, re.MULTILINE))
    assert re.match(r"@\w+\{[a-z]+\d{4}\w+,\n", paper.bibtex) and paper.bibtex.rstrip().endswith("}")
    assert fields["title"] == paper.title.strip() and fields["author"] and fields["year"].isdigit()
    assert fields.get("journal", f"arXiv preprint arXiv:{number}").endswith(number)
    assert paper.bibtex.count("{") == paper.bibtex.count("}")
