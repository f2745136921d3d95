"""Adapters of PEFT through the trainers."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModel, AutoProcessor

from hfcomp.modeling import OBJECTIVE_STATE_FILE
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tolerances
from tests.trainers.own_objective import OwnTrainer
from tests.trainers.runs import CHECKPOINTING, assert_same_weights, build, loss_and_gradients, weights

TARGET = r".*encoder\.layers\.\d+\.self_attn\.(q|k|v|out)_proj"


def add_adapter(folder, *, scale=False, dropout=0.0):
    torch.manual_seed(0)
    model = get_peft_model(
        AutoModel.from_pretrained(folder), LoraConfig(r=2, target_modules=TARGET, lora_dropout=dropout)
    )
    model.base_model.model.logit_scale.requires_grad_(scale)
    return model


def moved_weights(before, after) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("model", ["clip", "siglip"])
@pytest.mark.parametrize("settings", [{}, {CHECKPOINTING: True}, {"mini_batch_size": 3}])
def test_an_adapter_trains_and_loads_on_its_base(model, settings, request, pairs, tmp_path):
    folder = request.getfixturevalue(model)
    trainer = build(InfoNCETrainer, add_adapter(folder), pairs, tmp_path, **settings)
    before = weights(trainer)
    trainer.train()
    changed = moved_weights(before, weights(trainer))
    assert changed
    assert all("lora_" in name for name in changed)
    assert any("vision_model" in name for name in changed)
    assert any("text_model" in name for name in changed)
    trainer.save_model(str(tmp_path / "final"))
    names = {path.name for path in (tmp_path / "final").iterdir()}
    assert "adapter_model.safetensors" in names
    assert "model.safetensors" not in names
    assert OBJECTIVE_STATE_FILE not in names
    plain = PeftModel.from_pretrained(AutoModel.from_pretrained(folder), tmp_path / "final").eval()
    ids = torch.tensor([[3, 4, 5, 6, 1]])
    actual = plain.get_text_features(input_ids=ids).pooler_output
    expected = trainer.model.backbone.eval().get_text_features(input_ids=ids).pooler_output
    torch.testing.assert_close(actual, expected, atol=tolerances.embedding(), rtol=0)
    assert AutoProcessor.from_pretrained(tmp_path / "final") is not None


@pytest.mark.parametrize(
    ("trainer_class", "scale", "settings"),
    [
        (InfoNCETrainer, False, {}),
        (OwnTrainer, True, {"num_negatives": 2, CHECKPOINTING: True}),
        (CementTrainer, True, {"mini_batch_size": 3}),
    ],
)
def test_a_resumed_adapter_equals_one_that_was_never_stopped(trainer_class, scale, settings, clip, pairs, tmp_path):
    def trainer():
        run = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1, **settings}
        return build(trainer_class, add_adapter(clip, scale=scale, dropout=0.1), pairs, tmp_path, **run)

    whole = trainer()
    start = weights(whole)
    whole.train()
    name = "backbone.base_model.model.logit_scale"
    assert (name in moved_weights(start, weights(whole))) == scale
    checkpoint = tmp_path / "run" / "checkpoint-3"
    state = load_file(checkpoint / OBJECTIVE_STATE_FILE) if (checkpoint / OBJECTIVE_STATE_FILE).exists() else {}
    own = {"objective_state.offset.value"} if trainer_class is OwnTrainer else set()
    assert set(state) == own | ({name} if scale else set())
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert_same_weights(weights(resumed), weights(whole))


def test_the_best_adapter_is_loaded_at_the_end(clip, pairs, tmp_path):
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    settings |= {"load_best_model_at_end": True, "metric_for_best_model": "chosen", "greater_is_better": True}
    scores = iter([0.9, 0.1])
    trainer = build(
        InfoNCETrainer,
        add_adapter(clip, scale=True),
        pairs,
        tmp_path,
        eval_dataset=pairs,
        compute_metrics=lambda _: {"chosen": next(scores)},
        **settings,
    )
    trainer.train()
    best = tmp_path / "run" / "checkpoint-1"
    assert trainer.state.best_model_checkpoint == str(best)
    assert trainer.model.plain.logit_scale == load_file(best / OBJECTIVE_STATE_FILE).popitem()[1]
    other = PeftModel.from_pretrained(AutoModel.from_pretrained(clip), best)
    own = dict(trainer.model.backbone.named_parameters())
    assert all(torch.equal(own[name], value) for name, value in other.named_parameters() if "lora_" in name)


def test_a_saved_adapter_is_trained_on_from_its_folder(clip, pairs, tmp_path):
    first = build(InfoNCETrainer, add_adapter(clip), pairs, tmp_path, max_steps=1)
    first.train()
    first.save_model(str(tmp_path / "final"))
    second = build(InfoNCETrainer, tmp_path / "final", pairs, tmp_path, max_steps=1)
    assert_same_weights(weights(second), weights(first))
    second.train()
    assert all("lora_" in name for name in moved_weights(weights(first), weights(second)))


def test_a_frozen_tower_stops_its_adapter_too(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, add_adapter(clip), pairs, tmp_path, freeze_towers=["image"])
    _, gradients = loss_and_gradients(trainer, range(8))
    assert gradients
    assert all("text_model" in name for name in gradients)


def test_a_scale_that_was_trained_with_an_adapter_goes_on_in_a_second_session(clip, pairs, tmp_path):
    """Loaded but frozen, it would be missing from the next save, and its adapter left with the base's scale."""
    first = build(InfoNCETrainer, add_adapter(clip, scale=True), pairs, tmp_path / "first")
    first.train()
    first.save_model(str(tmp_path / "one"))
    trained = first.model.plain.logit_scale.item()

    second = build(InfoNCETrainer, tmp_path / "one", pairs, tmp_path / "second")
    assert second.model.plain.logit_scale.item() == trained
    second.train()
    assert second.model.plain.logit_scale.item() != trained
    second.save_model(str(tmp_path / "two"))
    third = build(InfoNCETrainer, tmp_path / "two", pairs, tmp_path / "third")
    assert third.model.plain.logit_scale.item() == second.model.plain.logit_scale.item()
