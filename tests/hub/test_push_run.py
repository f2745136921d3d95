"""`--push_to_hub` of a recipe, against the stand-in: checked before training, pushed once at the end."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest
from transformers import CLIPModel

from hfcomp.experiments import program
from hfcomp.experiments.pushing import RunPush
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.trainers.base import CompositionalTrainer
from tests import tiny
from tests.hub.repositories import READ_TOKEN, WRITE_TOKEN, WRONG_TOKEN, File

WORDS = "--batch_size 8 --max_steps 1 --save_strategy no --evaluation own --controls plain --disable_tqdm true"
SMALL = WORDS.split()
PUSH = ["--push_to_hub", "--hub_model_id", "me/mine", "--hub_private_repo"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    datasets.DatasetDict({"train": tiny.pairs(16), "test": tiny.pairs(4)}).save_to_disk(folder)
    return folder


@pytest.fixture
def run(rows, connect, monkeypatch, tmp_path):
    """Runs a small recipe with a token; returns its folder."""

    def run(*words: str, token: str | bool = WRITE_TOKEN) -> Path:
        monkeypatch.setattr("huggingface_hub.HfApi", lambda: connect(token))
        where = ["--dataset", str(rows), "--output_dir", str(tmp_path / "run")]
        where += [] if "--seeds" in words else ["--seed", "42"]
        return program.run(read_recipe("slipform", [*SMALL, *where, *words]))

    return run


def test_a_run_is_pushed_once_when_it_is_finished(hub, run, connect, tmp_path):
    folder = run(*PUSH)
    pushed = hub.repository(None, "me/mine")
    assert pushed.private and [commit.message for commit in pushed.commits] == ["initial commit", "hfcomp: method"]
    assert {"model.safetensors", "results.json", "config.yaml", "README.md"} <= pushed.files.keys()
    assert pushed.files["model.safetensors"].content == (folder / "method/model.safetensors").read_bytes()
    assert "me/mine" in pushed.files["README.md"].content.decode()
    CLIPModel.from_pretrained(connect(WRITE_TOKEN).snapshot_download("me/mine", local_dir=tmp_path / "pulled"))


def test_of_several_seeds_the_first_one_s_method_is_pushed(hub, run):
    folder = run(*PUSH, "--seeds", "5", "6", "7")
    files = hub.repository(None, "me/mine").files
    assert files["model.safetensors"].content == (folder / "method/model.safetensors").read_bytes()
    card = files["README.md"].content.decode()
    assert "seeds 5, 6, 7; this model was trained with 5" in card
    assert str(folder) not in files["results.json"].content.decode()


def test_a_push_that_failed_leaves_a_finished_run_which_the_same_command_pushes(hub, run, monkeypatch):
    hub.break_uploads(after=0)
    with pytest.raises(ValueError, match="/run .*finished, .*me/mine .*not pushed") as raised:
        run(*PUSH)
    assert "`hfcomp push " in str(raised.value) and "--repo me/mine --private`" in str(raised.value)
    hub.fix_uploads()
    monkeypatch.setattr(CompositionalTrainer, "training_step", lambda *_: pytest.fail("it is trained already"))
    folder = run(*PUSH)
    assert folder.name == "run" and (folder / "finished").is_file()
    assert len(hub.repository(None, "me/mine").commits) == 2


@pytest.mark.parametrize("token", [WRONG_TOKEN, READ_TOKEN, False])
def test_without_the_right_to_write_nothing_is_trained(hub, run, monkeypatch, tmp_path, token):
    monkeypatch.setattr(CompositionalTrainer, "__init__", lambda *_: pytest.fail("a trainer was made"))
    with pytest.raises(ValueError, match="^model me/mine .*not pushed: .*hf auth login") as raised:
        run(*PUSH, token=token)
    assert str(token) not in str(raised.value) and not (tmp_path / "run").exists()


def test_a_repository_of_something_else_costs_no_training(hub, run, tmp_path):
    hub.create("models", "me/mine", private=True).commit("by hand", {"config.json": File(b"{}")})
    with pytest.raises(ValueError, match="'by hand'.*--hub_revision BRANCH .*--hub_model_id"):
        run(*PUSH)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--push_to_hub"], "push_to_hub .*--hub_model_id, .*my-org/my-slipform"),
        (["--hub_model_id", "me/mine"], "hub_model_id .*--push_to_hub"),
        (["--push_to_hub", "--hub_model_id", "me/mi ne"], "me/mi ne .*not pushed: Repo id must"),
        (["--hub_strategy", "end"], "hub_strategy .*no effect"),
    ],
)
def test_fields_that_push_nothing_are_refused(words, said):
    with pytest.raises(ValueError, match=said):
        RunPush.of(read_recipe("slipform", words).push, "slipform")


def test_a_sweep_trains_several_models_and_pushes_none():
    with pytest.raises(ValueError, match="push_to_hub .*margins.yaml"):
        read_plan("slipform", ["--report", "margins", *PUSH])
