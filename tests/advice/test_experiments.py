"""Follows the advice of `hfcomp train` on its command line; training itself is tested elsewhere."""

from __future__ import annotations

import datasets
import pytest
import yaml

from hfcomp import run_folders
from hfcomp.analysis.tradeoff import whole_parts
from hfcomp.experiments.controls import control_arms, same_batch
from hfcomp.experiments.guard import without
from hfcomp.experiments.prepare import prepare_concepts
from hfcomp.experiments.pushing import RunPush
from hfcomp.experiments.recipe_files import find_plan
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.session import open_session
from hfcomp.statistics import Outcomes
from hfcomp.trainers.hooks import INFO_NCE_FORMS, declare_info_nce
from tests import tiny
from tests.advice.messages import ROOT
from tests.evaluation.evaluations import crepe
from tests.experiments.test_controls import SilentCement, method

SMALL = ("--evaluation_items", "2", "--use_cpu", "true", "--dataset_rows", "16", "--batch_size", "8")
RECIPES, FIELDS = "hfcomp/experiments/recipes.py", "hfcomp/experiments/recipe_fields.py"
RECIPE_FILES = "hfcomp/experiments/recipe_files.py"
PLANS = "hfcomp/experiments/studies/plans.py"
FILES = "hfcomp/experiments/studies/plan_files.py"
CONFIG = "hfcomp/experiments/experiment_config.py"


def write_plan(folder, recipe: str, plan: str, option: str = "report", **values) -> str:
    """A copy of a shipped plan with other values."""
    settings = yaml.safe_load(find_plan(recipe, plan, option).read_text()) | values
    path = folder / f"{plan}.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in settings.items() if value is not None}))
    return str(path)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        pytest.param(
            ["--per_device_train_batch_size", "8"],
            [["--batch_size", "8"]],
            marks=pytest.mark.follows(FIELDS, "Set batch_size instead."),
        ),
        pytest.param(
            ["--report", "margins", "--seed", "5"],
            [["--report", "margins"]],
            marks=pytest.mark.follows(RECIPES, "--{name} is set by {where}. Leave it out, or change it there."),
        ),
        pytest.param(
            ["--dataset", "./nowhere"],
            [["--dataset", "sandbox"]],
            marks=pytest.mark.follows(RECIPE_FILES, "run that recipe first; otherwise correct --{field}."),
        ),
        pytest.param(
            ["--hard_images", "2"],
            [[], ["--hard_images", "0"]],
            marks=pytest.mark.follows(
                RECIPES, "Set num_neighbors if the objective has this field, or leave hard_images out."
            ),
        ),
        pytest.param(
            ["--evaluation", "sandbox+benchmarks"],
            [["--evaluation", "sandbox+benchmarks", "--evaluation_benchmarks", "sandbox_zero_shot"]],
            marks=pytest.mark.follows(CONFIG, "needs evaluation_benchmarks. Pass --evaluation_benchmarks NAME"),
        ),
        pytest.param(
            ["--key_column", "url"], [[]], marks=pytest.mark.follows(CONFIG, "{name} {why} leave {name} out.")
        ),
        pytest.param(
            ["--report", "margins", "--search", "any"],
            [["--report", "margins"]],
            marks=pytest.mark.follows(FILES, "--report and --search cannot be combined. Leave one of them out."),
        ),
        pytest.param(
            ["--report", "margins", "--forgetting_guard"],
            [["--report", "margins"]],
            marks=pytest.mark.follows(
                FILES, "forgetting_guard works only for a single run of a recipe. Leave it out here."
            ),
        ),
        pytest.param(
            ["--hub_model_id", "me/mine"],
            [[]],
            marks=pytest.mark.follows(
                "hfcomp/experiments/pushing.py", "has no effect without --{PUSH}. Pass both, or leave {useless} out."
            ),
        ),
        pytest.param(
            ["--report", "margins", "--push_to_hub"],
            [["--report", "margins"]],
            marks=pytest.mark.follows("hfcomp/experiments/pushing.py", "Leave it out, and push"),
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


@pytest.mark.follows("hfcomp/reading.py", "is not set. Set it, or pass")
def test_a_variable(advice, train_begins, monkeypatch, splits):
    words = ["slipform", *SMALL[:4], "--batch_size", "8", "--evaluation", "own", "--dataset"]
    advice.command("train", *words, "$ROWS/splits")
    monkeypatch.setenv("ROWS", str(splits.parent))
    train_begins(*words, "$ROWS/splits")
    train_begins(*words, splits)


@pytest.mark.follows(RECIPES, "Leave it out, or change it there.")
def test_a_field_that_a_sweep_sets(advice, train_begins, tmp_path):
    mine = write_plan(tmp_path, "slipform", "margins", settings={"all": {"edit_noise": 0.5}})
    advice.command("train", "slipform", *SMALL, "--report", mine, "--edit_noise", "0.2")
    write_plan(tmp_path, "slipform", "margins", settings={"all": {"edit_noise": 0.2}})
    train_begins("slipform", *SMALL, "--report", mine)


@pytest.mark.follows(RECIPES, "For your own model, start from another recipe: --config")
def test_a_model_of_ones_own_in_the_sandbox(advice, train_begins, clip, splits):
    message = advice.command("train", "slipform", "--model", str(clip))
    config = message.partition("--config ")[2].split()[0]
    here = ["--model", clip, "--use_cpu", "true", "--bf16", "false", "--evaluation", "own"]
    train_begins("slipform", *here, "--config", config, "--dataset", splits, "--batch_size", "16")


@pytest.mark.follows(RECIPES, "Set num_neighbors if the objective has this field, or leave hard_images out.")
def test_hard_images(advice, train_begins):
    words = ["negclip", *SMALL, "--hard_images", "2", "--num_neighbors"]
    advice.command("train", *words, "0")
    train_begins(*words, "1")


@pytest.mark.follows(CONFIG, "Pass --model, or set hard_images and num_neighbors to 0.")
def test_hard_images_of_random_weights(advice, train_begins, clip, old_clip, splits, tmp_path):
    given = {name: value for name, value in read_recipe("negclip").given.items() if not name.startswith("evaluation")}
    given |= {"dataset": str(splits), "fresh_model": "vit_tiny", "hard_images": 2, "batch_size": 4, "use_cpu": True}
    given |= {"evaluation": "own", "output_dir": str(tmp_path / "run"), "num_negatives": 2}
    for name in ("primary", "dataset_rows", "edit_noise"):
        given.pop(name, None)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(given))
    advice.command("train", "mine.yaml")
    train_begins("mine.yaml", "--model", clip)
    vocabulary = str(old_clip)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(given | {"clip_vocabulary": vocabulary}))
    train_begins("mine.yaml", "--hard_images", "0", "--num_neighbors", "0")


@pytest.mark.follows("hfcomp/experiments/arm.py", "or less, or use more rows.")
def test_fewer_rows_than_a_batch(advice, train_begins, splits):
    words = ["slipform", *SMALL[:4], "--evaluation", "own", "--controls", "none", "--dataset", str(splits)]
    advice.command("train", *words, "--batch_size", "17")
    train_begins(*words, "--batch_size", "16")
    rows = tiny.pairs(25, ragged=False)
    datasets.DatasetDict({"train": rows.select(range(17)), "test": rows.select(range(17, 25))}).save_to_disk(splits)
    train_begins(*words, "--batch_size", "17")


@pytest.mark.follows(
    "hfcomp/experiments/controls.py", "Next to the class, call hfcomp.trainers.hooks.declare_info_nce("
)
def test_an_objective_of_ones_own(advice, monkeypatch):
    mine = method(SilentCement)
    advice.of(same_batch, mine)
    assert [arm.name for arm in control_arms(["plain"], mine, requested=True, log=print)] == ["plain"]
    monkeypatch.setitem(INFO_NCE_FORMS, SilentCement, None)  # removed again
    declare_info_nce(SilentCement, margin="none")
    assert [arm.name for arm in control_arms(["same-batch"], mine, requested=True, log=print)] == ["same-batch"]


@pytest.mark.follows(
    "hfcomp/experiments/guard.py", "Name other benchmarks, or leave guard_benchmarks out to choose points"
)
def test_a_guard_on_the_images_of_the_report(advice):
    session = open_session({})
    table = crepe("clip", 0.5)
    advice.of(without, Outcomes(table), set(table["image_id"]), session)
    others = table.assign(image_id="other " + table["image_id"].astype(str))
    assert len(without(Outcomes(others), set(table["image_id"]), session).table) == len(table)


@pytest.mark.follows(
    "hfcomp/experiments/prepare.py", "Pass a --keyword_table with the sandbox's words, such as recipes/hard_"
)
def test_concepts_without_words(advice, tmp_path):
    (tmp_path / "words.yaml").write_text("size: {pairs: [[wide, narrow]]}")
    config = read_recipe("hard_negatives", ["--evaluation_items", "2"]).experiment

    def prepare(table: str):
        given = config.model_copy(update={"keyword_table": table})
        return prepare_concepts(given, ["size"], main=(), log=print)

    message = advice.of(prepare, str(tmp_path / "words.yaml"))
    table = message.partition("such as ")[2].rstrip(".")
    assert prepare(str(ROOT / table))["size"].loaded


@pytest.mark.follows("hfcomp/experiments/pushing.py", "{PUSH} needs --{REPOSITORY}, such as my-org/my-")
@pytest.mark.follows(
    "hfcomp/experiments/pushing.py", "has no effect without --{PUSH}. Pass both, or leave {useless} out."
)
def test_a_push(advice):
    def push(*words: str) -> RunPush | None:
        recipe = read_recipe("slipform", words)
        return RunPush.of(recipe.push, recipe.experiment.method)

    message = advice.of(push, "--push_to_hub")
    name = message.partition("such as ")[2].rstrip(".")
    assert push("--push_to_hub", "--hub_model_id", name).options.repo == name
    advice.of(push, "--hub_model_id", name)
    assert push() is None


@pytest.mark.follows(
    "hfcomp/experiments/studies/plan_files.py",
    "Pass their --evaluation_split (and --evaluation_dataset), or leave embeddings out.",
)
@pytest.mark.follows("hfcomp/experiments/studies/plan_files.py", "To hold out rows of the training split: ")
def test_embeddings_of_rows_that_are_not_held_out(advice, train_begins, splits, tmp_path):
    values = {"settings": {"all": {}}, "seeds": [1], "benchmarks": None}
    mine = write_plan(tmp_path, "slipform", "margins", embeddings={"variants": ["none"], "rows": 8}, **values)
    words = ["slipform", *SMALL[2:4], "--batch_size", "8", "--dataset", str(splits), "--report", mine]
    advice.command("train", *words, "--evaluation", "sandbox")
    sandbox = ["--evaluation", "sandbox", "--evaluation_items", "2"]
    train_begins(*words, *sandbox, "--evaluation_dataset", str(splits), "--evaluation_split", "test")
    train_begins(*words, *sandbox, "--dataset_split", "train[8:]", "--evaluation_split", "train[:8]")
    write_plan(tmp_path, "slipform", "margins", **values)
    train_begins(*words, "--evaluation", "sandbox", "--evaluation_items", "2")


@pytest.mark.follows("hfcomp/analysis/tradeoff.py", "Set num_train_epochs instead of max_steps.")
@pytest.mark.follows("hfcomp/analysis/tradeoff.py", "Lower batch_size or checkpoints_per_epoch.")
def test_a_study_of_concepts(advice, train_begins, tmp_path):
    mine = write_plan(tmp_path, "hard_negatives", "tradeoff", concepts={"color": [1]})
    words = ["hard_negatives", *SMALL[:4], "--dataset_rows", "16", "--report", mine, "--batch_size"]
    advice.command("train", *words, "8", "--max_steps", "5")
    train_begins(*words, "1", "--num_train_epochs", "1")
    advice.of(whole_parts, tiny.pairs(16), 8, 3, print)
    assert len(whole_parts(tiny.pairs(16), 4, 3, print)) == 12
    assert len(whole_parts(tiny.pairs(16), 8, 2, print)) == 16


@pytest.mark.follows(FILES, "Use --{kind.option} {path}.")
@pytest.mark.follows(FILES, "cannot be searched: the best of several seeds is luck. Compare seeds with --report.")
@pytest.mark.follows(PLANS, "products: {name} also has a range. Leave one of the two out.")
@pytest.mark.follows(PLANS, "only_in_search: {name} is also searched. Leave one of the two out.")
def test_a_search(advice, train_begins, tmp_path):
    pytest.importorskip("optuna")
    sweep = write_plan(tmp_path, "slipform", "margins")
    message = advice.command("train", "slipform", *SMALL, "--search", sweep)
    option, path = message.partition("Use ")[2].rstrip(".").split()
    train_begins("slipform", *SMALL, option, path)
    search, rates = tmp_path / "mine.yaml", {"learning_rate": {"low": 1e-4, "high": 1e-2}}
    good = {"maximize": "sandbox: *", "trials": 1, "ranges": rates}
    words = ["slipform", *SMALL, "--search", str(search)]
    for wrong in (
        {"ranges": {"seed": {"choices": [1, 2]}}},
        {"products": {"learning_rate": ["batch_size"]}},
        {"only_in_search": {"learning_rate": 1e-3}},
    ):
        search.write_text(yaml.safe_dump(good | wrong))
        advice.command("train", *words)
    search.write_text(yaml.safe_dump(good))
    train_begins(*words)


@pytest.mark.follows(
    "hfcomp/run_folders.py", "Restore it from a copy, remove the folder, or choose another --output_dir."
)
@pytest.mark.follows("hfcomp/run_folders.py", "numbered variants are taken. Choose another --output_dir.")
def test_folders_of_runs(advice, tmp_path, monkeypatch):
    def take(name: str) -> str:
        how = {"may_change": lambda field: False, "wants_more": lambda folder: False}
        with run_folders.run_folder(tmp_path / name, {"output_dir": name}, print, **how) as folder:
            return folder.name

    monkeypatch.setattr(run_folders, "_numbered_paths", lambda wanted: iter([wanted]))
    assert take("run") == "run"
    whole = (tmp_path / "run/config.yaml").read_text()
    (tmp_path / "run/config.yaml").write_text("damaged")
    advice.of(take, "run")
    assert take("another") == "another"
    (tmp_path / "run/config.yaml").write_text(whole.replace(str(tmp_path / "run"), "run"))
    assert take("run") == "run"
    (tmp_path / "run/finished").write_text("")
    advice.of(take, "run")
    assert take("third") == "third"


@pytest.mark.follows("hfcomp/experiments/command.py", "pass --num_negatives")
def test_fewer_negatives_than_are_read(advice, train_begins, splits):
    words = ["ceclip", *SMALL[:4], "--evaluation", "own", "--controls", "none", "--dataset", str(splits)]
    advice.command("train", *words, "--num_negatives", "4")
    train_begins(*words, "--num_negatives", "2", "--batch_size", "8")
