"""Bad rows and bad numbers through a real run: what is mended, what is counted, and what stops it by name."""

from __future__ import annotations

import io
import json

import datasets
import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.hierarcaps import HierarCapsTrainer
from hfcomp.trainers.info_nce import InfoNCEConfig, InfoNCETrainer
from tests import tiny
from tests.trainers.runs import assert_same_weights, build, history, weights, with_row

SEQUENTIAL = {"train_sampling_strategy": "sequential", "per_device_train_batch_size": 4}
SAVED = {**SEQUENTIAL, "max_steps": 5, "save_strategy": "steps", "save_steps": 1}


def encode(image: Image.Image, form: str = "PNG", **options) -> dict:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return {"bytes": buffer.getvalue(), "path": None}


CORRUPT = {"bytes": encode(tiny.image(0))["bytes"][:-300], "path": None}


def last_checkpoint(folder) -> int:
    return max((int(path.name.split("-")[1]) for path in (folder / "run").glob("checkpoint-*")), default=0)


# What stops a run


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ({"image": CORRUPT}, ValueError, "'image', row 13 .*truncated"),
        ({"image": {"bytes": b"<html>", "path": None}}, ValueError, "'image', row 13 .*supported"),
        ({"negative_image": CORRUPT}, ValueError, "'negative_image', row 13 .*decoded"),
        ({"negative_captions": []}, ValueError, "'negative_captions', row 13: found 0 .* 1"),
        ({"negative_concreteness": [1.0]}, ValueError, "'negative_concreteness', row 13: found 1 .*2"),
        ({"image": encode(tiny.image(0, (60, 60)))}, ValueError, r"row 13 .*3,600 .* 3,000"),
    ],
)
def test_a_bad_row_stops_the_run_and_is_named(columns, kind, message, clip, pairs, tmp_path):
    trainer = build(
        CementTrainer, clip, with_row(pairs, 13, **columns), tmp_path, max_image_pixels=3000, max_steps=5, **SEQUENTIAL
    )
    with pytest.raises(kind, match=message):
        trainer.train()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": None}, "'image', row 13: found no image"),
        ({"caption": ""}, "'caption', row 13: found ''.*dataset.filter"),
        ({"caption": None}, "'caption', row 13: found None"),
    ],
)
def test_a_row_without_caption_or_image_stops_before_the_first_step(columns, message, clip, pairs, tmp_path):
    rows = with_row(pairs, 13, **columns)
    with pytest.raises(ValueError, match=message):
        build(CementTrainer, clip, rows, tmp_path)
    with pytest.raises(ValueError, match=message):
        CementTrainer.check_rows(rows, CementTrainer.config_class(output_dir=str(tmp_path)))


def test_a_missing_column_stops_before_the_first_step(clip, pairs, tmp_path):
    with pytest.raises(ValueError, match="column 'image', .*column_names="):
        build(InfoNCETrainer, clip, pairs.remove_columns("image"), tmp_path)


def test_a_missing_image_file_stops_before_the_first_step(clip, pairs, tmp_path):
    rows = with_row(pairs, 13, image={"bytes": None, "path": f"{tmp_path}/photos/gone.jpg"})
    folder = f"{tmp_path}/photos"
    message = f"row 13: .*{folder}/gone.jpg .*not exist; .*{folder} .*not exist either.*"
    with pytest.raises(FileNotFoundError, match=f"^column 'image', {message} 1 of 20"):
        build(InfoNCETrainer, clip, rows, tmp_path)
    with pytest.raises(FileNotFoundError, match="column 'image', row 13"):
        InfoNCETrainer.check_rows(rows, InfoNCEConfig(output_dir=str(tmp_path)))


def test_a_set_smaller_than_a_batch_stops_before_the_first_step(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs.select(range(3)), tmp_path, **SEQUENTIAL)
    with pytest.raises(ValueError, match="3 rows, .* 4"):
        trainer.train()


def test_a_run_stopped_by_a_bad_row_resumes_from_its_last_checkpoint_when_the_row_is_mended(clip, pairs, tmp_path):
    bad = with_row(pairs, 13, image=CORRUPT)
    with pytest.raises(ValueError, match="row 13"):
        build(InfoNCETrainer, clip, bad, tmp_path, **SAVED).train()
    # row 13 is of step 4; batches are read one ahead
    assert last_checkpoint(tmp_path) >= 2
    mended = build(InfoNCETrainer, clip, pairs, tmp_path, **SAVED)
    mended.train(resume_from_checkpoint=True)
    never = build(InfoNCETrainer, clip, pairs, tmp_path / "never", **SAVED)
    never.train()
    assert_same_weights(weights(mended), weights(never))


def test_a_run_stopped_by_a_bad_row_resumes_without_it(clip, pairs, tmp_path):
    bad = with_row(pairs, 13, image=CORRUPT)
    with pytest.raises(ValueError, match="row 13"):
        build(InfoNCETrainer, clip, bad, tmp_path, **SAVED).train()
    without = bad.select([row for row in range(len(bad)) if row != 13])
    resumed = build(InfoNCETrainer, clip, without, tmp_path, **SAVED)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 5
    assert np.isfinite(history(resumed, "loss")).all()


def test_a_bad_row_in_a_workers_process_is_named_too(clip, pairs, tmp_path):
    bad = with_row(pairs, 13, image=CORRUPT)
    trainer = build(InfoNCETrainer, clip, bad, tmp_path, max_steps=5, dataloader_num_workers=1, **SEQUENTIAL)
    with pytest.raises(ValueError, match="'image', row 13 .*decoded"):
        trainer.train()


# What is mended


class WatchedTrainer(InfoNCETrainer):
    """Keeps the pixels of the last batch."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self.seen = inputs["pixels"].pixels
        return super().compute_loss(model, inputs, return_outputs)


def test_images_of_every_mode_are_used_as_a_viewer_shows_them(clip, tmp_path):
    rgb = tiny.image(0, (48, 40))
    grey, palette = rgb.convert("L"), rgb.quantize(16)
    cmyk = encode(rgb.convert("CMYK"), "JPEG")
    alpha = np.dstack([np.asarray(rgb), np.random.default_rng(1).integers(0, 256, (40, 48), dtype=np.uint8)])
    alpha = Image.fromarray(alpha, "RGBA")
    deep = np.random.default_rng(2).integers(0, 65536, (40, 48), dtype=np.uint16)
    eight = Image.fromarray(np.rint(deep / 257).astype(np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = encode(rgb, "JPEG", exif=exif)
    opened = Image.open(io.BytesIO(turned["bytes"]))
    dot = Image.new("RGB", (1, 1), (9, 99, 200))
    cases = {
        "RGB": (encode(rgb), rgb),
        "L": (encode(grey), grey.convert("RGB")),
        "P": (encode(palette), palette.convert("RGB")),
        "CMYK": (cmyk, Image.open(io.BytesIO(cmyk["bytes"])).convert("RGB")),
        "RGBA": (encode(alpha), None),
        "16 bits": (encode(Image.fromarray(deep)), eight.convert("RGB")),
        "EXIF": (turned, ImageOps.exif_transpose(opened)),
        "1 x 1": (encode(dot), dot),
    }
    white = Image.alpha_composite(Image.new("RGBA", rgb.size, "white"), alpha).convert("RGB")
    cases["RGBA"] = (cases["RGBA"][0], white)
    features = datasets.Features({"image": datasets.Image(), "caption": datasets.Value("string")})
    captions = tiny.captions()[: len(cases)]
    images = [stored for stored, _ in cases.values()]
    dataset = datasets.Dataset.from_dict({"image": images, "caption": captions}, features=features)
    run = {"max_steps": 1, "train_sampling_strategy": "sequential"}
    trainer = build(WatchedTrainer, clip, dataset, tmp_path, **run)
    trainer.train()
    for index, (name, (_, expected)) in enumerate(cases.items()):
        difference = trainer.seen[index].int() - trainer.data_collator.transform([expected])[0].int()
        # rounding of the composition on white
        assert difference.abs().max() <= (1 if name == "RGBA" else 0), name
    assert opened.size != ImageOps.exif_transpose(opened).size
    assert history(trainer, "tiny_images") == [1]
    assert np.isfinite(history(trainer, "loss")).all()


def test_a_caption_longer_than_the_text_tower_is_cut_and_counted(clip, pairs, tmp_path):
    long = with_row(pairs, 2, caption="a red cube " * 40)
    trainer = build(InfoNCETrainer, clip, long, tmp_path, max_steps=2, **SEQUENTIAL)
    trainer.train()
    assert history(trainer, "truncated_text_share") == [1 / 4, 0]
    assert np.isfinite(history(trainer, "loss")).all()


# What must not go unnoticed


class NanTrainer(InfoNCETrainer):
    """The loss of row 9 is not a number."""

    bad_row = 9
    value = float("nan")

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        f = self.gather_features(model, inputs)
        loss = (f.image_embeds * f.text_embeds).sum() * f.logit_scale
        return self.reduce_loss(loss * (self.value if self.bad_row in inputs["row"] else 1.0), {}, f, return_outputs)


class InfiniteTrainer(NanTrainer):
    value = float("inf")


def read_note(folder) -> dict:
    return json.loads((folder / "run" / "nonfinite_batch.json").read_text())


@pytest.mark.parametrize(("trainer_class", "loss"), [(NanTrainer, "nan"), (InfiniteTrainer, "-?inf")])
def test_a_loss_that_is_no_number_stops_at_the_next_line_of_the_log(trainer_class, loss, clip, pairs, tmp_path):
    trainer = build(trainer_class, clip, pairs, tmp_path, max_steps=5, logging_steps=5, **SEQUENTIAL)
    with pytest.raises(FloatingPointError, match=rf"loss is {loss} at step 3; .*checkpoint"):
        trainer.train()
    assert trainer.state.global_step == 5
    assert read_note(tmp_path)["step"] == 3
    assert read_note(tmp_path)["rows"] == [8, 9, 10, 11]


def test_with_accumulation_the_step_is_the_optimizers(clip, pairs, tmp_path):
    run = {"gradient_accumulation_steps": 2, "max_steps": 2, "logging_steps": 2}
    trainer = build(NanTrainer, clip, pairs, tmp_path, **run, **SEQUENTIAL)
    with pytest.raises(FloatingPointError, match="at step 2;"):
        trainer.train()
    assert read_note(tmp_path)["rows"] == [8, 9, 10, 11]


def test_no_checkpoint_is_written_after_a_loss_that_is_no_number(clip, pairs, tmp_path):
    run = {**SAVED, "save_steps": 2, "logging_steps": 100}
    with pytest.raises(FloatingPointError, match="at step 3;"):
        build(NanTrainer, clip, pairs, tmp_path, **run).train()
    assert last_checkpoint(tmp_path) == 2
    assert read_note(tmp_path)["rows"] == [8, 9, 10, 11]
    # without the rows that the file names, the run goes on
    without = pairs.select([index for index in range(len(pairs)) if index not in read_note(tmp_path)["rows"]])
    NanTrainerWithout = type("NanTrainerWithout", (NanTrainer,), {"bad_row": -1})
    resumed = build(NanTrainerWithout, clip, without, tmp_path, **run)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 5
    assert all(torch.isfinite(value).all() for value in weights(resumed).values())


def test_a_run_does_not_end_well_with_a_loss_that_is_no_number(clip, pairs, tmp_path):
    trainer = build(NanTrainer, clip, pairs, tmp_path, max_steps=3, logging_steps=100, **SEQUENTIAL)
    with pytest.raises(FloatingPointError, match="at step 3;"):
        trainer.train()


class NanGradientTrainer(InfoNCETrainer):
    """The loss of row 9 is finite, but the root of 0 has no gradient."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        f = self.gather_features(model, inputs)
        root = (f.logit_scale * 0).sqrt() if 9 in inputs["row"] else 0
        return self.reduce_loss((f.image_embeds * f.text_embeds).sum() + root, {}, f, return_outputs)


@pytest.mark.parametrize("save", [{"save_strategy": "steps", "save_steps": 1}, {}])
def test_weights_that_are_no_numbers_are_not_saved_though_the_loss_is_one(save, clip, pairs, tmp_path):
    trainer = build(NanGradientTrainer, clip, pairs, tmp_path, max_steps=3, **SEQUENTIAL, **save)
    with pytest.raises(FloatingPointError, match="weights .*not finite .*step 3"):
        trainer.train()
    assert last_checkpoint(tmp_path) == (2 if save else 0)
    assert np.isfinite(history(trainer, "loss")).all()


def test_a_finite_run_leaves_no_such_file(clip, pairs, tmp_path):
    build(InfoNCETrainer, clip, pairs, tmp_path, max_steps=1, **SEQUENTIAL).train()
    assert not (tmp_path / "run" / "nonfinite_batch.json").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "HierarCapsTrainer needs the columns 'level_4', "),
        ({"random_crop": 0.9}, "random_crop=0.9 has no effect: HierarCapsTrainer reads no images"),
    ],
)
def test_a_study_knows_before_its_first_arm_what_chains_lack(settings, message, pairs, tmp_path):
    config = HierarCapsTrainer.config_class(output_dir=str(tmp_path), **settings)
    with pytest.raises(ValueError, match=message):
        HierarCapsTrainer.check_rows(pairs, config)
