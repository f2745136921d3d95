"""The average of weights: against a plain loop, resumed, with adapters and learned state, what is refused. 20 s."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, TrainerCallback

from hfcomp import WeightAverage
from hfcomp.trainers.ahnpl import AHNPLTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests.trainers.runs import arguments, assert_same_weights, build, weights

DECAY = 0.7
STEPS = 6


class Record(TrainerCallback):
    """The trained weights before the first step and after each one."""

    def __init__(self):
        self.steps = []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self._add(model)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self._add(model)

    def _add(self, model):
        trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
        self.steps.append({name: weight.detach().double().clone() for name, weight in trained})


def plain_average(steps, decay, start):
    average = dict(steps[start])
    for now in steps[start + 1 :]:
        average = {name: decay * average[name] + (1 - decay) * now[name] for name in average}
    return average


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize(
    ("trainer_class", "settings"),
    [
        (InfoNCETrainer, {}),
        (AHNPLTrainer, {"num_negatives": 2, "gradient_accumulation_steps": 2}),
        (InfoNCETrainer, {"peft": "dora", "lora_rank": 2}),
    ],
    ids=["plain", "learned", "dora"],
)
def test_the_final_model_is_the_average_of_its_weights(trainer_class, settings, start, clip, pairs, tmp_path):
    how = {"weight_average_decay": DECAY, "weight_average_start": start, "max_steps": STEPS, **settings}
    trainer = build(trainer_class, clip, pairs, tmp_path, **how)
    record = Record()
    trainer.add_callback(record)
    trainer.train()
    expected = plain_average(record.steps, DECAY, start)
    averages = {name: weight for name, weight in weights(trainer).items() if name in expected}
    assert "backbone.logit_scale" in averages or "backbone.base_model.model.logit_scale" in averages
    for name, value in expected.items():
        # each step rounds a product and a sum of weights no larger than the largest
        largest = max(step[name].abs().max() for step in record.steps)
        assert (averages[name] - value).abs().max() <= STEPS * 2 * torch.finfo(torch.float32).eps * largest, name
        assert not torch.equal(averages[name], record.steps[-1][name].float())


def test_the_average_is_saved_as_a_plain_model_and_checkpoints_are_of_the_weights(clip, pairs, tmp_path):
    how = {"max_steps": 2, "save_strategy": "steps", "save_steps": 2}
    without = build(InfoNCETrainer, clip, pairs, tmp_path / "without", **how)
    without.train()
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path / "with", weight_average_decay=DECAY, **how)
    trainer.train()
    trainer.save_model(str(tmp_path / "final"))
    last = AutoModel.from_pretrained(tmp_path / "with" / "run" / "checkpoint-2").state_dict()
    plain = without.model.backbone.state_dict()
    assert all(torch.equal(last[name], plain[name]) for name in plain)
    final = AutoModel.from_pretrained(tmp_path / "final").state_dict()
    average = load_file(tmp_path / "with" / "run" / "checkpoint-2" / "weight_average.safetensors")
    assert average and all(torch.equal(final[name.removeprefix("backbone.")], average[name]) for name in average)
    assert not torch.equal(final["logit_scale"], last["logit_scale"])


@pytest.mark.parametrize("checkpoint", [1, 2, 4])
@pytest.mark.parametrize("settings", [{}, {"peft": "lora", "lora_dropout": 0.1}], ids=["plain", "lora"])
def test_a_resumed_run_has_the_same_average(settings, checkpoint, clip, pairs, tmp_path):
    """From before the average begins, the step that it begins at, and a later one."""

    def trainer():
        run = {"max_steps": STEPS, "save_strategy": "steps", "save_steps": 1, **settings}
        average = {"weight_average_decay": DECAY, "weight_average_start": 2}
        return build(InfoNCETrainer, clip, pairs, tmp_path, **run, **average)

    whole = trainer()
    whole.train()
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{checkpoint}"))
    assert_same_weights(weights(resumed), weights(whole))


def test_the_callback_does_what_the_config_does(clip, pairs, tmp_path):
    runs = []
    for settings, callbacks in (({"weight_average_decay": DECAY}, []), ({}, [WeightAverage(DECAY)])):
        trainer = build(InfoNCETrainer, clip, pairs, tmp_path, callbacks=callbacks, **settings)
        trainer.train()
        runs.append(weights(trainer))
    assert_same_weights(*runs)


def test_a_second_training_begins_a_new_average(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, weight_average_decay=0.0)
    record = Record()
    trainer.add_callback(record)
    for _ in range(2):
        trainer.train()
    assert all(torch.equal(weights(trainer)[name], value.float()) for name, value in record.steps[-1].items())


def test_what_the_first_weights_count_is_printed(clip, pairs, tmp_path, capsys):
    build(InfoNCETrainer, clip, pairs, tmp_path, weight_average_decay=0.9).train()
    line = "average of its weights over 2 steps (decay 0.9); the weights of step 0 contribute 81.0%"
    assert line in capsys.readouterr().out


# What is refused


def test_a_checkpoint_without_an_average_is_refused_with_how_to_go_on(clip, pairs, tmp_path):
    how = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    build(InfoNCETrainer, clip, pairs, tmp_path, **how).train()
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, weight_average_decay=DECAY, **how)
    with pytest.raises(ValueError, match="checkpoint-1: .*weight_average.safetensors.*weight_average_decay"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))


def test_an_average_that_training_never_reaches_is_refused(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, weight_average_decay=DECAY, weight_average_start=2)
    with pytest.raises(ValueError, match="weight_average_start=2: .*step 2"):
        trainer.train()


def test_two_final_models_are_refused(clip, pairs, tmp_path):
    how = {"eval_strategy": "steps", "save_strategy": "steps", "save_steps": 1, "eval_steps": 1}
    how |= {"load_best_model_at_end": True, "weight_average_decay": DECAY}
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, eval_dataset=pairs, **how)
    with pytest.raises(ValueError, match="load_best_model_at_end .*weight_average_decay"):
        trainer.train()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight_average_decay": 1.0}, "weight_average_decay: found 1.0,.* 0 .* 1"),
        ({"weight_average_decay": 0.9, "weight_average_start": -1}, "weight_average_start: found -1,.*step"),
        ({"weight_average_start": 5}, "weight_average_start=5: "),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arguments(InfoNCETrainer, tmp_path, **settings)
