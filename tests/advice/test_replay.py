"""Follows the advice about replay, with tiny models and sets."""

from __future__ import annotations

import datasets
import pytest

from hfcomp.data.sampling.replay import count_replay_rows
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny
from tests.trainers.runs import build

follows = pytest.mark.follows
DATA = "hfcomp/data/sampling/replay.py"
TRAINER = "hfcomp/trainers/_support/replay.py"
CONFIG = "hfcomp/trainers/config.py"
ARM = "hfcomp/experiments/arm.py"


@pytest.fixture(scope="module")
def general() -> datasets.Dataset:
    return tiny.pairs(12, ragged=False).select_columns(["image", "caption"])


@pytest.fixture
def make(clip, pairs, general, tmp_path):
    def make(rows=pairs, **settings):
        settings = {"replay_fraction": 0.5, "replay_dataset": general, **settings}
        return build(InfoNCETrainer, clip, rows, tmp_path, **settings)

    return make


@follows(DATA, "{1 / (1 + batch_size):.6g}, which adds one, or to 0.")
@follows(DATA, "Set it to {more / (more + batch_size):.6g}, which adds {more}.")
@follows(DATA, "Lower replay_fraction, or use a larger replay_dataset.")
def test_the_number_of_rows(advice, make, general):
    advice.of(make, replay_fraction=0.01)
    make(replay_fraction=0.111111)
    make(replay_fraction=0, replay_dataset=None)
    advice.of(count_replay_rows, 0.3, 8, 2)
    assert count_replay_rows(0.333333, 8, 2) == 4
    advice.of(make, replay_dataset=general.select(range(6)))
    make(replay_dataset=general.select(range(6)), replay_fraction=0.4)
    make(replay_dataset=general.select(range(8)))


@follows(TRAINER, "Pass a replay_dataset (--replay_dataset).")
@follows(TRAINER, "but must be in memory. Load it without streaming=True.")
@follows(TRAINER, "in a recipe, use --replay_column_names {missing[0]}='<its name>'.")
@follows(TRAINER, "Pass it without the transform: dataset.with_format(None).")
@follows(TRAINER, "the dataset without the transform: dataset.with_format(None).")
def test_the_replay_set(advice, make, pairs, general, train_begins, splits, clip, tmp_path):
    advice.of(make, replay_dataset=None)
    with pytest.raises(ValueError, match="Set a fraction such as 0.5"):
        make(replay_fraction=0)
    make()
    general.to_parquet(str(tmp_path / "general.parquet"))
    stream = datasets.load_dataset("parquet", data_files=str(tmp_path / "general.parquet"), streaming=True)
    advice.of(make, replay_dataset=stream["train"])
    make(replay_dataset=datasets.load_dataset("parquet", data_files=str(tmp_path / "general.parquet"))["train"])
    named = general.rename_column("caption", "text")
    advice.of(make, replay_dataset=named)
    make(replay_dataset=named.rename_column("text", "caption"))
    named.save_to_disk(tmp_path / "folder")
    words = ["slipform", "--config", "slipform/vit_b32_coco", "--dataset", splits, "--model", clip]
    words += ["--evaluation", "own", "--batch_size", "8", "--bf16", "false", "--output_dir", tmp_path / "run"]
    train_begins(*words, "--replay_dataset", tmp_path / "folder", "--replay_fraction", "0.5",
                 "--replay_column_names", "caption=text")  # fmt: skip
    changed = general.with_transform(lambda batch: batch)
    advice.of(make, replay_dataset=changed)
    make(replay_dataset=changed.with_format(None))
    changed = pairs.with_transform(lambda batch: batch)
    advice.of(make, changed)
    make(changed.with_format(None))


@follows(CONFIG, "Remove no_duplicates; rows with the same image or,")
@follows(CONFIG, "only full batches get replay rows. Set it to true.")
def test_the_fields_of_a_config(advice, make):
    advice.of(make, no_duplicates=True)
    advice.of(make, dataloader_drop_last=False)
    make(no_duplicates=False, dataloader_drop_last=True)


@follows(ARM, "needs replay_fraction. Pass --replay_fraction 0.5 for as many replay rows as ")
@follows(ARM, "needs rows to replay. Pass --replay_dataset (a folder, a file, a Hub id ")
def test_the_fields_of_a_recipe(advice, train_begins, tmp_path):
    words = ["slipform", "--evaluation_items", "2", "--dataset_rows", "48", "--output_dir", str(tmp_path / "run")]
    dataset, fraction = ["--replay_dataset", "sandbox"], ["--replay_fraction", "0.5"]
    advice.command("train", *words, *dataset)
    advice.command("train", *words, *fraction)
    train_begins(*words, *dataset, *fraction)
    train_begins(*words)
