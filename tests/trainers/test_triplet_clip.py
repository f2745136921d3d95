"""The trainer of TripletCLIP. 3 seconds."""

from __future__ import annotations

import pytest
import torch
from transformers import CLIPModel

from hfcomp.losses import info_nce_loss, triplet_clip_loss
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.hooks import INFO_NCE_FORMS
from hfcomp.trainers.triplet_clip import TripletClipTrainer
from tests.trainers.runs import (
    arguments,
    assert_same_weights,
    batch_of,
    build,
    history,
    loss_and_gradients,
    weights,
    with_row,
)


def test_the_loss_is_that_of_both_halves(clip, pairs, tmp_path):
    ragged = with_row(pairs, 2, negative_captions=["", ""])
    trainer = build(TripletClipTrainer, clip, ragged, tmp_path)
    loss, _ = loss_and_gradients(trainer, range(8))
    f = trainer.gather_features(trainer.model, batch_of(trainer, range(8)))
    # rows 1 and 5 lack the negative image
    image_mask, text_mask = f.negative_image_mask, f.negative_text_mask[:, 0]
    assert image_mask.tolist() == [True, False, True, True, True, False, True, True]
    assert text_mask.tolist() == [True, True, False, True, True, True, True, True]
    expected, _ = triplet_clip_loss(
        f.image_embeds,
        f.text_embeds,
        f.negative_image_embeds,
        f.negative_text_embeds[:, 0],
        logit_scale=f.logit_scale,
        negative_image_mask=image_mask,
        negative_text_mask=text_mask,
    )
    torch.testing.assert_close(loss, expected.detach())


def test_rows_without_any_negative_train_as_plain_info_nce(clip, pairs, tmp_path):
    none = pairs.map(lambda row: {"negative_captions": ["", ""], "negative_image": None}, features=pairs.features)
    trainer = build(TripletClipTrainer, clip, none, tmp_path)
    loss, gradients = loss_and_gradients(trainer, range(8))
    f = trainer.gather_features(trainer.model, batch_of(trainer, range(8)))
    torch.testing.assert_close(
        loss, info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale)[0].detach()
    )
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def test_it_trains_resumes_and_saves_a_plain_model(clip_with_dropout, pairs, tmp_path):
    def trainer():
        run = {"max_steps": 4, "learning_rate": 3e-3, "save_strategy": "steps", "save_steps": 2}
        return build(TripletClipTrainer, clip_with_dropout, pairs.select(range(8)), tmp_path, **run)

    whole = trainer()
    whole.train()
    assert history(whole, "loss")[-1] < history(whole, "loss")[0]
    assert len(history(whole, "loss_negative_image_to_text")) == 4
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert_same_weights(weights(resumed), weights(whole))
    _, info = CLIPModel.from_pretrained(tmp_path / "run" / "checkpoint-4", output_loading_info=True)
    assert not any(info.values()), info


def test_its_control_sees_the_same_batch(clip, pairs, tmp_path):
    """The control `same-batch` sees the same rows: cement without a margin, InfoNCE over the doubled batch."""
    assert INFO_NCE_FORMS[TripletClipTrainer].trainer_class is CementTrainer
    control = build(CementTrainer, clip, pairs, tmp_path, **INFO_NCE_FORMS[TripletClipTrainer].arguments)
    trainer = build(TripletClipTrainer, clip, pairs, tmp_path)
    features = [
        instance.gather_features(instance.model, batch_of(instance, range(8))) for instance in (trainer, control)
    ]
    for name in (
        "image_embeds",
        "text_embeds",
        "negative_image_embeds",
        "negative_text_embeds",
        "negative_image_mask",
        "negative_text_mask",
    ):
        assert torch.equal(features[0][name], features[1][name]), name


@pytest.mark.parametrize("column", ["negative_captions", "negative_image"])
def test_a_missing_column_is_refused(column, clip, pairs, tmp_path):
    with pytest.raises(ValueError, match=f"TripletClipTrainer .*column '{column}'"):
        build(TripletClipTrainer, clip, pairs.remove_columns(column), tmp_path)


@pytest.mark.parametrize("number", [0, 2])
def test_more_or_fewer_negatives_are_refused(number, tmp_path):
    with pytest.raises(ValueError, match=f"num_negatives={number}: TripletCLIP"):
        arguments(TripletClipTrainer, tmp_path, num_negatives=number)


def test_on_siglip_the_unused_bias_is_frozen(siglip, pairs, tmp_path):
    trainer = build(TripletClipTrainer, siglip, pairs, tmp_path)
    assert not trainer.model.plain.logit_bias.requires_grad
    trainer.train()
    assert history(trainer, "loss")
