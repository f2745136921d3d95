"""The line that every training prints at its start."""

from __future__ import annotations

import datasets
import pytest

from hfcomp.trainers.clear_glass import ClearGlassTrainer
from hfcomp.trainers.hierarcaps import HierarCapsTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny
from tests.trainers.group_rows import add_groups
from tests.trainers.runs import build


def line(trainer, capsys) -> str:
    trainer.train()
    (match,) = [line for line in capsys.readouterr().out.splitlines() if ", device " in line]
    return match


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "1 process x 8 = 8 pairs, 20 rows, 2 steps per epoch, device cpu"),
        (
            {"mini_batch_size": 4, "gradient_accumulation_steps": 2},
            "1 process x 8 = 8 pairs (encoded 4 at a time, 2 such batches per step), 20 rows, 1 step per epoch, "
            "device cpu",
        ),
    ],
)
def test_a_batch_and_an_epoch(clip, pairs, tmp_path, capsys, settings, expected):
    assert line(build(InfoNCETrainer, clip, pairs, tmp_path, **settings), capsys) == expected


def test_a_stream_has_no_number_of_rows(clip, pairs, tmp_path, capsys):
    trainer = build(InfoNCETrainer, clip, pairs.to_iterable_dataset(), tmp_path)
    assert line(trainer, capsys) == "1 process x 8 = 8 pairs, streamed rows, 2 steps, device cpu"


def test_neighbors_come_on_top(clip, pairs, tmp_path, capsys):
    neighbors = [[name] for name in pairs["image_id"][1:]] + [[pairs["image_id"][0]]]
    rows = pairs.add_column("neighbor_ids", neighbors)
    message = line(build(InfoNCETrainer, clip, rows, tmp_path, num_neighbors=1), capsys)
    assert message.startswith("1 process x 8 = 8 pairs (each with 1 neighbor), 20 rows")


def test_groups_are_named(clip, tmp_path, capsys):
    sizes = {"groups_per_batch": 2, "pairs_per_group": 3, "per_device_train_batch_size": 6}
    trainer = build(ClearGlassTrainer, clip, add_groups(tiny.pairs(24)), tmp_path, **sizes)
    assert line(trainer, capsys).startswith("1 process x 6 = 6 pairs (2 groups of 3), 24 rows")


def test_chains_of_texts_are_no_pairs(clip, tmp_path, capsys):
    columns = ("level_1", "level_2", "level_3", "level_4", "caption")
    texts = {name: [f"a thing {row} {name}" for row in range(16)] for name in columns}
    trainer = build(HierarCapsTrainer, clip, datasets.Dataset.from_dict(texts), tmp_path)
    assert line(trainer, capsys) == "1 process x 8 = 8 chains, 16 rows, 2 steps per epoch, device cpu"
