"""The trainer of HN1 to HN3: what it draws, when, and that everything else is as for the other trainers. 5 seconds."""

from __future__ import annotations

import pytest
import torch
from transformers import CLIPModel

from hfcomp.losses import info_nce_loss, replaced_negative_loss
from hfcomp.trainers.dcl import DCLTrainer
from hfcomp.trainers.hooks import INFO_NCE_FORMS
from hfcomp.trainers.replaced_negatives import ReplacedNegativesConfig, ReplacedNegativesTrainer
from tests.trainers.runs import assert_same_weights, batch_of, build, history, loss_and_gradients, weights


class Watched(ReplacedNegativesTrainer):
    """Keeps every draw."""

    def slots(self, features):
        slots = super().slots(features)
        self.__dict__.setdefault("drawn", []).append((self.model.training, slots.tolist()))
        return slots

    def training_draws(self):
        return [slots for training, slots in self.drawn if training]


def test_the_loss_is_that_of_its_slots_and_masked_negatives_replace_nothing(clip, pairs, tmp_path):
    trainer = build(Watched, clip, pairs, tmp_path, num_negatives=2)
    loss, _ = loss_and_gradients(trainer, range(8))
    f = trainer.gather_features(trainer.model, batch_of(trainer, range(8)))
    (slots,) = (torch.tensor(slots) for slots in trainer.training_draws())
    assert torch.equal(slots == -1, ~f.negative_text_mask)
    assert (slots == -1).sum() == 1  # row 3 lacks its second negative
    expected, _ = replaced_negative_loss(
        f.image_embeds, f.text_embeds, f.negative_text_embeds, logit_scale=f.logit_scale, slots=slots
    )
    torch.testing.assert_close(loss, expected.detach())


def test_rows_without_any_negative_are_told(clip, pairs, tmp_path, caplog):
    some = pairs.map(
        lambda row, index: {"negative_captions": ["", ""] if index < 3 else ["a", "b"]}, with_indices=True
    )
    build(ReplacedNegativesTrainer, clip, some, tmp_path, num_negatives=2).get_train_dataloader()
    assert "3 of 20 rows have no negative caption" in caplog.text


def test_rows_without_any_negative_train_as_plain_info_nce(clip, pairs, tmp_path):
    none = pairs.map(lambda row: {"negative_captions": ["", ""]})
    trainer = build(ReplacedNegativesTrainer, clip, none, tmp_path, num_negatives=2)
    loss, gradients = loss_and_gradients(trainer, range(8))
    f = trainer.gather_features(trainer.model, batch_of(trainer, range(8)))
    torch.testing.assert_close(
        loss, info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale)[0].detach()
    )
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def test_every_batch_has_a_draw_of_its_own_and_a_resumed_run_goes_on_with_it(clip_with_dropout, pairs, tmp_path):
    def trainer():
        run = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "per_device_train_batch_size": 4}
        return build(Watched, clip_with_dropout, pairs, tmp_path, **run, gradient_accumulation_steps=2)

    whole = trainer()
    whole.train()
    # 5 batches to an epoch, whose last one is a step by itself: 2, 2, 1 and 2 batches
    draws = whole.training_draws()
    assert len(draws) == 7
    assert len({str(slots) for slots in draws}) == 7
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert resumed.training_draws() == draws[4:]
    assert_same_weights(weights(resumed), weights(whole))
    assert history(resumed, "loss")[-2:] == history(whole, "loss")[-2:]


def test_the_seed_decides(clip, pairs, tmp_path):
    def draws(seed):
        trainer = build(Watched, clip, pairs, tmp_path, seed=seed)
        trainer.train()
        return trainer.training_draws()

    first = draws(1)
    assert draws(1) == first != draws(2)


def test_an_evaluation_can_be_repeated_at_any_step(clip, pairs, tmp_path):
    """With a last batch of one row, in which nothing can be replaced."""
    trainer = build(Watched, clip, pairs, tmp_path, eval_dataset=pairs.select(range(17)), learning_rate=0.0)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] == before
    evaluated = [slots for training, slots in trainer.drawn if not training]
    assert evaluated[:3] == evaluated[3:]
    assert evaluated[2] == [[-1]]
    assert evaluated[0] not in trainer.training_draws()


@pytest.mark.parametrize("number", [8, 9])
def test_more_negatives_than_other_texts_are_refused(clip, pairs, tmp_path, number):
    wide = pairs.map(lambda row: {"negative_captions": ["a red cube"] * 9, "negative_kinds": ["other"] * 9})
    wide = wide.remove_columns("negative_concreteness")
    trainer = build(ReplacedNegativesTrainer, clip, wide, tmp_path, num_negatives=number)
    with pytest.raises(ValueError, match=rf"num_negatives={number}, but .*batch of 8 rows .*7 other"):
        trainer.train()
    build(ReplacedNegativesTrainer, clip, wide, tmp_path, num_negatives=7, max_steps=1).train()


def test_no_negatives_are_refused(clip, pairs, tmp_path):
    with pytest.raises(ValueError, match="ReplacedNegativesTrainer .*num_negatives .* 1.* 0"):
        build(ReplacedNegativesTrainer, clip, pairs, tmp_path, num_negatives=0)
    with pytest.raises(ValueError, match="ReplacedNegativesTrainer .*column 'negative_captions'"):
        build(ReplacedNegativesTrainer, clip, pairs.remove_columns("negative_captions"), tmp_path)


def test_it_trains_and_saves_a_plain_model(clip, pairs, tmp_path):
    run = {"max_steps": 6, "learning_rate": 3e-3, "lr_scheduler_type": "constant"}
    trainer = build(ReplacedNegativesTrainer, clip, pairs.select(range(8)), tmp_path, **run)
    assert ReplacedNegativesConfig.num_negatives == 1
    trainer.train()
    assert history(trainer, "loss")[-1] < history(trainer, "loss")[0]
    assert len(history(trainer, "hard_negative_accuracy")) == 6
    trainer.save_model(str(tmp_path / "final"))
    _, info = CLIPModel.from_pretrained(tmp_path / "final", output_loading_info=True)
    assert not any(info.values()), info


def test_on_siglip_the_unused_bias_is_frozen(siglip, pairs, tmp_path):
    trainer = build(ReplacedNegativesTrainer, siglip, pairs, tmp_path)
    assert not trainer.model.plain.logit_bias.requires_grad
    trainer.train()
    assert history(trainer, "loss")


@pytest.mark.parametrize("trainer_class", [ReplacedNegativesTrainer, DCLTrainer])
@pytest.mark.parametrize("model", ["clip", "siglip"])
def test_the_control_is_info_nce_with_the_same_negatives(trainer_class, model, request, pairs, tmp_path):
    folder, settings = request.getfixturevalue(model), {"num_negatives": 2, **INFO_NCE_FORMS[trainer_class].arguments}
    control = build(INFO_NCE_FORMS[trainer_class].trainer_class, folder, pairs, tmp_path, **settings)
    trainer = build(trainer_class, folder, pairs, tmp_path, num_negatives=2)
    assert set(control.required_features) == set(trainer.required_features)
    loss, _ = loss_and_gradients(control, range(8))
    f = control.gather_features(control.model, batch_of(trainer, range(8)))
    negatives = {"negative_text": f.negative_text_embeds, "negative_mask": f.negative_text_mask}
    torch.testing.assert_close(
        loss, info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale, **negatives)[0].detach()
    )
