"""Concepts that several rows of a batch have are encoded once, and count as often as they occur."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModel

from hfcomp.trainers.c2lip import C2LIPTrainer
from tests import tolerances
from tests.trainers.runs import assert_same_gradients, batch_of, build


def as_listed(batch):
    """The same batch with each concept as a text of its own."""
    batch = dict(batch)
    index = batch.pop("concept_text_index")
    return batch | {"concept_input_ids": batch["concept_input_ids"][index]}


def loss_and_gradients(trainer, batch):
    trainer.model.train()
    trainer.model.zero_grad()
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    named = trainer.model.named_parameters()
    return loss.detach(), {name: weight.grad.clone() for name, weight in named if weight.grad is not None}


@pytest.mark.parametrize("size", [None, 3])
def test_repeated_concepts_have_the_loss_and_gradients_of_texts_of_their_own(size, clip, pairs, tmp_path):
    backbone = AutoModel.from_pretrained(clip, dtype=torch.float64)
    trainer = build(C2LIPTrainer, backbone, pairs, tmp_path, max_concepts=2, mini_batch_size=size)
    batch = batch_of(trainer, range(10))
    texts = {tuple(ids.tolist()) for ids in batch["concept_input_ids"]}
    there = int((batch["concept_image_index"] >= 0).sum())
    assert len(texts) == len(batch["concept_input_ids"]) < there == len(batch["concept_text_index"])
    once, each = loss_and_gradients(trainer, batch), loss_and_gradients(trainer, as_listed(batch))
    torch.testing.assert_close(once[0], each[0], rtol=0, atol=tolerances.loss(dtype=torch.float64))
    assert_same_gradients(once[1], each[1])


def test_the_log_counts_what_was_encoded(clip, pairs, tmp_path):
    trainer = build(C2LIPTrainer, clip, pairs, tmp_path, max_concepts=2, max_steps=1, logging_steps=1)
    (batch,) = [next(iter(trainer.get_train_dataloader()))]
    trainer.gather_features(trainer.model.train(), batch)
    trainer.step_log.record(torch.zeros(()), {}, {})
    assert trainer.step_log.drain()["texts_encoded"] == 8 + len(batch["concept_text_index"])
