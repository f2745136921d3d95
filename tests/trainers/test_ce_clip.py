"""The trainer of CE-CLIP: its thresholds move, are bounded, saved, resumed and logged by name. 5 seconds."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file
from transformers import CLIPModel

from hfcomp.data.columns import KIND_IDS
from hfcomp.losses import adaptive_threshold, ce_clip_loss, info_nce_loss
from hfcomp.modeling import OBJECTIVE_STATE_FILE
from hfcomp.trainers.ce_clip import CEClipConfig, CEClipTrainer
from hfcomp.trainers.hooks import INFO_NCE_FORMS
from tests import tolerances
from tests.trainers.runs import arguments, assert_same_weights, batch_of, build, history, loss_and_gradients, weights

KINDS = [KIND_IDS[name] for name in ("swap_att", "replace_obj")]


def thresholds(trainer) -> torch.Tensor:
    return trainer.model.objective_state["threshold"]().clone()


def test_the_thresholds_of_a_batch_are_used_in_the_next(clip, pairs, tmp_path):
    trainer = build(CEClipTrainer, clip, pairs, tmp_path, num_negatives=2, threshold_maximum=math.inf)
    f = trainer.gather_features(trainer.model.eval(), batch_of(trainer, range(8)))
    negatives = {"negative_kind": f.negative_kind, "negative_mask": f.negative_text_mask}
    given = (f.image_embeds, f.text_embeds, f.negative_text_embeds)
    expected = adaptive_threshold(*given, previous=torch.zeros(len(KIND_IDS)), **negatives).clamp(min=0)
    losses = []
    for used in (torch.zeros(len(KIND_IDS)), expected):
        torch.testing.assert_close(thresholds(trainer), used)
        losses.append(loss_and_gradients(trainer, range(8))[0])
        loss, _ = ce_clip_loss(*given, logit_scale=f.logit_scale, threshold=used, **negatives)
        torch.testing.assert_close(losses[-1], loss.detach())
    torch.testing.assert_close(thresholds(trainer), expected)
    assert (expected[KINDS] > 0).any() and losses[0] < losses[1]
    assert expected.count_nonzero() == (expected[KINDS] > 0).sum()


def test_training_moves_the_thresholds_within_their_bound(clip, pairs, tmp_path):
    settings = {"num_negatives": 2, "learning_rate": 3e-3, "max_steps": 8, "lr_scheduler_type": "constant"}
    run = {"threshold_maximum": 0.01, "rank_weight": 1.0, **settings}
    trainer = build(CEClipTrainer, clip, pairs.select(range(8)), tmp_path, **run)
    trainer.train()
    values = history(trainer, "threshold_swap_att")
    # logged as the loss saw them: none before the first batch
    assert len(values) == 8 and values[0] == 0
    assert len(set(values)) > 2
    assert all(0 <= value <= 0.01 + 1e-8 for value in values)
    assert thresholds(trainer).max() == pytest.approx(0.01)
    assert history(trainer, "loss_negative_margin")[-1] < history(trainer, "loss_negative_margin")[1]


def test_evaluation_leaves_the_thresholds_as_they_are(clip, pairs, tmp_path):
    trainer = build(CEClipTrainer, clip, pairs, tmp_path, num_negatives=2, eval_dataset=pairs)
    trainer.train()
    before = thresholds(trainer)
    first = trainer.evaluate()["eval_loss"]
    assert trainer.evaluate()["eval_loss"] == first
    assert torch.equal(thresholds(trainer), before) and before.any()


def test_the_log_names_the_kinds_that_are_there(clip, pairs, tmp_path):
    trainer = build(CEClipTrainer, clip, pairs, tmp_path, num_negatives=2)
    trainer.train()
    named = {name for line in trainer.state.log_history for name in line if name.startswith("threshold")}
    assert named == {"threshold_swap_att", "threshold_replace_obj"}
    for name in ("loss_intra_modal", "loss_negative_margin", "active_negative_margins", "hard_negative_accuracy"):
        assert len(history(trainer, name)) == 2


def test_batches_without_any_negative_keep_the_thresholds(clip, pairs, tmp_path):
    """Nothing of them is logged then, and the loss is InfoNCE."""
    none = pairs.map(lambda row: {"negative_captions": ["", ""]})
    trainer = build(CEClipTrainer, clip, none, tmp_path, num_negatives=2)
    trainer.model.objective_state["threshold"].update(torch.full((len(KIND_IDS),), 0.05))
    loss, gradients = loss_and_gradients(trainer, range(8))
    f = trainer.gather_features(trainer.model, batch_of(trainer, range(8)))
    torch.testing.assert_close(
        loss, info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale)[0].detach()
    )
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    trainer.train()
    assert torch.equal(thresholds(trainer), torch.full((len(KIND_IDS),), 0.05))
    assert not [name for line in trainer.state.log_history for name in line if name.startswith("threshold")]


@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_resumed_run_equals_one_that_was_never_stopped(accumulated, clip_with_dropout, pairs, tmp_path):
    def trainer():
        run = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "per_device_train_batch_size": 4}
        run |= {"num_negatives": 2, "gradient_accumulation_steps": accumulated}
        return build(CEClipTrainer, clip_with_dropout, pairs, tmp_path, **run)

    whole = trainer()
    whole.train()
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert_same_weights(weights(resumed), weights(whole))
    assert torch.equal(thresholds(resumed), thresholds(whole))
    assert any(history(whole, "threshold_replace_obj")[-2:])
    for name in ("loss", "threshold_swap_att", "threshold_replace_obj"):
        assert history(resumed, name)[-2:] == history(whole, name)[-2:], name


def test_the_thresholds_are_saved_beside_a_plain_model(clip, pairs, tmp_path):
    trainer = build(CEClipTrainer, clip, pairs, tmp_path, num_negatives=2)
    trainer.train()
    trainer.save_model(str(tmp_path / "final"))
    state = load_file(tmp_path / "final" / OBJECTIVE_STATE_FILE)
    assert list(state) == ["objective_state.threshold.value"]
    assert torch.equal(state["objective_state.threshold.value"], thresholds(trainer))
    _, info = CLIPModel.from_pretrained(tmp_path / "final", output_loading_info=True)
    assert not any(info.values()), info


@pytest.mark.parametrize("changes", [INFO_NCE_FORMS[CEClipTrainer].arguments, {"rank_weight": 0.0}])
def test_without_its_terms_it_is_info_nce_on_its_batch(changes, clip, pairs, tmp_path):
    trainer = build(CEClipTrainer, clip, pairs, tmp_path, num_negatives=2, **changes)
    loss, _ = loss_and_gradients(trainer, range(8))
    f = trainer.gather_features(trainer.model, batch_of(trainer, range(8)))
    negatives = {"negative_text": f.negative_text_embeds, "negative_mask": f.negative_text_mask}
    plain = info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale, **negatives)[0]
    assert math.isclose(loss, plain.detach(), rel_tol=0, abs_tol=tolerances.loss()) is (
        changes == INFO_NCE_FORMS[CEClipTrainer].arguments
    )


def test_without_kinds_it_is_refused(clip, pairs, tmp_path):
    with pytest.raises(ValueError, match="CEClipTrainer .*column 'negative_kinds'"):
        build(CEClipTrainer, clip, pairs.remove_columns("negative_kinds"), tmp_path, num_negatives=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank_weight": -0.1}, "rank_weight: found -0.1,.* 0"),
        ({"intra_modal_weight": math.nan}, "intra_modal_weight: found nan,.* 0"),
        ({"rank_weight": math.inf}, "rank_weight: found inf,.* 0 .*finite"),
        ({"threshold_maximum": 0.0}, r"threshold_maximum: found 0.0,.* 0 \(cosine\)"),
    ],
)
def test_a_wrong_setting_is_refused(settings, message, tmp_path):
    assert CEClipConfig.num_negatives == 4
    with pytest.raises(ValueError, match=message):
        arguments(CEClipTrainer, tmp_path, **settings)


def test_on_siglip_the_unused_bias_is_frozen(siglip, pairs, tmp_path):
    trainer = build(CEClipTrainer, siglip, pairs, tmp_path, num_negatives=2)
    assert not trainer.model.plain.logit_bias.requires_grad
    trainer.train()
    assert history(trainer, "threshold_swap_att")
