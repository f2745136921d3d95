"""The share of weights that training has moved, in the log of every trainer. 2 seconds."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

from hfcomp.trainers._support.step_log import ENTRIES, ChangedWeights
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests.trainers.runs import build, history


def test_small_parameters_are_compared_whole_and_large_ones_by_their_share():
    model = nn.ParameterDict({"small": torch.ones(100), "large": torch.ones(3 * ENTRIES, 2), "frozen": torch.ones(9)})
    model["frozen"].requires_grad_(False)
    share = ChangedWeights(model)
    assert share.value() == 0
    with torch.no_grad():
        model["small"][:25] += 1
        model["frozen"] += 1
    total = 100 + 6 * ENTRIES
    assert share.value() == pytest.approx(25 / total)
    with torch.no_grad():
        model["large"][: 3 * ENTRIES // 2] *= 1 + 2e-7
    assert share.value() == pytest.approx((25 + 3 * ENTRIES) / total)
    with torch.no_grad():
        model["large"].fill_(1)  # back again
    assert share.value() == pytest.approx(25 / total)


def test_nothing_to_train_is_no_share():
    assert ChangedWeights(nn.ParameterDict()).value() == 0


@pytest.mark.parametrize(("rate", "moves"), [(1e-3, True), (0.0, False)])
def test_a_rate_that_moves_no_weight_is_told(rate, moves, clip, pairs, tmp_path, caplog):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, learning_rate=rate, lr_scheduler_type="constant")
    with caplog.at_level(logging.WARNING):
        trainer.train()
    shares = history(trainer, "changed_weight_fraction")
    assert len(shares) == 3  # two steps, and the end
    # all but the embeddings of tokens that the batches do not hold
    assert all(share > 0.8 for share in shares) if moves else shares == [0, 0, 0]
    said = [record.message for record in caplog.records if record.name == "hfcomp.trainers._support.step_log"]
    assert len(said) == (not moves)
    assert moves or "learning_rate (now 0)" in said[0]
