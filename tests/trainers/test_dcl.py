"""The trainer of decoupled contrastive learning. 3 seconds."""

from __future__ import annotations

import pytest
import torch
from transformers import CLIPModel

from hfcomp.losses import dcl_loss, info_nce_loss
from hfcomp.trainers.dcl import DCLTrainer
from tests import tolerances
from tests.trainers.runs import (
    assert_same_gradients,
    assert_same_weights,
    batch_of,
    build,
    history,
    loss_and_gradients,
    weights,
)


@pytest.mark.parametrize("negatives", [0, 2])
def test_the_loss_leaves_out_the_positive_and_masked_negatives(negatives, clip, pairs, tmp_path):
    trainer = build(DCLTrainer, clip, pairs, tmp_path, num_negatives=negatives)
    loss, _ = loss_and_gradients(trainer, range(8))
    f = trainer.gather_features(trainer.model, batch_of(trainer, range(8)))
    given = {"negative_text": f.negative_text_embeds, "negative_mask": f.negative_text_mask} if negatives else {}
    assert (f.negative_text_embeds is None) is not bool(negatives)
    expected, _ = dcl_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale, **given)
    torch.testing.assert_close(loss, expected.detach())
    assert loss < info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale, **given)[0] - 0.01


@pytest.mark.parametrize("model", ["clip", "siglip"])
def test_it_trains_resumes_and_saves_a_plain_model(model, request, clip, pairs, tmp_path):
    def trainer():
        run = {"max_steps": 4, "learning_rate": 3e-3, "save_strategy": "steps", "save_steps": 2, "num_negatives": 1}
        return build(DCLTrainer, request.getfixturevalue(model), pairs.select(range(8)), tmp_path, **run)

    whole = trainer()
    whole.train()
    assert history(whole, "loss")[-1] < history(whole, "loss")[0]
    assert len(history(whole, "hard_negative_accuracy")) == 4
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert_same_weights(weights(resumed), weights(whole))
    if model == "siglip":
        assert not whole.model.plain.logit_bias.requires_grad
    else:
        _, info = CLIPModel.from_pretrained(tmp_path / "run" / "checkpoint-4", output_loading_info=True)
        assert not any(info.values()), info


def test_rows_without_any_negative_train_as_without_negatives(clip, pairs, tmp_path):
    none = pairs.map(lambda row: {"negative_captions": ["", ""]})
    masked = loss_and_gradients(build(DCLTrainer, clip, none, tmp_path, num_negatives=2), range(8))
    plain = loss_and_gradients(build(DCLTrainer, clip, pairs, tmp_path), range(8))
    torch.testing.assert_close(masked[0], plain[0], rtol=0, atol=tolerances.loss())
    assert_same_gradients(masked[1], plain[1])


def test_concepts_are_refused(clip, pairs, tmp_path):
    with pytest.raises(ValueError, match="max_concepts=1.*DCLTrainer.*'concept_embeds'"):
        build(DCLTrainer, clip, pairs, tmp_path, max_concepts=1)
