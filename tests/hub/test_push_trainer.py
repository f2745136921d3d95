"""`push_to_hub` through the Trainer's own API, against the stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers.trainer
from safetensors.torch import load_file
from transformers import AutoModel

from hfcomp.modeling import OBJECTIVE_STATE_FILE
from hfcomp.trainers._support import saving
from tests.hub.repositories import WRITE_TOKEN
from tests.trainers.own_objective import OwnTrainer
from tests.trainers.runs import build


@pytest.fixture
def api(connect, monkeypatch):
    """The client that a Trainer uses."""
    connection = connect(WRITE_TOKEN)
    monkeypatch.setattr(saving, "upload_folder", connection.upload_folder)
    if hasattr(transformers.trainer, "hf_api"):
        monkeypatch.setattr(transformers.trainer, "hf_api", lambda: connection)
    else:  # before transformers 5.10
        for name in ("create_repo", "upload_folder"):
            monkeypatch.setattr(transformers.trainer, name, getattr(connection, name))
    return connection


def test_a_trainer_pushes_its_model_with_processor_and_state_and_no_pickle(hub, api, clip, pairs, tmp_path):
    where = {"push_to_hub": True, "hub_model_id": "me/mine", "num_negatives": 2, "hub_private_repo": True}
    trainer = build(OwnTrainer, clip, pairs, tmp_path, save_strategy="steps", save_steps=1, **where)
    assert hub.repository(None, "me/mine").private
    trainer.train()
    trainer.push_to_hub()
    pushed = hub.repository(None, "me/mine")
    messages = [commit.message for commit in pushed.commits]
    assert messages[1] == "Training in progress, step 1" and messages[-1] == "End of training"
    for commit in pushed.commits:
        assert not [name for name in commit.files if name.endswith((".bin", ".pt", ".pth"))]
    assert {"config.json", "tokenizer.json", "processor_config.json", "README.md"} <= pushed.files.keys()
    folder = Path(api.snapshot_download("me/mine", local_dir=tmp_path / "pulled"))
    _, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    fresh = build(OwnTrainer, clip, pairs, tmp_path / "fresh", num_negatives=2)
    before = load_file(folder / OBJECTIVE_STATE_FILE)
    fresh.model.load_pretrained(folder)
    fresh.model.save_pretrained(tmp_path / "again")
    after = load_file(tmp_path / "again" / OBJECTIVE_STATE_FILE)
    assert before.keys() == after.keys() and all((before[name] == after[name]).all() for name in before)


@pytest.mark.parametrize(
    ("strategy", "place"), [("checkpoint", "last-checkpoint"), ("all_checkpoints", "checkpoint-1")]
)
def test_checkpoints_are_pushed_where_they_are_asked_for(hub, api, clip, pairs, tmp_path, strategy, place):
    where = {
        "push_to_hub": True,
        "hub_model_id": "me/mine",
        "num_negatives": 2,
        "hub_strategy": strategy,
        "hub_always_push": True,
    }
    trainer = build(OwnTrainer, clip, pairs, tmp_path, save_strategy="steps", save_steps=1, **where)
    trainer.train()
    files = hub.repository(None, "me/mine").files
    assert {f"{place}/optimizer.pt", f"{place}/model.safetensors", "model.safetensors"} <= files.keys()
    assert not any(name.endswith("training_args.bin") for name in files)


def test_nothing_is_pushed_before_the_end_where_that_is_asked_for(hub, api, clip, pairs, tmp_path):
    where = {"push_to_hub": True, "hub_model_id": "me/mine", "num_negatives": 2, "hub_strategy": "end"}
    build(OwnTrainer, clip, pairs, tmp_path, save_strategy="steps", save_steps=1, **where).train()
    assert len(hub.repository(None, "me/mine").commits) == 1
