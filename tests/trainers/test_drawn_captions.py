"""Trainers that draw one of several captions in each epoch: which texts a run encodes, resumed and streamed too."""

from __future__ import annotations

import pytest

from hfcomp.trainers.ahnpl import AHNPLConfig
from hfcomp.trainers.clear_glass import ClearGlassTrainer
from hfcomp.trainers.hierarcaps import HierarCapsConfig
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.text_alignment import TextAlignmentConfig
from tests import tiny
from tests.trainers.group_rows import add_groups
from tests.trainers.runs import assert_same_weights, build, weights

ROWS, CAPTIONS = 8, 3
DRAWN = {"draw_captions": True, "per_device_train_batch_size": 4, "max_steps": 8}


def texts_of(row: int) -> list[str]:
    return [f"a {tiny.COLORS[number]} {tiny.SHAPES[row % len(tiny.SHAPES)]} {row}" for number in range(CAPTIONS)]


@pytest.fixture(scope="module")
def several():
    rows = tiny.pairs(ROWS).select_columns(["image"]).add_column("caption", [texts_of(row) for row in range(ROWS)])
    negatives = [[[f"no {text}", f"not {text}"] for text in texts_of(row)] for row in range(ROWS)]
    return rows.add_column("negative_captions", negatives)


def record_batches(trainer):
    """The trainer; `batches` are the rows of its batches with the texts of their captions and negatives."""
    trainer.batches, collator = [], trainer.data_collator

    def collate(rows):
        trainer.batches.append([(row["row"], row["caption"], row.get("negative_captions")) for row in rows])
        return collator(rows)

    trainer.data_collator = collate
    return trainer


def test_each_epoch_encodes_one_caption_of_each_row_with_its_negatives(clip, several, tmp_path):
    trainer = record_batches(build(InfoNCETrainer, clip, several, tmp_path, num_negatives=1, **DRAWN))
    trainer.train()
    epochs = [sorted(sum(trainer.batches[place : place + 2], [])) for place in range(0, 8, 2)]
    for epoch in epochs:
        assert [row for row, *_ in epoch] == list(range(ROWS))
        for row, caption, negatives in epoch:
            assert caption in texts_of(row) and negatives == [f"no {caption}", f"not {caption}"]
    captions = [[caption for _, caption, _ in epoch] for epoch in epochs]
    assert len({tuple(epoch) for epoch in captions}) == 4  # every epoch has other ones


def test_rows_are_in_the_order_of_a_run_that_draws_nothing(clip, several, tmp_path):
    drawn = record_batches(build(InfoNCETrainer, clip, several, tmp_path, **DRAWN))
    first = several.map(lambda row: {"caption": row["caption"][0]}).remove_columns("negative_captions")
    plain = record_batches(build(InfoNCETrainer, clip, first, tmp_path, **{**DRAWN, "draw_captions": False}))
    for trainer in (drawn, plain):
        trainer.train()
    assert [[row for row, *_ in batch] for batch in drawn.batches] == [
        [row for row, *_ in batch] for batch in plain.batches
    ]


@pytest.mark.parametrize("more", [{}, {"draw_negatives": True, "num_negatives": 1}], ids=["captions", "negatives too"])
def test_a_run_that_resumes_within_an_epoch_draws_what_it_would_have_drawn(clip, several, tmp_path, more):
    settings = {**DRAWN, **more, "save_strategy": "steps", "save_steps": 5}
    whole = record_batches(build(InfoNCETrainer, clip, several, tmp_path, **settings))
    whole.train()
    later = record_batches(build(InfoNCETrainer, clip, several, tmp_path, **settings))
    later.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-5"))
    assert later.batches == whole.batches[5:]
    assert_same_weights(weights(later), weights(whole))


def test_groups_draw_captions_in_their_own_order(clip, tmp_path):
    rows = add_groups(tiny.pairs(12))
    rows = rows.remove_columns("caption").add_column("caption", [texts_of(row) for row in range(12)])
    rows = rows.select_columns(["image", "caption", "group", "hard_negative_groups"])
    settings = {"pairs_per_group": 3, "draw_captions": True, "max_steps": 12}
    trainer = record_batches(build(ClearGlassTrainer, clip, rows, tmp_path, per_device_train_batch_size=0, **settings))
    trainer.train()
    by_row: dict[int, set[str]] = {}
    for row, caption, _ in sum(trainer.batches, []):
        assert caption in texts_of(row)
        by_row.setdefault(row, set()).add(caption)
    assert any(len(captions) > 1 for captions in by_row.values())


def test_a_stream_draws_captions_as_rows_are_read(clip, several, tmp_path):
    settings = {**DRAWN, "num_negatives": 1, "shuffle_buffer": 1}
    trainer = record_batches(build(InfoNCETrainer, clip, several.to_iterable_dataset(), tmp_path, **settings))
    trainer.train()
    epochs = [{caption for _, caption, _ in sum(trainer.batches[place : place + 2], [])} for place in range(0, 8, 2)]
    assert len(set(map(frozenset, epochs))) > 1
    for row, caption, negatives in sum(trainer.batches, []):
        assert caption in texts_of(row % ROWS) and negatives[0] == f"no {caption}"


def test_an_evaluation_set_has_the_same_captions_each_time(clip, several, tmp_path):
    trainer = record_batches(build(InfoNCETrainer, clip, several, tmp_path, eval_dataset=several, **DRAWN))
    trainer.evaluate()
    trainer.evaluate()
    assert trainer.batches[0] == trainer.batches[1]
    single = several.map(lambda row: {"caption": row["caption"][0]}).remove_columns("negative_captions")
    assert "eval_loss" in trainer.evaluate(single)


def test_a_set_without_lists_and_an_objective_of_fixed_texts_are_refused(clip, pairs, tmp_path):
    with pytest.raises(ValueError, match="draw_captions.*'caption' .*string"):
        build(InfoNCETrainer, clip, pairs, tmp_path, **DRAWN)
    for config in (HierarCapsConfig, TextAlignmentConfig):
        with pytest.raises(ValueError, match="draw_captions=True has no effect"):
            config(output_dir=str(tmp_path), draw_captions=True, use_cpu=True)
    with pytest.raises(ValueError, match="draw_captions=True: shift_source='frozen'"):
        AHNPLConfig(output_dir=str(tmp_path), draw_captions=True, shift_source="frozen", use_cpu=True)
