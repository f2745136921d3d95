"""Datasets with a transform or a format: the usual ways to augment images, handed to a trainer."""

from __future__ import annotations

import random

import datasets
import numpy as np
import pytest
import torch
from PIL import ImageOps

from hfcomp.factory.pixels import PixelOptions, build_pixels
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.text_alignment import TextAlignmentTrainer
from hfcomp.trainers.triplet_clip import TripletClipTrainer
from tests import tiny
from tests.trainers.runs import assert_same_weights, batch_of, build, history, weights, with_row

MEAN, STD = (torch.tensor(values)[:, None, None] for values in ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)))
ADVICE, HOOKS = "hfcomp/data/transforms.py", "hfcomp/trainers/hooks.py"


def flip(batch: dict) -> dict:
    """A user's augmentation, which needs decoded images."""
    batch["image"] = [ImageOps.mirror(image.convert("RGB")) for image in batch["image"]]
    return batch


def tensor(image, size: int = tiny.IMAGE_SIZE) -> torch.Tensor:
    """The output of torchvision's Resize, ToTensor and Normalize."""
    array = np.asarray(image.convert("RGB").resize((size, size)))
    return (torch.from_numpy(array.copy()).permute(2, 0, 1) / 255 - MEAN) / STD


def pixel_values(batch: dict) -> dict:
    """Transforms like `transform_images` of transformers' run_clip.py."""
    batch["pixel_values"] = [tensor(image) for image in batch["image"]]
    return batch


def train(rows, model, folder, **settings) -> InfoNCETrainer:
    trainer = build(InfoNCETrainer, model, rows, folder, train_sampling_strategy="sequential", **settings)
    trainer.train()
    return trainer


@pytest.mark.parametrize("set_in_place", [False, True])
def test_a_transform_gets_decoded_images_and_its_own_are_trained_on(set_in_place, clip, pairs, tmp_path):
    rows = pairs.select(range(len(pairs)))
    if set_in_place:
        rows.set_transform(flip)
    else:
        rows = rows.with_transform(flip)
    trainer = train(rows, clip, tmp_path)
    stored = pairs.map(lambda row: {"image": ImageOps.mirror(row["image"])})
    assert_same_weights(weights(trainer), weights(train(stored, clip, tmp_path / "stored")))
    assert pairs[0]["image"].tobytes() != stored[0]["image"].tobytes()


def test_pixel_values_of_a_transform_are_what_the_model_gets(clip, pairs, tmp_path):
    trainer = train(
        pairs.with_transform(pixel_values), clip, tmp_path, eval_dataset=pairs.with_transform(pixel_values)
    )
    pixels = batch_of(trainer, [3, 0])["pixels"].slice_to(0, 2, "cpu")
    assert torch.equal(pixels, torch.stack([tensor(pairs[index]["image"]) for index in (3, 0)]))
    assert trainer.evaluate()["eval_loss"] > 0


def test_pixel_values_under_the_name_of_the_image_of_8_bits_and_of_arrays(clip, pairs, tmp_path):
    def transform_in_place(batch):
        return {**batch, "image": [tensor(image) for image in batch["image"]]}

    def arrays(batch):
        return {**batch, "pixel_values": np.stack([tensor(image).numpy() for image in batch["image"]])}

    def eight_bits(batch):
        images = [image.resize((tiny.IMAGE_SIZE, tiny.IMAGE_SIZE)) for image in batch["image"]]
        return {"pixel_values": torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in images])}

    first, second, bytes_ = (
        batch_of(build(InfoNCETrainer, clip, pairs.with_transform(way), tmp_path), range(4))["pixels"].pixels
        for way in (transform_in_place, arrays, eight_bits)
    )
    assert torch.equal(first, second) and first.dtype == torch.float32
    own = batch_of(build(InfoNCETrainer, clip, pairs, tmp_path), range(4))["pixels"].pixels
    assert bytes_.dtype == torch.uint8 and (bytes_.int() - own.int()).abs().float().mean() < 20


def test_columns_that_a_transform_drops_are_read_as_they_are_stored(clip, pairs, tmp_path):
    def only_pixels(batch):
        return {"pixel_values": [tensor(image) for image in batch["image"]]}

    first, second = (
        build(InfoNCETrainer, clip, pairs.with_transform(way), tmp_path) for way in (only_pixels, pixel_values)
    )
    a, b = (batch_of(first, range(4)), batch_of(second, range(4)))
    assert a.keys() == b.keys() and torch.equal(a["input_ids"], b["input_ids"])


def test_a_transform_sees_the_data_sets_own_names(clip, pairs, tmp_path):
    rows = pairs.rename_columns({"image": "photo", "caption": "title"})

    def own(batch):
        return {"photo": [ImageOps.mirror(image) for image in batch["photo"]], "title": batch["title"]}

    names = {"image": "photo", "caption": "title"}
    trainer = build(InfoNCETrainer, clip, rows.with_transform(own), tmp_path, column_names=names)
    expected = build(InfoNCETrainer, clip, pairs.with_transform(flip), tmp_path)
    assert torch.equal(batch_of(trainer, range(3))["pixels"].pixels, batch_of(expected, range(3))["pixels"].pixels)


def test_a_transform_of_some_columns_gets_these_only(clip, pairs, tmp_path):
    def images_only(batch):
        assert list(batch) == ["image"]
        return flip(batch)

    rows = pairs.with_format("custom", columns=["image"], transform=images_only)
    assert batch_of(build(InfoNCETrainer, clip, rows, tmp_path), range(3))["input_ids"].shape[0] == 3


@pytest.mark.follows(ADVICE, "Return one kind for all, such as PIL images, which hfcomp normalizes.")
def test_negative_images_are_transformed_too(clip, pairs, tmp_path):
    def both(batch):
        return {
            name: [image and ImageOps.mirror(image) for image in batch[name]] for name in ("image", "negative_image")
        }

    def tensors(batch):
        return {name: [image and tensor(image) for image in batch[name]] for name in ("image", "negative_image")}

    rows = with_row(pairs, 1, negative_image=None)
    for way in (both, tensors):
        trainer = build(TripletClipTrainer, clip, rows.with_transform(way), tmp_path)
        batch = batch_of(trainer, range(3))
        assert batch["negative_image_mask"].tolist() == [True, False, True] and len(batch["pixels"]) == 5
        trainer.train()
    with pytest.raises(ValueError, match=r"'negative_image'.*PIL.*'image'.*tensors"):
        build(TripletClipTrainer, clip, rows.with_transform(pixel_values), tmp_path)


@pytest.mark.follows(ADVICE, "Return the images as")
def test_a_transform_without_images_is_refused_at_the_start(clip, pairs, tmp_path):
    def rename(batch):
        return {"pixels": [tensor(image) for image in batch["image"]], "caption": batch["caption"]}

    message = "'pixels', 'caption', expected 'image' or 'pixel_values'"
    with pytest.raises(ValueError, match=message):
        build(InfoNCETrainer, clip, pairs.with_transform(rename), tmp_path)

    def as_advised(batch):
        return {"pixel_values": rename(batch)["pixels"]}

    build(InfoNCETrainer, clip, pairs.with_transform(as_advised), tmp_path)


@pytest.mark.follows(ADVICE, "Change texts with dataset.map")
def test_a_changed_text_is_refused(clip, pairs, tmp_path):
    def shout(batch):
        return {**batch, "caption": [text.upper() for text in batch["caption"]]}

    with pytest.raises(ValueError, match="changed .*'caption', row 0"):
        build(InfoNCETrainer, clip, pairs.with_transform(shout), tmp_path)
    mapped = pairs.map(lambda row: {"caption": row["caption"].upper()}).with_transform(flip)
    build(InfoNCETrainer, clip, mapped, tmp_path)


@pytest.mark.follows(HOOKS, "Pass the dataset without it: dataset.with_format(None).")
def test_a_transform_is_refused_where_no_images_are_read(clip, tmp_path):
    rows = datasets.Dataset.from_dict({"caption": tiny.captions()[:8], "generalized_caption": tiny.captions()[8:16]})
    with pytest.raises(ValueError, match=r"TextAlignmentTrainer .*no images"):
        build(TextAlignmentTrainer, clip, rows.with_transform(lambda batch: batch), tmp_path)
    build(TextAlignmentTrainer, clip, rows.with_transform(lambda batch: batch).with_format(None), tmp_path)


@pytest.mark.follows(HOOKS, "{name}, or pass the dataset without the transform: dataset.with_format(None).")
@pytest.mark.parametrize("name", ["reduced_jpeg", "pixel_cache"])
def test_a_setting_of_stored_images_is_refused_beside_a_transform(name, clip, pairs, tmp_path):
    rows, value = pairs.with_transform(flip), True
    if name == "pixel_cache":
        pairs.save_to_disk(tmp_path / "pairs")
        options = PixelOptions(source=str(tmp_path / "pairs"), model=str(clip), output=tmp_path / "store")
        value = str(build_pixels(options, log=lambda line: None).folder)
    with pytest.raises(ValueError, match=f"{name}=.*no effect"):
        build(InfoNCETrainer, clip, rows, tmp_path, **{name: value})
    build(InfoNCETrainer, clip, rows, tmp_path)
    build(InfoNCETrainer, clip, rows.with_format(None), tmp_path, **{name: value})


@pytest.mark.follows("hfcomp/data/pixels/store.py", "or return PIL images, which hfcomp resizes.")
def test_pixels_of_another_size_are_refused_and_pil_images_resized(clip, pairs, tmp_path):
    def large(batch):
        return {"image": [image.resize((48, 48)) for image in batch["image"]]}

    def as_tensors(batch):
        return {"image": [tensor(image, 48) for image in large(batch)["image"]]}

    with pytest.raises(ValueError, match="in the transform"):
        train(pairs.with_transform(as_tensors), clip, tmp_path)
    train(pairs.with_transform(large), clip, tmp_path)


@pytest.mark.follows(ADVICE, "Return the batch ")
def test_a_transform_that_returns_no_columns_is_refused(clip, pairs, tmp_path):
    with pytest.raises(TypeError, match="returned a list"):
        build(InfoNCETrainer, clip, pairs.with_transform(lambda batch: flip(batch)["image"]), tmp_path)
    build(InfoNCETrainer, clip, pairs.with_transform(flip), tmp_path)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (lambda image: tensor(image, 40), ValueError, r"row 0.*\[3, 40, 40\].*expected \[3, 32, 32\]"),
        (lambda image: "a path", TypeError, "'pixel_values', row 0: found a str"),
        (lambda image: tensor(image).long(), TypeError, r"row 0: found torch.int64"),
    ],
)
def test_pixel_values_that_do_not_fit_are_named(values, kind, message, clip, pairs, tmp_path):
    rows = pairs.with_transform(lambda batch: {"pixel_values": [values(image) for image in batch["image"]]})
    with pytest.raises(kind, match=message):
        batch_of(build(InfoNCETrainer, clip, rows, tmp_path), range(2))


def test_a_transform_that_returns_other_rows_is_refused(clip, pairs, tmp_path):
    rows = pairs.with_transform(lambda batch: {"image": batch["image"] * 2})
    with pytest.raises(ValueError, match="16 entries in 'image' for 8 rows"):
        build(InfoNCETrainer, clip, rows, tmp_path)


def test_pixels_from_0_to_1_are_suspected(clip, pairs, tmp_path, caplog):
    rows = pairs.with_transform(
        lambda batch: {"pixel_values": [tensor(image) * STD + MEAN for image in batch["image"]]}
    )
    build(InfoNCETrainer, clip, rows, tmp_path)
    assert "between 0 and 1" in caplog.text


def test_a_corrupt_image_under_a_transform_is_named(clip, pairs, tmp_path):
    broken = {"bytes": b"\x89PNG\r\n\x1a\n", "path": None}
    rows = with_row(pairs, 13, image=broken).with_transform(flip)
    trainer = build(InfoNCETrainer, clip, rows, tmp_path)
    with pytest.raises(ValueError, match="column 'image', row 13"):
        batch_of(trainer, [12, 13])


@pytest.mark.parametrize("kind", ["torch", "numpy", "arrow", "pandas"])
def test_a_format_changes_nothing(kind, clip, pairs, tmp_path):
    trainers = [build(InfoNCETrainer, clip, rows, tmp_path) for rows in (pairs, pairs.with_format(kind))]
    first, second = (batch_of(trainer, range(4)) for trainer in trainers)
    assert torch.equal(first["pixels"].pixels, second["pixels"].pixels)
    assert torch.equal(first["input_ids"], second["input_ids"])


def test_a_formatted_stream_changes_nothing(clip, pairs, tmp_path):
    stream = pairs.to_iterable_dataset().with_format("torch")
    trainer = build(InfoNCETrainer, clip, stream, tmp_path)
    trainer.train()
    assert np.isfinite(history(trainer, "loss")).all()


def test_drawn_captions_and_crops_go_with_a_transform(clip, pairs, tmp_path):
    several = pairs.map(lambda row: {"caption": [row["caption"], row["caption"] + " again"]})
    few = several.select_columns(["image", "caption"]).with_transform(flip)
    trainer = build(InfoNCETrainer, clip, few, tmp_path, draw_captions=True, random_crop=0.9)
    trainer.train()
    assert trainer.train_dataset.__getitems__([0])[0]["caption"] in several[0]["caption"]


def test_workers_run_the_transform(clip, pairs, tmp_path):
    def noisy(batch):
        random.random()
        return flip(batch)

    trainer = train(pairs.with_transform(noisy), clip, tmp_path, dataloader_num_workers=1)
    assert np.isfinite(history(trainer, "loss")).all()
