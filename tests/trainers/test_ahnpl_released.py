"""The trainer of AHNPL as released: thresholds in logits that start anew with every epoch. 5 seconds."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file
from transformers import CLIPModel, TrainerCallback

from hfcomp.data.columns import KIND_IDS
from hfcomp.losses import info_nce_loss
from hfcomp.losses.ahnpl_released import ahnpl_released_loss, logit_threshold
from hfcomp.modeling import OBJECTIVE_STATE_FILE
from hfcomp.trainers.hooks import INFO_NCE_FORMS
from hfcomp.trainers.released.ahnpl import AHNPLReleasedConfig, AHNPLReleasedTrainer
from tests import tolerances
from tests.trainers.runs import arguments, assert_same_weights, batch_of, build, history, loss_and_gradients, weights

KINDS = [KIND_IDS[name] for name in ("swap_att", "replace_obj")]
NAMED = ("threshold_swap_att", "threshold_replace_obj")


def thresholds(trainer) -> torch.Tensor:
    return trainer.model.objective_state["threshold"]().clone()


def trainer_of(model, dataset, folder, **settings):
    return build(AHNPLReleasedTrainer, model, dataset, folder, num_negatives=2, **settings)


def test_the_thresholds_of_a_batch_are_used_in_the_next(clip, pairs, tmp_path):
    trainer = trainer_of(clip, pairs, tmp_path, threshold_maximum=math.inf)
    f = trainer.gather_features(trainer.model.eval(), batch_of(trainer, range(8)))
    given = (f.image_embeds, f.text_embeds, f.negative_text_embeds)
    settings = {"logit_scale": f.logit_scale, "negative_kind": f.negative_kind, "negative_mask": f.negative_text_mask}
    expected = logit_threshold(*given, previous=torch.zeros(len(KIND_IDS)), **settings).clamp(min=0)
    losses = []
    for used in (torch.zeros(len(KIND_IDS)), expected):
        torch.testing.assert_close(thresholds(trainer), used)
        losses.append(loss_and_gradients(trainer, range(8))[0])
        loss, _ = ahnpl_released_loss(*given, threshold=used, **settings)
        torch.testing.assert_close(losses[-1], loss.detach())
    torch.testing.assert_close(thresholds(trainer), expected)
    assert (expected[KINDS] > 0).any() and losses[0] < losses[1]
    assert expected.count_nonzero() == (expected[KINDS] > 0).sum()


def test_thresholds_are_bounded_and_start_anew_with_every_epoch(clip, pairs, tmp_path):
    settings = {"learning_rate": 3e-3, "lr_scheduler_type": "constant", "max_steps": 9}
    run = {"per_device_train_batch_size": 4, "threshold_maximum": 0.25, "margin_weight": 1.0, **settings}
    trainer = trainer_of(clip, pairs.select([0, 1, 2, 4, 5, 6, 7, 9, 10, 11, 12, 14]), tmp_path, **run)
    trainer.train()
    moved = []
    for name in NAMED:
        values = history(trainer, name)
        # logged as the loss saw them: three steps to an epoch, each first one sees none
        assert len(values) == 9 and values[::3] == [0, 0, 0]
        assert all(0 <= value <= 0.25 for value in values)
        moved.append([max(values[1:3]), max(values[4:6])])
    assert (torch.tensor(moved).amax(0) > 0).all()
    assert thresholds(trainer).max() == 0.25
    trainer.train()
    assert history(trainer, NAMED[0])[0] == 0


def test_evaluation_leaves_the_thresholds_as_they_are(clip, pairs, tmp_path):
    trainer = trainer_of(clip, pairs, tmp_path, eval_dataset=pairs)
    trainer.train()
    before = thresholds(trainer)
    first = trainer.evaluate()["eval_loss"]
    assert trainer.evaluate()["eval_loss"] == first
    assert torch.equal(thresholds(trainer), before) and before.any()


def test_the_log_names_the_terms_and_the_kinds_that_are_there(clip, pairs, tmp_path):
    trainer = trainer_of(clip, pairs, tmp_path)
    trainer.train()
    assert {name for line in trainer.state.log_history for name in line if name.startswith("threshold")} == {*NAMED}
    for name in ("textual_target", "visual_target", "logit_margin", "image_to_text", "text_to_image"):
        assert len(history(trainer, f"loss_{name}")) == 2
    for name in ("active_negative_margins", "hard_negative_accuracy"):
        assert len(history(trainer, name)) == 2


def test_batches_without_any_negative_keep_the_thresholds(clip, pairs, tmp_path):
    """Nothing of them is logged then, and the loss is InfoNCE."""
    trainer = trainer_of(clip, pairs.map(lambda row: {"negative_captions": ["", ""]}), tmp_path)
    trainer.model.objective_state["threshold"].update(torch.full((len(KIND_IDS),), 5.0))
    loss, gradients = loss_and_gradients(trainer, range(8))
    f = trainer.gather_features(trainer.model, batch_of(trainer, range(8)))
    torch.testing.assert_close(
        loss, info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale)[0].detach()
    )
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    assert torch.equal(thresholds(trainer), torch.full((len(KIND_IDS),), 5.0))
    trainer.train()
    assert not [name for line in trainer.state.log_history for name in line if name.startswith("threshold")]


class Lift(TrainerCallback):
    """Adds 1 after each step, so that no checkpoint holds thresholds of 0."""

    def __init__(self, trainer):
        self.threshold = trainer.model.objective_state["threshold"]

    def on_step_end(self, args, state, control, **kwargs):
        self.threshold.update(self.threshold() + 1)


@pytest.mark.parametrize(("accumulated", "stops"), [(1, (1, 2)), (2, (1,))])
def test_a_resumed_run_equals_one_that_was_never_stopped(accumulated, stops, clip_with_dropout, pairs, tmp_path):
    """Stopped in the midst of an epoch of two steps, whose thresholds stay, and at its end, where they start anew."""

    def trainer(**settings):
        run = {"max_steps": 4, "per_device_train_batch_size": 8 // accumulated, "threshold_maximum": math.inf}
        run |= {"gradient_accumulation_steps": accumulated, **settings}
        trainer = trainer_of(clip_with_dropout, pairs.select(range(16)), tmp_path, **run)
        trainer.add_callback(Lift(trainer))
        return trainer

    whole = trainer(save_strategy="steps", save_steps=1)
    whole.train()
    assert whole.state.num_train_epochs == 2
    for stopped in stops:
        resumed = trainer()
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{stopped}"))
        assert_same_weights(weights(resumed), weights(whole))
        assert torch.equal(thresholds(resumed), thresholds(whole))
        for name in ("loss", *NAMED):
            assert history(resumed, name)[stopped - 4 :] == history(whole, name)[stopped - 4 :], name


def test_the_thresholds_are_saved_beside_a_plain_model(clip, pairs, tmp_path):
    trainer = trainer_of(clip, pairs, tmp_path)
    trainer.train()
    trainer.save_model(str(tmp_path / "final"))
    state = load_file(tmp_path / "final" / OBJECTIVE_STATE_FILE)
    assert list(state) == ["objective_state.threshold.value"]
    assert torch.equal(state["objective_state.threshold.value"], thresholds(trainer))
    _, info = CLIPModel.from_pretrained(tmp_path / "final", output_loading_info=True)
    assert not any(info.values()), info


@pytest.mark.parametrize("changes", [INFO_NCE_FORMS[AHNPLReleasedTrainer].arguments, {"margin_weight": 0.0}])
def test_without_its_terms_it_is_info_nce_on_its_batch(changes, clip, pairs, tmp_path):
    trainer = trainer_of(clip, pairs, tmp_path, **changes)
    loss, _ = loss_and_gradients(trainer, range(8))
    f = trainer.gather_features(trainer.model, batch_of(trainer, range(8)))
    negatives = {"negative_text": f.negative_text_embeds, "negative_mask": f.negative_text_mask}
    plain = info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale, **negatives)[0]
    assert math.isclose(loss, plain.detach(), rel_tol=0, abs_tol=tolerances.loss()) is (
        changes == INFO_NCE_FORMS[AHNPLReleasedTrainer].arguments
    )


def test_without_kinds_it_is_refused(clip, pairs, tmp_path):
    with pytest.raises(ValueError, match="AHNPLReleasedTrainer .*column 'negative_kinds'"):
        trainer_of(clip, pairs.remove_columns("negative_kinds"), tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"margin_weight": -0.1}, "margin_weight: found -0.1,.* 0"),
        ({"multimodal_weight": math.nan}, "multimodal_weight: found nan,.* 0"),
        ({"margin_weight": math.inf}, "margin_weight: found inf,.* 0"),
        ({"threshold_maximum": 0.0}, r"threshold_maximum: found 0.0,.* 0 \(logits\)"),
    ],
)
def test_a_wrong_setting_is_refused(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arguments(AHNPLReleasedTrainer, tmp_path, **settings)


def test_defaults_are_the_released_script():
    config = AHNPLReleasedConfig
    assert (config.num_negatives, config.multimodal_weight, config.margin_weight) == (5, 0.2, 0.2)
    assert config.threshold_maximum == 10


def test_on_siglip_the_unused_bias_is_frozen(siglip, pairs, tmp_path):
    trainer = trainer_of(siglip, pairs, tmp_path)
    assert not trainer.model.plain.logit_bias.requires_grad
    trainer.train()
    assert history(trainer, NAMED[0])
