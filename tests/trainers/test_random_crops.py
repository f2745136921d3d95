"""Trainers with `random_crop`: which boxes their batches have, resumed and streamed too; evaluation has none."""

from __future__ import annotations

import pytest
import torch

from hfcomp.data.collators import CompositionalCollator
from hfcomp.data.loading import TrainingRows
from hfcomp.data.pixels.transform import crop_and_scale
from hfcomp.data.sampling.draws import CROP_BOX
from hfcomp.experiments.recipes import read_recipe
from hfcomp.trainers.clear_glass import ClearGlassTrainer
from hfcomp.trainers.config import CompositionalConfig
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.text_alignment import TextAlignmentTrainer
from hfcomp.trainers.triplet_clip import TripletClipTrainer
from tests import tiny
from tests.trainers import objectives
from tests.trainers.group_rows import add_groups
from tests.trainers.runs import (
    assert_same_gradients,
    assert_same_weights,
    batch_of,
    build,
    history,
    loss_and_gradients,
    weights,
)

ROWS = 8
CROPS = {"random_crop": 0.5, "per_device_train_batch_size": 4, "max_steps": 8}
WITHOUT_IMAGES = ("HierarCapsTrainer", "TextAlignmentTrainer")


@pytest.fixture(scope="module")
def rows():
    return tiny.pairs(ROWS)


def record_batches(trainer):
    """The trainer; `batches` are the rows of its training batches with their boxes."""
    trainer.batches, encode = [], trainer.gather_features

    def record(model, inputs):
        boxes = inputs["pixels"].boxes
        if model.training:
            trainer.batches.append((inputs["row"].tolist(), None if boxes is None else boxes.tolist()))
        return encode(model, inputs)

    trainer.gather_features = record
    return trainer


def train(trainer_class, model, dataset, folder, resume=None, **settings):
    trainer = record_batches(build(trainer_class, model, dataset, folder, **settings))
    trainer.train(resume_from_checkpoint=resume and str(folder / "run" / resume))
    return trainer


def box_of_rows(batches) -> dict[int, list[float]]:
    return {row: box for names, boxes in batches for row, box in zip(names, boxes, strict=True)}


def test_each_epoch_crops_each_row_anew_in_the_order_of_a_run_without(clip, rows, tmp_path):
    cropped = train(InfoNCETrainer, clip, rows, tmp_path, **CROPS)
    epochs = [box_of_rows(cropped.batches[place : place + 2]) for place in range(0, 8, 2)]
    assert all(sorted(epoch) == list(range(ROWS)) for epoch in epochs)
    assert len({tuple(box) for epoch in epochs for box in epoch.values()}) == 4 * ROWS
    plain = train(InfoNCETrainer, clip, rows, tmp_path, **{**CROPS, "random_crop": 1.0})
    assert [names for names, _ in cropped.batches] == [names for names, _ in plain.batches]
    assert type(plain.train_dataset) is TrainingRows and {boxes for _, boxes in plain.batches} == {None}
    assert history(cropped, "loss") != history(plain, "loss")


def test_workers_crop_as_the_main_process_does(clip, rows, tmp_path):
    runs = [
        train(InfoNCETrainer, clip, rows, tmp_path / str(workers), dataloader_num_workers=workers, **CROPS)
        for workers in (0, 1, 2)
    ]
    assert runs[0].batches == runs[1].batches == runs[2].batches
    assert_same_weights(weights(runs[2]), weights(runs[0]))


def test_a_run_that_resumes_within_an_epoch_crops_as_it_would_have(clip, rows, tmp_path):
    settings = {**CROPS, "save_strategy": "steps", "save_steps": 5}
    whole = train(InfoNCETrainer, clip, rows, tmp_path, **settings)
    later = train(InfoNCETrainer, clip, rows, tmp_path, resume="checkpoint-5", **settings)
    assert later.batches == whole.batches[5:]
    assert_same_weights(weights(later), weights(whole))


def test_a_stream_crops_each_pass_anew(clip, rows, tmp_path):
    trainer = train(InfoNCETrainer, clip, rows.to_iterable_dataset(), tmp_path, shuffle_buffer=1, **CROPS)
    boxes = [tuple(box) for _, boxes in trainer.batches for box in boxes]
    assert len(set(boxes)) == len(boxes) == 4 * ROWS


def test_both_images_of_a_pair_are_cropped_alike(clip, rows, tmp_path):
    """Where the negative image is the image, the pixels that are encoded are equal."""
    same = rows.map(lambda row, index: {"negative_image": None if index % 3 == 1 else row["image"]}, with_indices=True)
    trainer = build(TripletClipTrainer, clip, same, tmp_path, **CROPS)
    batch = batch_of(trainer, [(row, 1) for row in range(ROWS)])
    there = batch["negative_image_mask"]
    assert not there.all() and len(batch["pixels"]) == ROWS + there.sum()
    pixels = batch["pixels"].slice_to(0, len(batch["pixels"]), "cpu")
    assert torch.equal(pixels[ROWS:], pixels[:ROWS][there])
    boxes = torch.tensor([trainer.train_dataset[row, 1][CROP_BOX] for row in range(ROWS)])
    assert torch.equal(pixels[:ROWS], crop_and_scale(batch["pixels"].pixels[:ROWS], boxes))


@pytest.mark.parametrize("name", [name for name in objectives.SETTINGS if name not in WITHOUT_IMAGES])
def test_every_objective_on_images_crops_them(name, clip, tmp_path):
    trainer_class, dataset = objectives.trainer_class(name), add_groups(tiny.pairs(21, concepts=True))
    trainer = build(trainer_class, clip, dataset, tmp_path, random_crop=0.9, **objectives.SETTINGS[name])
    batch = next(iter(trainer.get_train_dataloader()))
    boxes = batch["pixels"].boxes
    assert boxes.shape == (len(batch["pixels"]), 4) and len(boxes.unique(dim=0)) > 1
    assert torch.isfinite(trainer.compute_loss(trainer.model.train(), batch))


def test_mini_batches_have_the_gradients_of_the_whole_batch(clip, rows, tmp_path):
    gradients = {}
    for size in (None, 3):
        trainer = build(TripletClipTrainer, clip, rows, tmp_path, mini_batch_size=size, **CROPS)
        _, gradients[size] = loss_and_gradients(trainer, [(row, 2) for row in range(ROWS)])
    assert_same_gradients(gradients[3], gradients[None])
    trainer = build(TripletClipTrainer, clip, rows, tmp_path, **{**CROPS, "random_crop": 1.0})
    _, whole = loss_and_gradients(trainer, range(ROWS))
    with pytest.raises(AssertionError):
        assert_same_gradients(gradients[3], whole)


def test_a_row_has_one_crop_in_all_groups_of_an_epoch(clip, tmp_path):
    settings = {"random_crop": 0.5, "pairs_per_group": 3, "per_device_train_batch_size": 0, "num_train_epochs": 1}
    trainer = train(ClearGlassTrainer, clip, add_groups(tiny.pairs(21)), tmp_path, max_steps=-1, **settings)
    crops = {(row, tuple(box)) for names, boxes in trainer.batches for row, box in zip(names, boxes, strict=True)}
    assert len(crops) == len({row for row, _ in crops}) < sum(len(names) for names, _ in trainer.batches)


@pytest.mark.parametrize("strategy", ["sequential", "group_by_length"])
def test_other_orders_of_rows_know_their_epoch(strategy, clip, rows, tmp_path):
    trainer = train(InfoNCETrainer, clip, rows, tmp_path, train_sampling_strategy=strategy, **CROPS)
    epochs = [box_of_rows(trainer.batches[place : place + 2]) for place in range(0, 8, 2)]
    assert all(sorted(epoch) == list(range(ROWS)) for epoch in epochs)
    assert len({tuple(box) for epoch in epochs for box in epoch.values()}) == 4 * ROWS


# Evaluation


def test_evaluation_sees_whole_images(clip, rows, tmp_path):
    expected = build(TripletClipTrainer, clip, rows, tmp_path, eval_dataset=rows).evaluate()["eval_loss"]
    cropping = build(TripletClipTrainer, clip, rows, tmp_path, eval_dataset=rows, **CROPS)
    assert cropping.evaluate()["eval_loss"] == expected
    assert cropping.evaluate(cropping.train_dataset)["eval_loss"] == expected
    own = cropping.data_collator
    cropping.data_collator = lambda rows: own(rows)  # a user's, which knows no evaluation
    assert cropping.evaluate(cropping.train_dataset)["eval_loss"] == expected


def test_a_collator_for_evaluation_passes_over_boxes(clip, rows, tmp_path):
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, **CROPS)
    drawn = trainer.train_dataset.__getitems__([(row, 1) for row in range(ROWS)])
    collator = trainer.data_collator
    assert collator(drawn)["pixels"].boxes is not None
    exact = collator.for_evaluation()(drawn)["pixels"]
    assert exact.boxes is None and torch.equal(exact.slice_to(0, ROWS, "cpu"), collator(drawn)["pixels"].pixels)


def test_rows_of_another_trainer_are_whole_again(clip, rows, tmp_path):
    cropping = build(InfoNCETrainer, clip, rows, tmp_path, **CROPS)
    plain = build(InfoNCETrainer, clip, cropping.train_dataset, tmp_path)
    assert type(plain.train_dataset) is TrainingRows
    assert batch_of(plain, range(ROWS))["pixels"].boxes is None


# What is refused


@pytest.mark.parametrize("value", [0.0, -0.5, 1.01, float("nan")])
def test_shares_out_of_range_are_refused(value, tmp_path):
    with pytest.raises(ValueError, match=rf"random_crop: found {value},.* 0 .* 1, .*0.9"):
        CompositionalConfig(output_dir=str(tmp_path), use_cpu=True, random_crop=value)


def test_a_recipe_sets_it(tmp_path):
    assert read_recipe("negclip", ["--random_crop", "0.9"]).trainer_arguments["random_crop"] == 0.9
    with pytest.raises(ValueError, match="random_crop"):
        read_recipe("negclip", ["--random_crop", "1.5"])


def test_an_objective_without_images_refuses_it(clip, rows, tmp_path):
    with pytest.raises(ValueError, match="random_crop=0.5 .*TextAlignmentTrainer"):
        build(TextAlignmentTrainer, clip, add_groups(rows), tmp_path, **CROPS)


def test_a_collator_that_drops_the_boxes_is_refused(clip, rows, tmp_path):
    class Dropping(CompositionalCollator):
        def __call__(self, rows):
            return super().__call__([{key: row[key] for key in row if key != CROP_BOX} for row in rows])

    processor = build(InfoNCETrainer, clip, rows, tmp_path).processing_class
    own = Dropping(processor, build(InfoNCETrainer, clip, rows, tmp_path).model.config)
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, data_collator=own, **CROPS)
    with pytest.raises(ValueError, match="random_crop=0.5, .*collator .*'crop_box'"):
        trainer.train()
