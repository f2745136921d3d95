"""Lines of the log: metrics that have something to measure, over the steps that had it."""

from __future__ import annotations

import pytest
import torch

from hfcomp.trainers._support.step_log import StepLog
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests.trainers.runs import build, history

NAN = float("nan")


def lines_of(*steps):
    log = StepLog()
    for metrics in steps:
        log.count({"row": torch.arange(2), "input_ids": torch.zeros(2, 3)})
        log.record(torch.tensor(1.0), {name: torch.tensor(value) for name, value in metrics.items()}, {})
    return log, log.drain()


def test_a_step_without_items_is_not_in_the_mean():
    _, line = lines_of({"accuracy": 0.5, "loss": 1.0}, {"accuracy": NAN, "loss": 3.0}, {"accuracy": 0.25, "loss": 2.0})
    assert (line["accuracy"], line["loss"]) == (0.375, 2.0)


def test_a_metric_without_any_item_is_absent_and_0_is_not():
    log, line = lines_of({"accuracy": NAN, "hits": 0.0}, {"accuracy": NAN, "hits": 0.0})
    assert "accuracy" not in line
    assert line["hits"] == 0
    assert log.drain() == {}


def test_each_line_is_of_its_own_steps():
    log, _ = lines_of({"accuracy": NAN})
    log.count({"row": torch.arange(2), "input_ids": torch.zeros(2, 3)})
    log.record(torch.tensor(1.0), {"accuracy": torch.tensor(1.0)}, {})
    assert log.drain()["accuracy"] == 1


def test_without_texts_there_is_no_share_of_them():
    log = StepLog()
    log.count({"row": torch.arange(2), "pixels": torch.zeros(2)})
    log.record(torch.tensor(1.0), {}, {})
    assert "truncated_text_share" not in log.drain()


def without_negatives(pairs):
    empty = {"negative_captions": ["", ""], "negative_image": None}
    return pairs.map(lambda row: empty, features=pairs.features)


def test_a_run_without_negatives_logs_nothing_of_them(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, without_negatives(pairs), tmp_path, num_negatives=2)
    trainer.train()
    assert len(history(trainer, "accuracy_image_to_text")) == 2
    assert not history(trainer, "hard_negative_accuracy")
    evaluated = trainer.evaluate(without_negatives(pairs))
    assert "eval_image_to_text_recall@1" in evaluated
    assert not [name for name in evaluated if "caption_choice" in name]


def test_cement_without_negatives_has_no_margin(clip, pairs, tmp_path):
    rows = without_negatives(pairs)
    trainer = build(CementTrainer, clip, rows, tmp_path, allow_missing_negative_images=True)
    trainer.train()
    absent = ("margin", "gradient_hard_negative", "hard_negative_accuracy_image_to_text")
    assert not any(history(trainer, name) for name in absent)
    assert len(history(trainer, "gradient_easy_negatives")) == 2


@pytest.mark.parametrize("name", ["hard_negative_accuracy_image_to_text", "margin"])
def test_batches_without_negatives_do_not_lower_the_mean(name, clip, pairs, tmp_path):
    """One batch of two has negatives: the line's mean is its."""
    empty = {"negative_captions": ["", ""], "negative_image": None}
    rows = pairs.select(range(16)).map(lambda row, i: empty if i >= 8 else {}, with_indices=True)
    settings = {"train_sampling_strategy": "sequential", "logging_steps": 2, "learning_rate": 0.0}
    both, first = (
        build(CementTrainer, clip, some, tmp_path, **settings, max_steps=steps)
        for some, steps in ((rows, 2), (rows.select(range(8)), 1))
    )
    both.train()
    first.args.logging_steps = first.state.logging_steps = 1
    first.train()
    assert history(both, name) == pytest.approx(history(first, name)[:1])
