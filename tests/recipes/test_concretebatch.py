"""Slipform on ConcreteBatch: what its recipe and its plan train, and that both tables of the paper can be scored."""

from __future__ import annotations

import re

import pytest

from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.benchmarks.means import MEANS
from hfcomp.experiments.recipe_files import recipes_folder
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.statistics.measures import ROLES

README = (recipes_folder() / "slipform" / "README.md").read_text()
WORDS = ["--dataset", "concretebatch", "--use_cpu", "true"]
# the paper's rows: setting, margin
ROWS = {
    "D_lc + InfoNCE": ("low_concreteness", "infonce", "none"),
    "D_wo + InfoNCE": ("random", "infonce", "none"),
    "D_hc + InfoNCE": ("high_concreteness", "infonce", "none"),
    "D_lc + Cement": ("low_concreteness", "cement", "adaptive"),
    "D_wo + Cement": ("random", "cement", "adaptive"),
    "Inverse Margin": ("high_concreteness", "inverse", "inverse"),
    "Static Margin": ("high_concreteness", "static", "static"),
    "Slipform": ("high_concreteness", "cement", "adaptive"),
}


@pytest.fixture(scope="module")
def sweep():
    return read_plan("slipform", ["--config", "slipform/vit_b32_coco", "--report", "table2", *WORDS])


@pytest.mark.parametrize(("setting", "variant", "margin"), ROWS.values(), ids=list(ROWS))
def test_each_row_of_table_2_is_a_run_on_its_configuration(sweep, setting, variant, margin):
    part = sweep.parts[setting, sweep.plan.seeds[0], variant]
    assert (part.experiment.dataset, part.experiment.dataset_config) == ("concretebatch", setting)
    assert part.trainer_arguments["margin"] == margin
    assert part.trainer_arguments.get("static_margin", 1.0) == 1.0  # paper, section 3.3


def test_the_plan_shows_what_its_recipe_evaluates(sweep):
    scored = [benchmark.title for benchmark in find_benchmarks(sweep.recipe.experiment.evaluation_benchmarks)]
    assert set(sweep.plan.benchmarks) <= {*scored, *ROLES}
    assert len(sweep.parts) == 36


def test_the_recipe_is_judged_by_the_mean_of_table_2_whose_parts_it_evaluates():
    config = read_recipe("slipform/vit_b32_coco").experiment
    source, _, name = config.primary.partition(": ")
    (mean,) = [entry for entry in MEANS[source] if entry.name == name]
    assert {title for title, _, _ in mean.parts} <= {
        benchmark.title for benchmark in find_benchmarks(config.evaluation_benchmarks)
    }


def test_the_readme_s_command_scores_all_of_table_3():
    (names,) = re.findall(r"--benchmarks (\S*probe\S*)", README)
    mean, _ = MEANS["Im et al. 2026, Table 3"]  # the other one is of all of Flickr30k
    assert {benchmark.title for benchmark in find_benchmarks(names.split(","))} == {
        title for title, _, _ in mean.parts
    }
