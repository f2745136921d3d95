"""`hfcomp build pixels` on a set with negative images, and a training run on its store."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from datasets import Image, load_dataset

from hfcomp import cli
from hfcomp.data.loading import load_training_set
from hfcomp.data.pixels.store import PixelStore
from hfcomp.factory.pixels import PixelOptions, build_pixels
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.text_alignment import TextAlignmentTrainer
from hfcomp.trainers.triplet_clip import TripletClipTrainer
from tests import tiny
from tests.data.photographs import encode, texture
from tests.trainers.runs import assert_same_weights, build, history, weights

ROWS = 20


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("set")
    tiny.pairs(ROWS).to_parquet(str(folder / "data" / "train-00000-of-00001.parquet"))
    return folder


@pytest.fixture(scope="module")
def store(clip, source, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pixels") / "store"
    cli.main(["build", "pixels", "--source", str(source), "--model", str(clip), "--output", str(folder)])
    return folder


def no_decoding(value, **options):
    pytest.fail(f"{options['where']} was decoded")


def test_all_images_are_stored_once(store, source, clip, capsys):
    rows = tiny.pairs(ROWS)
    there = ROWS + sum(image is not None for image in rows["negative_image"])
    assert len(PixelStore(store)) == there
    cli.main(["build", "pixels", "--source", str(source), "--model", str(clip), "--output", str(store)])
    assert f"{there} images read, 0 decoded" in capsys.readouterr().out
    cli.main(["build", "verify", str(store)])
    assert f"{there} images in {store} are intact" in capsys.readouterr().out


def test_a_run_on_the_store_is_the_run_without_it(store, source, clip, tmp_path, monkeypatch):
    """Rows that were filtered, selected and shuffled since, and their negative images."""
    rows = load_training_set(str(source)).shuffle(seed=3).filter(lambda row: row["image_id"] != "tiny-4")
    settings = {"max_steps": 2, "random_crop": 0.8, "eval_dataset": rows.select(range(8))}
    without = build(TripletClipTrainer, clip, rows, tmp_path / "without", **settings)
    without.train()
    expected = without.evaluate()["eval_loss"]
    with monkeypatch.context() as patched:
        patched.setattr("hfcomp.data.pixels.store.decode_image", no_decoding)
        cached = build(TripletClipTrainer, clip, rows, tmp_path / "cached", pixel_cache=str(store), **settings)
        cached.train()
        assert cached.evaluate()["eval_loss"] == expected
    assert_same_weights(weights(cached), weights(without))
    assert not history(cached, "uncached_images")


def test_images_that_the_store_lacks_are_counted_in_the_log(store, clip, tmp_path):
    further = tiny.pairs(ROWS + 12).select(range(ROWS - 4, ROWS + 12))
    settings = {"pixel_cache": str(store), "per_device_train_batch_size": 16}
    trainer = build(TripletClipTrainer, clip, further, tmp_path, **settings)
    trainer.train()
    lacking = further.select(range(4, 16))
    expected = 12 + sum(image is not None for image in lacking["negative_image"])
    assert history(trainer, "uncached_images") == [expected] * 2


def test_unreadable_images_are_left_out_and_named(clip, tmp_path):
    rows = load_dataset("parquet", data_files=_broken(tmp_path), split="train")
    assert len(rows) == 40
    options = PixelOptions(source=str(tmp_path / "rows.parquet"), model=str(clip), output=tmp_path / "store")
    lines: list[str] = []
    built = build_pixels(options, log=lines.append)
    assert (built.cells, built.made, built.images) == (40, 38, 38)
    assert [(column, row) for column, row, _ in built.unreadable] == [("image", 7), ("image", 35)]
    assert "column 'image', row 35" in built.unreadable[1][2]
    again = build_pixels(PixelOptions(**{**vars(options), "num_workers": 2}), log=lines.append)
    assert (again.made, again.images, len(again.unreadable)) == (0, 38, 2)


def _broken(folder: Path) -> str:
    rows = tiny.pairs(40).select_columns(["image", "caption"]).cast_column("image", Image(decode=False))
    place = str(folder / "rows.parquet")
    broken = {"image": {"bytes": b"x", "path": None}}
    rows.map(lambda row, index: broken if index in (7, 35) else row, with_indices=True).to_parquet(place)
    return place


def test_settings_that_do_not_fit_are_refused(store, source, clip, tmp_path):
    rows = load_training_set(str(source))
    with pytest.raises(ValueError, match="reduced_jpeg=True .*pixel_cache"):
        build(TripletClipTrainer, clip, rows, tmp_path, pixel_cache=str(store), reduced_jpeg=True)
    with pytest.raises(ValueError, match="no pixels.json.*hfcomp build pixels"):
        build(TripletClipTrainer, clip, rows, tmp_path, pixel_cache=str(tmp_path))
    with pytest.raises(ValueError, match="TextAlignmentTrainer .*no images"):
        build(TextAlignmentTrainer, clip, rows, tmp_path, pixel_cache=str(store))
    texts = rows.select_columns(["caption"])
    texts.to_parquet(str(tmp_path / "texts.parquet"))
    options = PixelOptions(source=str(tmp_path / "texts.parquet"), model=str(clip), output=tmp_path / "out")
    with pytest.raises(ValueError, match="no column 'image'; .*: caption"):
        build_pixels(options)
    with pytest.raises(ValueError, match="num_workers: found -1"):
        PixelOptions(source="a", model="b", output=tmp_path, num_workers=-1)


def test_reduced_jpeg_changes_the_pixels_of_training_only(clip, tmp_path):
    """A photograph of four times the model's side is read at a quarter."""
    files = [encode(texture(seed, (4 * tiny.IMAGE_SIZE + 12, 4 * tiny.IMAGE_SIZE))) for seed in range(8)]
    cells = [{"bytes": content, "path": None} for content in files]
    rows = tiny.pairs(8).select_columns(["caption"]).add_column("image", cells)
    rows = rows.cast_column("image", Image())
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, eval_dataset=rows, reduced_jpeg=True, random_crop=0.8)
    plain = build(InfoNCETrainer, clip, rows, tmp_path, eval_dataset=rows)
    (training,) = trainer.get_train_dataloader()
    (evaluation,), (exact,) = trainer.get_eval_dataloader(), plain.get_eval_dataloader()
    assert torch.equal(evaluation["pixels"].pixels, exact["pixels"].pixels)
    assert training["pixels"].boxes is not None and evaluation["pixels"].boxes is None
    of_row = training["row"].argsort()
    difference = (training["pixels"].pixels[of_row].float() - exact["pixels"].pixels.float()).abs().mean()
    assert 0 < difference < 8
