"""A stream resumed within a pass: the same rows as without the interruption, and no image of a skipped row decoded."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.data.loading import load_training_stream
from hfcomp.data.pixels import store
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny
from tests.trainers.runs import assert_same_weights, build, weights

STEPS, SAVED, BATCH = 7, 4, 4


@pytest.fixture(scope="module")
def parquet(tmp_path_factory) -> Path:
    """Two files in the Hub's layout with hard negatives, of 13 and 12 rows: a pass has six batches of four."""
    folder = tmp_path_factory.mktemp("set")
    rows = tiny.pairs(25)
    for number, part in enumerate((rows.select(range(13)), rows.select(range(13, 25)))):
        part.to_parquet(str(folder / "data" / f"train-{number:05}-of-00002.parquet"))
    return folder


def run(clip: Path, parquet: Path, folder: Path, resume: bool = False, **settings):
    """A trained trainer, and the row numbers, negatives and crops of each of its batches."""
    saved = {"max_steps": STEPS, "save_strategy": "steps", "save_steps": SAVED, "num_negatives": 2, "random_crop": 0.5}
    saved |= {"per_device_train_batch_size": BATCH, "shuffle_buffer": 6}
    trainer = build(InfoNCETrainer, clip, load_training_stream(str(parquet)), folder, **saved, **settings)
    seen, encode = [], trainer.gather_features

    def record(model, inputs):
        boxes = inputs["pixels"].boxes.tolist()
        seen.append((inputs["row"].tolist(), inputs["negative_input_ids"].sum().item(), boxes))
        return encode(model, inputs)

    trainer.gather_features = record
    trainer.train(resume_from_checkpoint=str(folder / "run" / f"checkpoint-{SAVED}") if resume else None)
    return trainer, seen


@pytest.mark.parametrize("workers", [0, 2])
def test_the_rows_are_those_of_a_whole_run(clip, parquet, tmp_path, workers):
    whole, expected = run(clip, parquet, tmp_path, dataloader_num_workers=workers)
    assert len(expected) == STEPS
    resumed, seen = run(clip, parquet, tmp_path, resume=True, dataloader_num_workers=workers)
    assert seen == expected[SAVED:]
    assert_same_weights(weights(resumed), weights(whole))


def test_images_of_skipped_rows_are_not_decoded(clip, parquet, tmp_path, monkeypatch):
    decoded: list[str] = []
    decode = store.decode_image

    def count(value, **options):
        decoded.append(options["where"])
        return decode(value, **options)

    run(clip, parquet, tmp_path)
    monkeypatch.setattr(store, "decode_image", count)
    trainer, seen = run(clip, parquet, tmp_path, resume=True)
    # the loader reads one or two batches ahead
    assert decoded[:BATCH] == [f"column 'image', row {row}" for row in seen[0][0]]
    # and a run that starts anew skips nothing
    decoded.clear()
    trainer.train()
    assert len(seen) == 2 * STEPS - SAVED and decoded[0] == "column 'image', row 0"
