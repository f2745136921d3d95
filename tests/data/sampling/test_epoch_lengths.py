"""Batches of texts of like length: less padding, every row once, random, the same on any number of processes."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import Dataset

from hfcomp.data.sampling.orders import GROUPED_BATCHES, LengthGroupedOrder
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.triplet_clip import TripletClipTrainer
from tests.trainers.runs import build

BATCH = 8


@pytest.fixture(scope="module")
def lengths():
    # as the captions of COCO: from 8 tokens on, a few of them long
    return np.random.default_rng(0).poisson(5.5, size=20 * BATCH * GROUPED_BATCHES + 3) + 8


def batches(order, lengths):
    return np.array(list(order))[: len(lengths) // BATCH * BATCH].reshape(-1, BATCH)


def test_every_row_comes_once_and_batches_hold_like_lengths(lengths):
    order = LengthGroupedOrder(lengths, batch_size=BATCH, seed=0)
    assert len(order) == len(lengths)
    assert sorted(order) == list(range(len(lengths)))
    grouped = lengths[batches(order, lengths)].max(1).mean()
    random = lengths[np.random.default_rng(1).permutation(len(lengths))[:-3].reshape(-1, BATCH)].max(1).mean()
    assert grouped < lengths.mean() + 0.15 * (random - lengths.mean())


def test_batches_come_in_random_order(lengths):
    """Neither from short to long, nor the longest first: a drift of lengths would be one of the loss."""
    of_batch = lengths[batches(LengthGroupedOrder(lengths, batch_size=BATCH, seed=0), lengths)].max(1)
    place = np.arange(len(of_batch))
    # of n independent draws a correlation has a standard deviation of 1 / sqrt(n)
    assert abs(np.corrcoef(place, of_batch)[0, 1]) < 4 / np.sqrt(len(of_batch))
    assert abs(np.corrcoef(of_batch[:-1], of_batch[1:])[0, 1]) < 4 / np.sqrt(len(of_batch))


def test_an_epoch_has_its_own_batches_and_the_seed_decides(lengths):
    def epoch_rows(epoch, seed=0):
        order = LengthGroupedOrder(lengths, batch_size=BATCH, seed=seed)
        order.set_epoch(epoch)
        return list(order)

    assert epoch_rows(1) == epoch_rows(1) != epoch_rows(0) != epoch_rows(0, seed=5)
    first, second = ({frozenset(rows) for rows in batches(epoch_rows(epoch), lengths)} for epoch in (0, 1))
    assert len(first & second) < 0.01 * len(first)


def test_rows_without_a_batch_are_of_any_length():
    """They are dropped from the epoch: always the longest would never be trained on."""
    lengths = np.arange(100)
    left = []
    for epoch in range(200):
        order = LengthGroupedOrder(lengths, batch_size=BATCH, seed=0)
        order.set_epoch(epoch)
        left += list(order)[96:]
    # uniform on 0 to 99: a mean of 800 draws has a standard deviation of 28.9 / sqrt(800)
    assert abs(np.mean(left) - 49.5) < 4 * 28.9 / np.sqrt(800)


def test_a_trainer_groups_by_its_longest_texts(clip, pairs, tmp_path):
    rows = pairs.select_columns(["image", "caption", "negative_captions"]).to_list()
    for index, row in enumerate(rows):
        row["caption"] = " ".join(row["caption"].split()[: 1 + index % 4])
        row["negative_captions"] = ["a red cube" if index % 5 == 0 else "", "a", "a red cube on a blue ball"]
    rows = Dataset.from_list(rows, features=pairs.select_columns(list(rows[0])).features)
    by_length = {"train_sampling_strategy": "group_by_length", "num_negatives": 2}
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, max_steps=1, **by_length)
    trainer.train()
    order = trainer._sampling.sampler
    assert isinstance(order, LengthGroupedOrder)
    assert order.batch_size == 8
    tokens = trainer.data_collator.tokenizer
    expected = []
    for row in rows:  # the third negative is not read
        texts = [row["caption"], *row["negative_captions"][:2]]
        expected.append(max(len(ids) for ids in tokens(texts)[0]))
    assert order.lengths.tolist() == expected
    assert len(set(expected)) > 2


def test_an_evaluation_stays_in_the_order_of_its_set(clip, pairs, tmp_path):
    settings = {"train_sampling_strategy": "group_by_length", "eval_dataset": pairs.select(range(10))}
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, **settings)
    assert [row for batch in trainer.get_eval_dataloader() for row in batch["row"].tolist()] == list(range(10))


def test_a_resumed_run_has_the_order_of_one_that_was_not_stopped(clip, pairs, tmp_path):
    run = {"train_sampling_strategy": "group_by_length", "max_steps": 5, "save_strategy": "steps", "save_steps": 3}

    def read_rows(**start):
        trainer = build(InfoNCETrainer, clip, pairs, tmp_path, **run)
        rows, step = [], trainer.training_step
        trainer.training_step = lambda model, inputs, *args: rows.append(inputs["row"].tolist()) or step(model, inputs)
        trainer.train(**start)
        return rows

    assert read_rows()[3:] == read_rows(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))


def test_a_model_that_pads_all_texts_alike_is_refused(siglip, pairs, tmp_path):
    trainer = build(TripletClipTrainer, siglip, pairs, tmp_path, train_sampling_strategy="group_by_length")
    with pytest.raises(ValueError, match="group_by_length.*siglip .*24 tokens"):
        trainer.train()
