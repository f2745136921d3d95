"""The method on the sandbox's rows with human ratings: which arms, on which rows, and a whole run with them."""

from __future__ import annotations

import json
import math

import pytest

from hfcomp.experiments import program
from hfcomp.experiments.arm import Arm, method_arm
from hfcomp.experiments.controls import rated_arms
from hfcomp.experiments.data import training_rows
from hfcomp.experiments.recipes import Recipe, read_recipe
from hfcomp.sandbox.negatives import DRAWABILITY

MARGIN = 2 * math.tanh(3)  # of the concreteness 4.9


@pytest.fixture
def norms(tmp_path) -> str:
    """Human ratings that do not exist: everything is as concrete as can be, but for one word that is missing."""
    lines = [f"{word}\t4.9\tNoun\n" for word in DRAWABILITY if word != "left"]
    (tmp_path / "norms.txt").write_text("Word\tConc.M\tDom_Pos\n" + "".join(lines))
    return str(tmp_path / "norms.txt")


def arms(*words: str, recipe: str = "slipform") -> tuple[Arm, list[Arm], list[str]]:
    loaded_recipe: Recipe = read_recipe(recipe, ["--dataset_rows", "60", *words])
    rows, logged = training_rows(loaded_recipe.experiment, seed=0, log=lambda note: None), []
    method = method_arm(loaded_recipe, rows)
    return method, rated_arms(loaded_recipe.experiment, method, logged.append), logged


@pytest.mark.parametrize("ratings", ["bands", "synthetic"])
def test_a_file_adds_the_method_and_its_static_margin_with_human_ratings(norms, ratings):
    method, (static, human), logged = arms("--concreteness_ratings", norms, "--ratings", ratings)
    assert (static.name, human.name) == ("static-margin-human", "Slipform-human")
    keywords = [words[0] for words in method.rows["negative_keywords"]]
    expected = [[None if word == "left" else pytest.approx(4.9)] for word in keywords]
    assert human.rows["negative_concreteness"][:] == static.rows["negative_concreteness"][:] == expected
    assert method.rows["negative_concreteness"][:] != expected
    mean = MARGIN * sum(word != "left" for word in keywords) / len(keywords)
    assert human.arguments == method.arguments
    assert static.arguments["margin"] == "static"
    assert static.arguments["static_margin"] == pytest.approx(mean, abs=1e-3)
    assert human.description == f"Slipform with human ratings (norms.txt), mean margin {mean:.2f}"
    assert static.description.endswith(f"the mean of Slipform-human's own margins ({mean:.2f} with seed 42)")
    missing, *meanings = logged
    assert "missing: 'left'" in missing
    assert meanings == [f"{arm.name}: {arm.description}" for arm in (static, human)]


def test_the_static_margin_is_left_out_with_its_control(norms):
    _, built_arms, _ = arms("--concreteness_ratings", norms, "--controls", "plain")
    assert [arm.name for arm in built_arms] == ["Slipform-human"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--margin", "static"], "concreteness_ratings is not read: Slipform has the margin static"),
        (["--objective", "hfcomp.trainers.info_nce:InfoNCETrainer"], "Slipform has no margin that depends on ratings"),
    ],
)
def test_a_file_that_changes_nothing_is_named(norms, words, line):
    _, built_arms, (logged,) = arms("--concreteness_ratings", norms, *words)
    assert not built_arms and line in logged
    assert arms(*words)[1:] == ([], [])  # and without the file nothing is missing


def test_a_method_that_has_human_ratings_itself_has_no_further_arms(norms):
    assert arms("--concreteness_ratings", norms, "--ratings", "human")[1:] == ([], [])


@pytest.mark.follows("hfcomp/experiments/controls.py", "No human ratings: pass --concreteness_ratings FILE")
def test_without_the_file_the_run_says_how_to_have_the_further_arms(norms):
    _, built_arms, logged = arms()
    (line,) = logged
    assert not built_arms
    assert line.endswith("--concreteness_ratings FILE to also run static-margin-human and Slipform-human.")
    _, built_arms, _ = arms("--concreteness_ratings", norms)
    assert [arm.name for arm in built_arms] == ["static-margin-human", "Slipform-human"]


@pytest.mark.slow
def test_a_run_trains_scores_and_names_them(norms, tmp_path):
    words = (
        "--dataset_rows 48 --batch_size 8 --max_steps 1 --save_strategy no --evaluation_items 3 --disable_tqdm true"
    )
    words += f" --controls static-margin --page false --output_dir {tmp_path / 'run'} --concreteness_ratings {norms}"
    folder = program.run(read_recipe("slipform", words.split()))
    results = json.loads((folder / "results.json").read_text())
    assert list(results["models"]) == ["base", "static-margin", "static-margin-human", "Slipform-human", "Slipform"]
    assert {path.name for path in (folder / "controls").iterdir()} == {
        *("static-margin", "static-margin-human", "Slipform-human")
    }
    report = (folder / "report.md").read_text()
    for name in ("static-margin", "static-margin-human", "Slipform-human"):
        assert results["meanings"][name] in report and results["meanings"][name] in (folder / "README.md").read_text()
    assert any("our bands, in the order of human norms" in note for note in results["notes"])
    assert "our bands, in the order of human norms" in report
