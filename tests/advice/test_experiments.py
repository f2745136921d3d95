"""What `hfcomp train` advises, done on its command line; training itself is tested elsewhere."""

from __future__ import annotations

import pytest
import yaml

from hfcomp import run_folders
from hfcomp.experiments.controls import INFO_NCE_FORMS, control_arms, declare_info_nce, same_batch
from hfcomp.experiments.guard import without
from hfcomp.experiments.pushing import RunPush
from hfcomp.experiments.recipes import find_plan, read_recipe
from hfcomp.experiments.session import open_session
from hfcomp.experiments.studies.tradeoff import whole_parts
from hfcomp.statistics import Outcomes
from tests import tiny
from tests.evaluation.evaluations import crepe
from tests.experiments.test_controls import SilentCement, method

SMALL = ("--evaluation_items", "2", "--use_cpu", "true", "--dataset_rows", "16", "--batch_size", "8")
RECIPES = "hfcomp/experiments/recipes.py"
PLANS = "hfcomp/experiments/studies/plans.py"
FILES = "hfcomp/experiments/studies/plan_files.py"
CONFIG = "hfcomp/experiments/experiment_config.py"


def changed(folder, recipe: str, plan: str, option: str = "report", **values) -> str:
    """A copy of a shipped plan with other values."""
    found = yaml.safe_load(find_plan(recipe, plan, option).read_text()) | values
    path = folder / f"{plan}.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in found.items() if value is not None}))
    return str(path)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        pytest.param(
            ["--per_device_train_batch_size", "8"],
            [["--batch_size", "8"]],
            marks=pytest.mark.follows(RECIPES, "set batch_size instead."),
        ),
        pytest.param(
            ["--report", "margins", "--seed", "5"],
            [["--report", "margins"]],
            marks=pytest.mark.follows(RECIPES, "--{name} is set by {where}. Leave it out, or change it there."),
        ),
        pytest.param(
            ["--dataset", "./nowhere"],
            [["--dataset", "sandbox"]],
            marks=pytest.mark.follows(RECIPES, "run that one first; else correct --{field}."),
        ),
        pytest.param(
            ["--hard_images", "2"],
            [[], ["--hard_images", "0"]],
            marks=pytest.mark.follows(RECIPES, "Set num_neighbours where it has the field, or leave hard_images out."),
        ),
        pytest.param(
            ["--evaluation", "sandbox+benchmarks"],
            [["--evaluation", "sandbox+benchmarks", "--evaluation_benchmarks", "sandbox_zero_shot"]],
            marks=pytest.mark.follows(CONFIG, "Pass --evaluation_benchmarks NAME ..."),
        ),
        pytest.param(
            ["--key_column", "url"], [[]], marks=pytest.mark.follows(CONFIG, "{name} {why} leave {name} out.")
        ),
        pytest.param(
            ["--report", "margins", "--search", "any"],
            [["--report", "margins"]],
            marks=pytest.mark.follows(FILES, "--report and --search are two things. Leave one of them out."),
        ),
        pytest.param(
            ["--report", "margins", "--forgetting_guard"],
            [["--report", "margins"]],
            marks=pytest.mark.follows(FILES, "forgetting_guard is of a recipe's own run. Leave it out here."),
        ),
        pytest.param(
            ["--hub_model_id", "me/mine"],
            [[]],
            marks=pytest.mark.follows(
                "hfcomp/experiments/pushing.py", "says where a run is pushed: pass --{PUSH} too, or leave it out."
            ),
        ),
        pytest.param(
            ["--report", "margins", "--push_to_hub"],
            [["--report", "margins"]],
            marks=pytest.mark.follows("hfcomp/experiments/pushing.py", "Leave it out, and push one of them by"),
        ),
        pytest.param(
            ["--dataset", "$NOT_SET/rows"],
            [["--dataset", "sandbox"]],
            marks=pytest.mark.follows("hfcomp/reading.py", "is not set. Set it, or pass"),
        ),
        pytest.param(
            ["--dataset", "$MY_TOKEN/rows"],
            [["--dataset", "sandbox"]],
            marks=pytest.mark.follows("hfcomp/reading.py", "Rename it, or pass --{name} with the path itself."),
        ),
    ],
)
def test_fields_of_a_recipe(advice, train_begins, wrong, right):
    advice.command("train", "slipform", *SMALL, *wrong)
    for words in right:
        train_begins("slipform", *SMALL, *words)
