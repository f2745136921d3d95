"""Recipes: found in a clone and in an installed package, overridden by typed fields, refused when misspelt."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import hfcomp
from hfcomp.experiments import recipes
from hfcomp.experiments.experiment_config import PATH_FIELDS
from hfcomp.experiments.recipe_fields import convert_fields, field_hints
from hfcomp.experiments.recipe_files import find_recipe, recipe_files, recipes_folder
from hfcomp.experiments.recipes import RecipeFile, read_recipe
from hfcomp.reading import expand_variables
from hfcomp.trainers.ce_clip import CEClipConfig
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.config import field_limits, own_limits
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import processes


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "method: Mine\nobjective: hfcomp.trainers.cement:CementTrainer\ndataset: sandbox\nbatch_size: 8\n"
        "learning_rate: 1e-3\ncolumn_names: {caption: text}\ncontrols: []\n"
    )
    return str(path)


def test_a_recipe_without_arguments_is_the_methods_sandbox():
    loaded_recipe = read_recipe("slipform")
    assert loaded_recipe.trainer_class is CementTrainer
    assert loaded_recipe.experiment.dataset == "sandbox"
    assert loaded_recipe.experiment.controls == ["plain", "same-batch", "static-margin"]
    assert loaded_recipe.seeds == [42, 43, 44]


def test_yaml_values_and_overrides_get_their_fields_type(recipe):
    loaded_recipe = read_recipe(recipe, ["--max_steps", "7", "--bf16", "false", "--freeze_towers", "image"])
    assert loaded_recipe.trainer_arguments["learning_rate"] == 1e-3  # YAML reads 1e-3 as a text
    assert loaded_recipe.trainer_arguments["max_steps"] == 7
    assert loaded_recipe.trainer_arguments["bf16"] is False
    assert loaded_recipe.trainer_arguments["freeze_towers"] == ["image"]
    assert loaded_recipe.trainer_arguments["column_names"] == {"caption": "text"}


def test_an_override_wins_over_the_file(recipe):
    assert read_recipe(recipe, ["--batch_size=16", "--learning_rate", "0.5"]).experiment.batch_size == 16


@pytest.mark.parametrize("joined", [True, False])
def test_options_take_their_value_in_either_spelling(recipe, joined):
    pairs = [("--config", recipe), ("--objective", "hfcomp.trainers.info_nce:InfoNCETrainer")]
    words = [f"{name}={value}" for name, value in pairs] if joined else [word for pair in pairs for word in pair]
    loaded_recipe = read_recipe("slipform", [*words, "--batch_size=16"])
    assert loaded_recipe.experiment.method == "Mine" and loaded_recipe.experiment.batch_size == 16
    assert loaded_recipe.trainer_class is InfoNCETrainer
    assert (
        loaded_recipe.given["objective"]
        == loaded_recipe.experiment.objective
        == "hfcomp.trainers.info_nce:InfoNCETrainer"
    )


@pytest.mark.parametrize("name", ["slipform/real", "slipform/vit_b32_coco"])
def test_config_names_a_recipe_that_ships_in_either_spelling(name, monkeypatch):
    monkeypatch.setenv("HFCOMP_REAL_DATA", "/somewhere")
    assert read_recipe("slipform", [f"--config={name}"]).given == read_recipe(name).given


def test_column_names_on_the_command_line_are_json(recipe):
    loaded_recipe = read_recipe(recipe, ["--column_names", '{"caption": "text", "image": "photo"}'])
    assert loaded_recipe.trainer_arguments["column_names"] == {"caption": "text", "image": "photo"}
    assert loaded_recipe.given["column_names"] == loaded_recipe.trainer_arguments["column_names"]


def test_column_names_on_the_command_line_are_pairs_too(recipe):
    loaded_recipe = read_recipe(recipe, ["--column_names", "caption=text, image=photo"])
    assert loaded_recipe.trainer_arguments["column_names"] == {"caption": "text", "image": "photo"}


@pytest.mark.parametrize("value", ["caption=", '["caption"]', '{"caption": 1}', '"caption"'])
def test_column_names_that_are_no_pairs_are_refused(recipe, value):
    with pytest.raises(ValueError, match="^command line: --column_names: found .*HFCOMP=YOURS"):
        read_recipe(recipe, ["--column_names", value])


def test_controls_none_empties_the_controls():
    loaded_recipe = read_recipe("slipform", ["--controls", "none"])
    assert loaded_recipe.experiment.controls == loaded_recipe.given["controls"] == []


@pytest.mark.parametrize(
    ("word", "expected"), [("[]", []), ("[plain]", ["plain"]), ("[plain, 'same-batch']", ["plain", "same-batch"])]
)
def test_a_list_may_be_written_as_help_shows_it(recipe, word, expected):
    assert read_recipe(recipe, ["--controls", word]).experiment.controls == expected


def test_output_is_output_dir(recipe):
    assert str(read_recipe(recipe, ["--output", "runs/mine"]).folder) == "runs/mine"


@pytest.mark.parametrize(("line", "expected"), [("none", []), ("null", []), ("plain", ["plain"])])
def test_controls_may_be_one_word_in_the_file(recipe, line, expected):
    Path(recipe).write_text(Path(recipe).read_text().replace("controls: []", f"controls: {line}"))
    assert read_recipe(recipe).experiment.controls == expected


def test_benchmarks_without_names_are_refused(recipe):
    with pytest.raises(ValueError, match="evaluation: benchmarks .*evaluation_benchmarks"):
        read_recipe(recipe, ["--evaluation", "benchmarks"])


OWN_OBJECTIVE = """from hfcomp.trainers.info_nce import InfoNCETrainer


class MyTrainer(InfoNCETrainer):
    pass
"""


@pytest.mark.parametrize("start", ["recipes/slipform.py", "hfcomp"])
def test_an_objective_beside_the_user_is_found(tmp_path, start):
    """As a script and as the console script: neither has the working directory on its path."""
    (tmp_path / "objective_of_mine.py").write_text(OWN_OBJECTIVE)
    root = Path(hfcomp.__file__).parents[1]
    script = tmp_path / "bin" / "hfcomp"
    script.parent.mkdir()
    script.write_text("from hfcomp.cli import main\n\nmain()\n")
    words = [str(script), "train", "slipform"] if start == "hfcomp" else [str(root / start)]
    # the value that is refused comes after the objective
    words += ["--objective", "objective_of_mine:MyTrainer", "--controls", "nothing"]
    done = processes.run(words, cwd=tmp_path)
    assert "error: command line: --controls: entry 1: found 'nothing'" in done.stderr, done.stderr[-2000:]


def test_the_working_directory_is_searched_only_for_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    recipes.trainer_class("hfcomp.trainers.info_nce:InfoNCETrainer")
    with pytest.raises(ValueError, match="'nowhere_at_all'"):
        recipes.trainer_class("nowhere_at_all:MyTrainer")
    assert sys.path == path


def test_another_base_of_the_sandbox_is_trained_with_the_sandboxs_values(tmp_path):
    (tmp_path / "base.json").write_text("{}")
    loaded_recipe = read_recipe("slipform", ["--model", str(tmp_path)])
    assert loaded_recipe.experiment.model == str(tmp_path) and loaded_recipe.experiment.dataset == "sandbox"
    assert loaded_recipe.experiment.primary == "sandbox: macro of 5 subsets group"


@pytest.mark.parametrize(
    ("method", "other"),
    [
        ("slipform", "slipform/vit_b32_coco"),
        ("negclip", "negclip/vit_b32_coco"),
        ("tripletclip", "tripletclip/vit_b32_p"),
    ],
)
def test_a_model_of_the_users_own_is_not_trained_with_the_sandboxs_values(method, other):
    with pytest.raises(ValueError, match=rf"learning_rate [\d.e-]+\).*--config {other}"):
        read_recipe(method, ["--model", "openai/clip-vit-base-patch32", "--dataset", "my-org/my-pairs"])


def test_config_replaces_the_recipes_own_file(recipe):
    assert read_recipe("slipform", ["--config", recipe]).experiment.method == "Mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learning_rat", "1"], "command line: unknown field 'learning_rat'. Did you mean 'learning_rate'?"),
        (["--learn", "1"], "unknown field 'learn'"),
        (["--max_steps", "many"], "command line: --max_steps: found 'many', expected a whole number"),
        (["7"], "'7' does not belong to a field"),
        (["--config"], "--config: expected one argument"),
        (["--margin", "adaptiv"], None),
        (["--per_device_train_batch_size", "4"], "Set batch_size instead"),
        (["--hub_token", "hf_secret"], "hub_token would be written into the run's files"),
        (["--fresh_model", "vit_b64"], "expected one of sandbox, sandbox-siglip, vit_b32"),
        (["--keyword_matching", "loose"], "--keyword_matching: found 'loose', expected one of paper, extended"),
        (
            ["--controls", "plane"],
            "--controls: entry 1: found 'plane', expected one of plain, same-batch, static-margin, shuffled",
        ),
        (["--edit_noise", "1.5"], "--edit_noise: found '1.5', expected at least 0 and at most 1"),
        (["--negative_kinds", "swap_all"], "the sandbox has no kind 'swap_all'. Did you mean"),
        (["--caption_noise", "0.1", "--dataset", "mine"], "caption_noise shapes sandbox rows, not those of mine"),
        (["--resume"], "command line: unknown field 'resume'"),
        (["--objective", "hfcomp.trainers.cement:CementTrainr"], "expected module:class"),
        (["--objective", "json:JSONDecoder"], "not a subclass of CompositionalTrainer"),
        (["--dataset", "$HFCOMP_NOT_SET/x"], "HFCOMP_NOT_SET is not set"),
    ],
)
def test_a_wrong_argument_is_refused_with_the_way_out(recipe, arguments, message):
    if message is None:
        loaded_recipe = read_recipe(recipe, arguments)
        with pytest.raises(ValueError, match="margin: found 'adaptiv'.* adaptive, static, inverse, none"):
            loaded_recipe.trainer_class.config_class(output_dir="x", margin=loaded_recipe.trainer_arguments["margin"])
        return
    with pytest.raises(ValueError) as caught:
        read_recipe(recipe, arguments)
    assert message in str(caught.value)


SECRETS = (
    "HF_TOKEN",
    "HF_TOKEN_2",
    "TOKENS",
    "my_api_key",
    "OPENAI_API_KEY",
    "WANDB_APIKEY",
    "apiKey",
    "AWS_SECRET_ACCESS_KEY",
    "DbPassword",
    "PGPASSWORD",
    "GOOGLE_CREDENTIALS",
)


@pytest.mark.parametrize("field", PATH_FIELDS)
def test_a_variable_that_may_hold_a_secret_is_not_written_into_a_path(recipe, monkeypatch, field):
    monkeypatch.setenv("HF_TOKEN", "do-not-show")
    more = ["--dataset", "mine"] if field != "dataset" else []
    more += ["--keyword_negatives", "color"] if field == "keyword_table" else []
    with pytest.raises(ValueError, match=f"mine.yaml: {field}=.*HF_TOKEN .*secret") as caught:
        read_recipe(recipe, [*more, f"--{field}", "a/${HF_TOKEN}/b"])
    assert "do-not-show" not in str(caught.value)


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("option", ["evaluation_data", "--data"])
def test_secrets_are_known_by_the_names_of_their_variables(monkeypatch, name, option):
    monkeypatch.setenv(name, "do-not-show")
    with pytest.raises(ValueError, match=f"^{option}=.*{name} .*secret"):
        expand_variables(f"val2017=${name}", option)


@pytest.mark.parametrize("name", ["CLIP_TOKENIZER", "KEYWORDS", "MONKEYS"])
def test_names_that_only_look_like_a_secrets_are_variables(monkeypatch, tmp_path, name):
    monkeypatch.setenv(name, str(tmp_path))
    assert expand_variables(f"val2017=${name}", "--data") == f"val2017={tmp_path}"


def test_variables_stand_for_themselves_outside_of_paths(recipe, monkeypatch):
    monkeypatch.setenv("HFCOMP_SOMETHING", "do-not-show")
    loaded_recipe = read_recipe(recipe, ["--run_name", "$HFCOMP_SOMETHING", "--output_dir", "runs/$HFCOMP_SOMETHING"])
    assert (
        loaded_recipe.given["run_name"] == "$HFCOMP_SOMETHING"
        and loaded_recipe.given["output_dir"] == "runs/$HFCOMP_SOMETHING"
    )


def test_a_recipe_and_its_trainer_have_the_same_limits(tmp_path):
    limits, hints = field_limits(CEClipConfig), field_hints(CEClipConfig)
    assert {"seed", "random_crop", "rank_weight", "num_negatives"} <= limits.keys()  # its own num_negatives too
    for name, limit in limits.items():
        outside = limit.gt if limit.ge is None else limit.ge - 1
        with pytest.raises(ValueError, match=rf"^mine.yaml: {name}: found {outside}, .*(at least|above) "):
            convert_fields({name: outside}, hints, "mine.yaml")
        if name in own_limits(CEClipConfig):
            with pytest.raises(ValueError, match=f"{name}: found {outside}"):
                CEClipConfig(output_dir=str(tmp_path), use_cpu=True, **{name: outside})
    # Fields of `TrainingArguments` take in Python what they take in transformers.
    assert CEClipConfig(output_dir=str(tmp_path), use_cpu=True, max_steps=0, max_grad_norm=-1.0).max_steps == 0
    assert convert_fields({"max_steps": -1, "mini_batch_size": None}, hints, "") == {
        "max_steps": -1,
        "mini_batch_size": None,
    }


def test_an_unknown_key_in_the_file_names_the_file_and_the_nearest_key(recipe):
    Path(recipe).write_text(Path(recipe).read_text() + "max_step: 3\n")
    with pytest.raises(ValueError, match=r"mine.yaml: .*'max_step'.*'max_steps'"):
        read_recipe(recipe)


def test_a_batch_that_does_not_divide_by_the_processes_is_refused(recipe, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="batch_size=8 .* 3 processes"):
        read_recipe(recipe)


def test_an_unknown_recipe_names_those_that_exist():
    with pytest.raises(FileNotFoundError, match=r"slipfrom: .*'slipform'"):
        find_recipe("slipfrom")


def test_recipes_are_found_inside_an_installed_package(tmp_path, monkeypatch):
    """The wheel carries them as hfcomp/recipes; a clone has them beside the package."""
    package = tmp_path / "site-packages" / "hfcomp"
    shutil.copytree(recipes_folder(), package / "recipes")
    monkeypatch.setattr(hfcomp, "__file__", str(package / "__init__.py"))
    assert find_recipe("slipform") == package / "recipes" / "slipform" / "sandbox.yaml"
    assert find_recipe("slipform/real") == package / "recipes" / "slipform" / "real.yaml"


def test_recipes_are_found_beside_the_package_of_a_clone():
    assert find_recipe("slipform").parent.parent.parent == Path(hfcomp.__file__).parent.parent


def test_a_sweep_is_no_recipe():
    names = {path.stem for path in recipe_files(recipes_folder())}
    assert "sandbox" in names and "margins" not in names
    with pytest.raises(ValueError, match=r"margins.yaml: 'objective' .*--report"):
        read_recipe("slipform", ["--config", "slipform/margins"])


def test_changes_of_a_sweep_are_fields_like_any_other(recipe):
    changes = {"sweep.yaml: seeds": {"seed": 3}, "sweep.yaml: variants": {"margin": "none"}}
    loaded_recipe = RecipeFile.read(recipe, ["--max_steps", "7"]).recipe(changes)
    assert (
        loaded_recipe.trainer_arguments["seed"],
        loaded_recipe.given["margin"],
        loaded_recipe.given["max_steps"],
    ) == (3, "none", 7)
    with pytest.raises(ValueError, match=r"sweep.yaml: .*'margn'.*'margin'"):
        RecipeFile.read(recipe).recipe({"sweep.yaml": {"margn": "none"}})
    with pytest.raises(ValueError, match=r"command line: --seed .*sweep.yaml"):
        RecipeFile.read(recipe, ["--seed", "1"]).recipe({"sweep.yaml": {"seed": 3}})


@pytest.mark.parametrize("path", recipe_files(recipes_folder()), ids=lambda path: path.stem)
def test_every_recipe_that_ships_is_valid(path, monkeypatch):
    for name in ("HFCOMP_REAL_DATA", "SUGARCREPE", "COCO"):
        monkeypatch.setenv(name, "/somewhere")
    loaded_recipe = read_recipe(str(path))
    arguments = {key: value for key, value in loaded_recipe.trainer_arguments.items() if key not in ("bf16", "fp16")}
    loaded_recipe.trainer_class.config_class(**arguments)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--keyword_table", "x.yaml"], "keyword_table .*keyword_negatives"),
        (["--keyword_captions_only", "true"], "keyword_captions_only .*keyword_negatives"),
        (["--captions", "second"], "--captions: found 'second',.* longest, first, all"),
        (["--captions", "all"], "captions .*sandbox"),
        (["--keyword_negatives", "color", "--edit_noise", "0.1"], "edit_noise "),
        (["--keyword_negatives", "color", "--negative_kinds", "swap_att"], "negative_kinds "),
        (["--keyword_negatives", "color", "--keyword_table", "$NOWHERE/x"], "keyword_table=.* is not set"),
    ],
)
def test_keyword_fields_that_do_not_fit_are_refused(recipe, words, message):
    with pytest.raises(ValueError, match=message):
        read_recipe(recipe, words)


def test_a_keyword_table_is_found_beside_its_recipe(recipe, monkeypatch, tmp_path):
    table = Path(recipe).parent / "words.yaml"
    table.write_text("color: {any_other: [red, blue]}")
    Path(recipe).write_text(Path(recipe).read_text() + "keyword_table: words.yaml\nkeyword_negatives: [color]\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert read_recipe(recipe).experiment.keyword_table == str(table.resolve())
    assert read_recipe(recipe, ["--keyword_table", "mine.yaml"]).experiment.keyword_table == "mine.yaml"


@pytest.mark.parametrize(
    ("words", "expected"), [([], 1), (["--num_negatives", "3"], 3), (["--num_negatives", "0"], 1)]
)
def test_rows_have_as_many_negatives_as_the_trainer_reads(recipe, words, expected):
    from hfcomp.experiments.data import num_negatives

    changed = ["--objective", "hfcomp.trainers.info_nce:InfoNCETrainer", *words]
    assert num_negatives(read_recipe(recipe, changed)) == expected
    assert num_negatives(read_recipe(recipe)) == 1
