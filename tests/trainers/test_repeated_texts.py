"""Concepts and texts of chains that rows of a batch share are encoded once, and count as often as they occur."""

from __future__ import annotations

import pytest
import torch
from datasets import Dataset
from transformers import AutoModel

from hfcomp.trainers.c2lip import C2LIPTrainer
from hfcomp.trainers.hierarcaps import HierarCapsTrainer
from tests import tolerances
from tests.trainers.runs import assert_same_gradients, batch_of, build


def as_listed(batch):
    """The same batch with each concept, or text of a chain, as a text of its own."""
    batch = dict(batch)
    for ids, index in (("input_ids", "text_index"), ("concept_input_ids", "concept_text_index")):
        if index in batch:
            batch[ids] = batch[ids][batch.pop(index)]
    return batch


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
    assert_the_same_as_listed(trainer, batch)


@pytest.mark.parametrize("size", [None, 3])
def test_so_have_texts_of_chains_and_the_empty_text(size, clip, tmp_path):
    columns = {
        "level_1": ["a cube", "a ball"] * 5,
        "caption": [f"a red {kind} {n}" for n in range(5) for kind in "ab"],
    }
    settings = {"chain_columns": list(columns), "mini_batch_size": size}
    trainer = build(HierarCapsTrainer, clip, Dataset.from_dict(columns), tmp_path, **settings)
    batch = batch_of(trainer, range(10))
    # a row's negatives are texts of other rows
    assert len(batch["input_ids"]) == 1 + 2 + 10 and len(batch["text_index"]) == 10 * (1 + 2 * 2)
    assert_the_same_as_listed(trainer, batch)


def assert_the_same_as_listed(trainer, batch):
    once, each = loss_and_gradients(trainer, batch), loss_and_gradients(trainer, as_listed(batch))
    torch.testing.assert_close(once[0], each[0], rtol=0, atol=tolerances.loss(dtype=once[0].dtype))
    assert_same_gradients(once[1], each[1])


def test_the_log_counts_what_was_encoded(clip, pairs, tmp_path):
    trainer = build(C2LIPTrainer, clip, pairs, tmp_path, max_concepts=2, max_steps=1, logging_steps=1)
    (batch,) = [next(iter(trainer.get_train_dataloader()))]
    trainer.gather_features(trainer.model.train(), batch)
    trainer.step_log.record(torch.zeros(()), {}, {})
    assert trainer.step_log.drain()["texts_encoded"] == 8 + len(batch["concept_text_index"])
