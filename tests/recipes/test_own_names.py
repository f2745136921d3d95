"""A recipe on a table of file names: trained, built and scored under the names that it has."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from hfcomp import cli
from hfcomp.data import load_training_set
from hfcomp.experiments.arm import method_arm
from hfcomp.experiments.program import run
from hfcomp.experiments.recipes import read_recipe
from tests import tiny

pytestmark = pytest.mark.usefixtures("without_figures")

NAMES = ["--column_names", "image=filepath,caption=title"]


@pytest.fixture
def table(tmp_path):
    """A table as open_clip reads it, with a test split next to it."""
    rows = tiny.pairs(12)
    (tmp_path / "photos").mkdir()
    for row, image in enumerate(rows["image"]):
        image.save(tmp_path / "photos" / f"{row}.png")
    lines = [f"photos/{row}.png\t{caption}\n" for row, caption in enumerate(rows["caption"])]
    for name, part in (("train", lines[:8]), ("test", lines[8:])):
        (tmp_path / f"{name}.tsv").write_text("filepath\ttitle\n" + "".join(part))
    return tmp_path / "train.tsv"


def test_the_command_of_the_documentation_can_start():
    page = (Path(__file__).resolve().parents[2] / "docs/datasets.md").read_text()
    (line,) = re.findall(r"^hfcomp train (.*)$", page, re.MULTILINE)
    name, *words = shlex.split(line)
    recipe = read_recipe(name, [*words, "--use_cpu", "true"])
    method_arm(recipe, None).check()
    assert (
        recipe.column_names == {"image": "filepath", "caption": "title"} and recipe.experiment.dataset == "pairs.tsv"
    )


def test_a_recipe_trains_and_scores_a_table(table, tmp_path):
    words = ["--dataset", str(table), *NAMES, "--controls", "none", "--max_steps", "1", "--batch_size", "4"]
    words += ["--num_negatives", "0", "--disable_tqdm", "true", "--output_dir", str(tmp_path / "run")]
    words += ["--evaluation", "own", "--evaluation_dataset", str(table.with_name("test.tsv"))]
    words += ["--hard_images", "0", "--num_neighbors", "0", "--draw_negatives", "false"]
    words += ["--evaluation_split", "train"]
    folder = run(read_recipe("negclip", words))
    results = json.loads((folder / "results.json").read_text())
    assert pd.read_parquet(folder / "items.parquet")["item"].nunique() == 4
    assert results["data"]["training"]["rows"] == 8


def test_a_recipe_draws_one_of_several_captions(table, tmp_path):
    captions = [[f"{caption} here", f"{caption} there"] for caption in tiny.pairs(8)["caption"]]
    rows = [{"file": f"photos/{row}.png", "sentences": texts} for row, texts in enumerate(captions)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["--dataset", str(tmp_path / "rows.jsonl"), "--column_names", "image=file,caption=sentences"]
    words += ["--captions", "drawn", "--controls", "none", "--max_steps", "2", "--batch_size", "4"]
    words += ["--evaluation", "own", "--evaluation_dataset", str(tmp_path / "rows.jsonl"), "--overlap", "allow"]
    words += ["--evaluation_split", "train", "--hard_images", "0", "--num_neighbors", "0", "--num_negatives", "0"]
    words += ["--draw_negatives", "false", "--disable_tqdm", "true", "--output_dir", str(tmp_path / "run")]
    recipe = read_recipe("negclip", words)
    assert recipe.trainer_arguments["draw_captions"] and "draw_captions" not in recipe.given
    folder = run(recipe)
    assert (folder / "method" / "model.safetensors").is_file()
    with pytest.raises(ValueError, match="draw_captions .*captions: drawn"):
        read_recipe("negclip", ["--draw_captions", "true"])


def test_a_build_reads_a_table(table, tmp_path):
    words = ["--source", str(table), *NAMES, "--kinds", "keyword", "--output", str(tmp_path / "set")]
    cli.main(["build", "negatives", *words])
    rows = load_training_set(str(tmp_path / "set"))
    assert rows["caption"][:] == tiny.pairs(8)["caption"][:] and rows[0]["image"].size == (32, 32)
