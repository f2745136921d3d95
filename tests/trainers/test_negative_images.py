"""Sets that lack negative images: counted, reported, and refused where an objective would be another one."""

from __future__ import annotations

import logging
import re

import pytest
from datasets import Image, concatenate_datasets

from hfcomp.data.loading import TrainingRows, number_of_entries
from hfcomp.data.negatives import ShuffledNegatives, derangement
from hfcomp.experiments.arm import Arm, check_rows
from hfcomp.experiments.session import open_session
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.triplet_clip import TripletClipTrainer
from tests.trainers.own_objective import OwnTrainer
from tests.trainers.runs import build, history

LOGGER = "hfcomp.trainers._support.row_report"
NEED_THEM = pytest.mark.parametrize("trainer_class", [CementTrainer, TripletClipTrainer])


@pytest.fixture(scope="module")
def without(pairs):
    """The column of only None, as keyword negatives add it."""
    rows = pairs.remove_columns("negative_image")
    return rows.add_column("negative_image", [None] * len(rows), feature=Image())


@pytest.fixture
def lines(caplog):
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        yield lambda: [record.message for record in caplog.records if record.name == LOGGER]


def test_entries_are_counted_without_reading_them(pairs, without):
    there = [image is not None for image in pairs["negative_image"]]
    assert number_of_entries(pairs, "negative_image") == sum(there)
    order = [5, 1, 4, 1, 0]
    assert number_of_entries(pairs.select(order), "negative_image") == sum(there[row] for row in order)
    assert number_of_entries(without, "negative_image") == 0
    assert number_of_entries(pairs, "mask") == 0
    rows = ShuffledNegatives(pairs, derangement(range(len(pairs)), 0))
    assert rows.number_of_entries("negative_image") == sum(there)
    assert rows.number_of_entries("caption") == len(pairs)


@NEED_THEM
@pytest.mark.parametrize("column", [True, False])
def test_a_set_without_any_is_refused_before_the_first_step(trainer_class, column, clip, without, tmp_path):
    rows = without if column else without.remove_columns("negative_image")
    with pytest.raises(ValueError) as refused:
        build(trainer_class, clip, rows, tmp_path).train()
    said = str(refused.value)
    if column or trainer_class is CementTrainer:  # the other needs the column, and has said so
        assert said.startswith(f"{trainer_class.__name__}: none of the {len(rows)} rows")
        assert "InfoNCETrainer with num_negatives=1" in said and "recipe" in said
    else:
        assert "column 'negative_image'" in said


@NEED_THEM
def test_a_recipe_is_refused_before_anything_is_trained(trainer_class, without):
    with pytest.raises(ValueError, match=f"^{trainer_class.__name__}: none of the {len(without)} rows"):
        Arm("m", trainer_class, {}, without, 8).check()


def test_cement_on_captions_only_is_asked_for_and_said(clip, without, tmp_path, lines):
    trainer = build(CementTrainer, clip, without, tmp_path, allow_missing_negative_images=True, max_steps=1)
    trainer.train()
    line = Arm("m", CementTrainer, {"allow_missing_negative_images": True}, without, 8).check()
    assert re.match(rf"none of the {len(without)} rows .*CementTrainer.*\(allow_missing_negative_images\)", line)
    assert line in lines()
    assert history(trainer, "negative_images") == [0]
    # an image's counterpart is a caption; a caption has none
    assert len(history(trainer, "hard_negative_accuracy_image_to_text")) == 1
    assert not history(trainer, "hard_negative_accuracy_text_to_image")


@NEED_THEM
def test_rows_that_lack_one_are_counted(trainer_class, clip, pairs, tmp_path, lines):
    missing = len(pairs) - number_of_entries(pairs, "negative_image")
    expected = Arm("m", trainer_class, {}, pairs, 8).check()
    assert expected.startswith(f"{missing} of {len(pairs)} rows have no negative image")
    trainer = build(trainer_class, clip, pairs, tmp_path)
    trainer.train()
    assert expected in lines()
    counts = zip(history(trainer, "negative_images"), history(trainer, "images_encoded"), strict=True)
    assert [images - 8 for _, images in counts] == history(trainer, "negative_images")


def test_in_an_experiment_their_number_is_printed_once(clip, pairs, tmp_path, lines, capsys):
    """By the trainer; the report of the run repeats it."""
    run, session = Arm("m", CementTrainer, {}, pairs, 8), open_session({})
    check_rows([run], session)
    trainer = build(CementTrainer, clip, pairs, tmp_path, max_steps=1)
    trainer.train()
    (line,) = [line for line in lines() if "have no negative image" in line]
    assert session.notes == [line] and "have no negative image" not in capsys.readouterr().out


def test_where_all_rows_have_one_nothing_is_said(clip, pairs, tmp_path, lines):
    rows = pairs.select([row for row, image in enumerate(pairs["negative_image"]) if image is not None])
    build(CementTrainer, clip, rows, tmp_path, max_steps=1).train()
    assert not [line for line in lines() if "negative image" in line]
    assert Arm("m", CementTrainer, {}, rows, 8).check() is None


def test_objectives_without_them_do_not_ask(clip, without, tmp_path):
    for trainer_class in (InfoNCETrainer, OwnTrainer):
        trainer = build(trainer_class, clip, without, tmp_path, num_negatives=2, max_steps=1)
        trainer.train()
        assert not history(trainer, "negative_images")
        assert Arm("m", trainer_class, {"num_negatives": 2}, without, 8).check() is None


@NEED_THEM
def test_a_stream_is_counted_as_it_is_read(trainer_class, clip, pairs, without, tmp_path):
    trainer = build(trainer_class, clip, pairs.to_iterable_dataset(), tmp_path)
    trainer.train()
    assert all(number > 0 for number in history(trainer, "negative_images"))


@NEED_THEM
def test_a_stream_that_begins_without_any_is_trained_on(trainer_class, clip, pairs, without, tmp_path, lines):
    """Of a good stream the rows before the first line of the log may well have none."""
    rows = concatenate_datasets([without.cast(pairs.features), pairs.cast(pairs.features)])
    trainer = build(trainer_class, clip, rows.to_iterable_dataset(), tmp_path, max_steps=6, shuffle_buffer=1)
    trainer.train()
    assert history(trainer, "negative_images")[0] == 0 < max(history(trainer, "negative_images"))
    (line,) = [line for line in lines() if "read so far" in line]
    assert line.startswith("none of the 8 rows ") and "10,000 rows" in line


@NEED_THEM
def test_a_stream_without_any_is_refused_at_the_end(trainer_class, clip, without, tmp_path):
    said = f"{trainer_class.__name__}: none of the 16 rows .*negative_image"
    with pytest.raises(ValueError, match=said):
        build(trainer_class, clip, without.to_iterable_dataset(), tmp_path).train()


@NEED_THEM
def test_a_stream_without_any_is_refused_after_a_number_of_rows(trainer_class, clip, without, tmp_path, monkeypatch):
    monkeypatch.setattr("hfcomp.trainers._support.row_report.STREAMED_ROWS_CHECKED", 24)
    trainer = build(trainer_class, clip, without.to_iterable_dataset(), tmp_path, max_steps=6)
    with pytest.raises(ValueError, match="none of the 24 rows"):
        trainer.train()
    assert trainer.state.global_step == 3


def test_a_stream_without_the_column_is_refused(clip, without, tmp_path):
    rows = without.remove_columns("negative_image").to_iterable_dataset()
    with pytest.raises(ValueError, match="CementTrainer: .*stream .*negative"):
        build(CementTrainer, clip, rows, tmp_path).train()
    trainer = build(CementTrainer, clip, rows, tmp_path, allow_missing_negative_images=True, max_steps=1)
    trainer.train()
    assert history(trainer, "negative_images") == [0]


def test_rows_of_a_control_are_asked_for_their_own_negatives(clip, without, tmp_path):
    rows = ShuffledNegatives(without, derangement(range(len(without)), 0))
    assert isinstance(rows, TrainingRows)
    with pytest.raises(ValueError, match="none of .* rows has a negative_image"):
        build(CementTrainer, clip, rows, tmp_path).train()
