"""Names that were once spelled the British way are still read, in data, recipes and on command lines."""

from __future__ import annotations

import tomllib
from pathlib import Path

from datasets import Dataset

from hfcomp.data import rename_columns
from hfcomp.data.loading import load_training_set
from hfcomp.experiments.recipes import RecipeFile
from hfcomp.old_names import current_names

ROOT = Path(__file__).parents[1]
ROWS = Dataset.from_dict({"caption": ["a dog"], "generalised_caption": ["an animal"], "neighbour_ids": [["1"]]})


def test_columns_of_a_saved_dataset_get_their_present_names(tmp_path):
    ROWS.save_to_disk(tmp_path / "rows")
    names = load_training_set(str(tmp_path / "rows")).column_names
    assert names == ["caption", "generalized_caption", "neighbor_ids"]


def test_a_mapping_may_use_either_name():
    for theirs in ("generalised_caption", "generalized_caption"):
        assert rename_columns(ROWS, {"caption": theirs})["caption"][:] == ["an animal"]
    renamed = rename_columns(ROWS, {"generalised_caption": "caption"})
    assert renamed["generalized_caption"][:] == ["a dog"]


def test_a_column_that_already_has_the_present_name_wins():
    rows = ROWS.add_column("generalized_caption", ["a mammal"])
    assert rename_columns(rows, {"caption": "generalized_caption"})["caption"][:] == ["a mammal"]


def test_recipes_and_command_lines_may_use_old_fields(tmp_path):
    text = (ROOT / "recipes/negclip/sandbox.yaml").read_text(encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text.replace("num_neighbors: 1", "num_neighbours: 2"), encoding="utf-8")
    assert "num_neighbours" in recipe.read_text(encoding="utf-8")
    assert RecipeFile.read(str(recipe)).recipe().trainer_arguments["num_neighbors"] == 2
    recipe = RecipeFile.read(str(recipe), ["--num_neighbours", "3", "--metric_for_best_model", "loss"]).recipe()
    assert recipe.trainer_arguments["num_neighbors"] == 3


def test_values_that_name_columns_are_respelled_and_others_are_not():
    values = {"aligned_with": ["generalised_caption"], "dataset": "my/colour/neighbours", "rows": 3}
    assert current_names(values) == values | {"aligned_with": ["generalized_caption"]}


def test_the_old_extra_installs_the_present_one():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert extras["neighbours"] == ["hfcomp[neighbors]"] and extras["neighbors"]
