"""Adam with L2 weight decay in place of AdamW. 3 seconds."""

from __future__ import annotations

import pytest
import torch

from hfcomp.trainers.info_nce import InfoNCETrainer
from tests.trainers.runs import arguments, assert_same_weights, build, history, loss_and_gradients, weights

SETTINGS = {"weight_decay": 0.1, "adam_beta1": 0.8, "adam_beta2": 0.97, "adam_epsilon": 1e-5, "max_grad_norm": 0}
SETTINGS |= {"lr_scheduler_type": "constant", "train_sampling_strategy": "sequential", "max_steps": 2}


def loop(trainer, steps):
    """The same steps by torch alone, on the trainer's own model and batches."""
    parameters = [p for p in trainer.model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.Adam(groups, lr=1e-3, betas=(0.8, 0.97), eps=1e-5)
    for rows in steps:
        loss_and_gradients(trainer, rows)
        optimizer.step()
    return weights(trainer)


def test_it_is_torchs_adam_to_the_last_bit(clip, pairs, tmp_path):
    expected = loop(build(InfoNCETrainer, clip, pairs, tmp_path), [range(8), range(8, 16)])
    trainer = build(
        InfoNCETrainer, clip, pairs, tmp_path, decoupled_weight_decay=False, optim="adamw_torch", **SETTINGS
    )
    before = weights(trainer)
    trainer.train()
    assert_same_weights(weights(trainer), expected)
    decoupled = build(InfoNCETrainer, clip, pairs, tmp_path, optim="adamw_torch", **SETTINGS)
    decoupled.train()
    actual = weights(decoupled)
    # vectors have no decay, so that the first steps of both are the same; matrices differ
    assert not torch.equal(actual["backbone.text_projection.weight"], expected["backbone.text_projection.weight"])
    assert not torch.equal(before["backbone.logit_scale"], expected["backbone.logit_scale"])


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_torch_fused"])
def test_scalars_and_vectors_have_no_decay_and_settings_arrive(optim, clip, pairs, tmp_path):
    settings = SETTINGS | {"optim": optim, "decoupled_weight_decay": False}
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, **settings)
    optimizer = trainer.create_optimizer()
    assert type(optimizer) is torch.optim.Adam
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    for group, matrices in zip(optimizer.param_groups, (True, False), strict=True):
        assert all((parameter.ndim >= 2) is matrices for parameter in group["params"])
        assert (group["lr"], group["betas"], group["eps"]) == (1e-3, (0.8, 0.97), 1e-5)
        assert not group.get("decoupled_weight_decay")  # not a setting before torch 2.7
        assert bool(group["fused"]) is (optim == "adamw_torch_fused")


def test_a_resumed_run_equals_one_that_was_never_stopped(clip_with_dropout, pairs, tmp_path):
    def trainer():
        run = {"save_strategy": "steps", "save_steps": 2, "weight_decay": 0.1, "decoupled_weight_decay": False}
        return build(InfoNCETrainer, clip_with_dropout, pairs, tmp_path, max_steps=4, **run)

    whole = trainer()
    whole.train()
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert_same_weights(weights(resumed), weights(whole))
    assert history(resumed, "loss")[-2:] == history(whole, "loss")[-2:]


def test_adamw_stays_the_default(clip, pairs, tmp_path):
    assert type(build(InfoNCETrainer, clip, pairs, tmp_path).create_optimizer()) is torch.optim.AdamW


@pytest.mark.parametrize("optim", ["sgd", "adafactor"])
def test_another_optimizer_is_refused(optim, tmp_path):
    message = f"decoupled_weight_decay=False .*optim is '{optim}'.*adamw_torch"
    with pytest.raises(ValueError, match=message):
        arguments(InfoNCETrainer, tmp_path, optim=optim, decoupled_weight_decay=False)
