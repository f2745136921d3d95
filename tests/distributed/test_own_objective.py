"""A user's objective with a learned parameter: short, reached by name, saved beside a plain model, resumed exactly."""

from __future__ import annotations

import inspect

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, Trainer

from hfcomp.experiments.recipes import trainer_class
from hfcomp.modeling import OBJECTIVE_STATE_FILE
from tests.distributed.cases import trainer_of
from tests.trainers import own_objective
from tests.trainers.own_objective import OwnTrainer

NAME = "objective_state.offset.value"


def trainer_with(clip_with_dropout, folder, steps):
    settings = {"num_negatives": 2, "save_strategy": "steps", "save_steps": 3}
    # a schedule that does not depend on the length of the run
    return trainer_of(OwnTrainer, clip_with_dropout, folder, max_steps=steps, logging_steps=1, **settings)


def state_of(trainer):
    """Weights and the optimizer's moments."""
    weights = {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
    optimizer = trainer.optimizer.state_dict()["state"]
    return weights | {f"{key}.{name}": value for key, entry in optimizer.items() for name, value in entry.items()}


@pytest.fixture(scope="module")
def whole_run(clip_with_dropout, tmp_path_factory):
    trainer = trainer_with(clip_with_dropout, tmp_path_factory.mktemp("whole"), 6)
    trainer.train()
    return trainer


@pytest.fixture(scope="module")
def half_run(clip_with_dropout, tmp_path_factory):
    """A run of 3 steps: what it held when it ended, and its checkpoint."""
    folder = tmp_path_factory.mktemp("half")
    trainer = trainer_with(clip_with_dropout, folder, 3)
    trainer.train()
    return state_of(trainer), folder / "out/checkpoint-3"


def test_it_takes_less_than_40_lines():
    assert len(inspect.getsource(own_objective).splitlines()) < 40
    written = {name for name in vars(OwnTrainer) if not name.startswith("_")}
    assert written == {"required_features", "objective_state", "compute_loss"}


def test_it_is_reached_by_name():
    assert trainer_class("tests.trainers.own_objective:OwnTrainer") is OwnTrainer
    assert issubclass(OwnTrainer, Trainer)


def test_the_learned_parameter_is_saved_beside_a_plain_model(half_run):
    state, checkpoint = half_run
    assert load_file(checkpoint / OBJECTIVE_STATE_FILE).keys() == {NAME}
    assert torch.equal(load_file(checkpoint / OBJECTIVE_STATE_FILE)[NAME], state[NAME])
    assert state[NAME] != 0.5
    model, report = AutoModel.from_pretrained(checkpoint, output_loading_info=True)
    assert not any(report.values()), report
    assert all(torch.equal(value, state[f"backbone.{name}"]) for name, value in model.named_parameters())


def test_a_resumed_run_equals_an_uninterrupted_one(clip_with_dropout, whole_run, half_run, tmp_path):
    before, checkpoint = half_run
    trainer = trainer_with(clip_with_dropout, tmp_path, 6)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    expected, actual = state_of(whole_run), state_of(trainer)
    assert expected.keys() == actual.keys()
    assert {name for name in expected if not torch.equal(expected[name], actual[name])} == set()
    assert not torch.equal(actual[NAME], before[NAME])
    steps = [[line for line in run.state.log_history if line.get("step") == 6][0] for run in (whole_run, trainer)]
    assert steps[0]["loss"] == steps[1]["loss"]
    # logged as the loss saw it, before the last step
    assert steps[0]["offset"] == steps[1]["offset"] != actual[NAME].item()


def test_dropout_makes_resuming_depend_on_the_random_state(whole_run):
    """Else the test above would not see a random state that is not restored."""
    assert whole_run.model.backbone.config.text_config.attention_dropout > 0
