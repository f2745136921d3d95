"""Training sets from every place that the documentation names, and the rows that a collator receives."""

from __future__ import annotations

import errno
import os
import pickle
import re
import zipfile
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from datasets import Dataset
from datasets.exceptions import DatasetGenerationError
from transformers import AutoProcessor

from hfcomp.data import sources
from hfcomp.data.collators import CompositionalCollator
from hfcomp.data.images import decode_image
from hfcomp.data.loading import TrainingRows, load_training_set
from hfcomp.evaluation.sources import _load_folder
from hfcomp.modeling import load_backbone
from tests import tiny

README = """---
configs:
- config_name: swap
  data_files:
  - split: train
    path: swap/train.parquet
  - split: validation
    path: swap/validation.parquet
- config_name: replace
  data_files:
  - split: train
    path: replace.parquet
---
"""


@pytest.fixture(scope="module")
def dataset():
    return tiny.pairs(6)


@pytest.fixture(scope="module")
def repository(dataset, tmp_path_factory):
    """A folder in the layout of a dataset repository on the Hub."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "swap").mkdir()
    dataset.to_parquet(folder / "swap" / "train.parquet")
    dataset.select(range(2)).to_parquet(folder / "swap" / "validation.parquet")
    dataset.select(range(3)).to_parquet(folder / "replace.parquet")
    (folder / "README.md").write_text(README)
    return folder


def same(loaded, dataset) -> bool:
    return (
        loaded["caption"][:] == dataset["caption"][:]
        and loaded["negative_captions"][:] == dataset["negative_captions"][:]
        and np.array_equal(np.asarray(loaded[0]["image"]), np.asarray(dataset[0]["image"]))
        and loaded[1]["negative_image"] is None
    )


def test_a_folder_of_save_to_disk(dataset, tmp_path):
    dataset.save_to_disk(tmp_path / "one")
    assert same(load_training_set(str(tmp_path / "one")), dataset)
    splits = datasets.DatasetDict(train=dataset, validation=dataset.select(range(2)))
    splits.save_to_disk(tmp_path / "splits")
    assert same(load_training_set(str(tmp_path / "splits")), dataset)
    assert len(load_training_set(str(tmp_path / "splits"), split="validation")) == 2


def test_slices_of_files_and_of_folders_of_save_to_disk(dataset, tmp_path):
    dataset.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=dataset, validation=dataset.select(range(2))).save_to_disk(tmp_path / "splits")
    dataset.select_columns("caption").to_json(tmp_path / "rows.jsonl")
    captions = dataset["caption"][:]
    for name in ("one", "splits", "rows.jsonl"):
        parts = [load_training_set(str(tmp_path / name), split=part) for part in ("train[:50%]", "train[50%:]")]
        assert [part["caption"][:] for part in parts] == [captions[:3], captions[3:]], name
    both = load_training_set(str(tmp_path / "splits"), split="train[:1]+validation")
    assert both["caption"][:] == [captions[0], *captions[:2]]
    with pytest.raises(ValueError, match=r"'test\[:1\]'.* train, validation"):
        load_training_set(str(tmp_path / "splits"), split="test[:1]")
    with pytest.raises(ValueError, match="'train\\+test' .*2"):
        load_training_set(str(tmp_path / "one"), split="train+test")


def test_a_repositorys_folder_with_configurations(dataset, repository, tmp_path):
    cache = {"cache_dir": str(tmp_path)}
    assert same(load_training_set(str(repository), config="swap", **cache), dataset)
    assert len(load_training_set(str(repository), config="swap", split="validation", **cache)) == 2
    assert len(load_training_set(str(repository), config="replace", **cache)) == 3


def test_a_parquet_file(dataset, repository, tmp_path):
    loaded = load_training_set(str(repository / "swap" / "train.parquet"), cache_dir=str(tmp_path))
    assert same(loaded, dataset)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_text_file_names_images_relative_to_itself(form, tmp_path, monkeypatch):
    folder = tmp_path / "set"
    (folder / "pictures").mkdir(parents=True)
    for index in range(2):
        tiny.image(index).save(folder / "pictures" / f"{index}.png")
    columns = {"image": ["pictures/0.png", "pictures/1.png"], "caption": ["a red cube", "a blue ball"]}
    if form == "jsonl":
        columns["negative_image"] = [None, "pictures/0.png"]
    written = datasets.Dataset.from_dict(columns)
    path = folder / f"list.{form}"
    written.to_json(path) if form == "jsonl" else written.to_csv(path)
    monkeypatch.chdir(tmp_path)  # the working directory has no say
    loaded = load_training_set(str(path), cache_dir=str(tmp_path / "cache"))
    assert loaded["caption"][:] == columns["caption"]
    shown = loaded.cast_column("image", datasets.Image())
    assert np.array_equal(np.asarray(shown[1]["image"]), np.asarray(tiny.image(1)))
    if form == "jsonl":
        assert loaded[0]["negative_image"] is None
        assert loaded[1]["negative_image"]["path"].endswith("pictures/0.png")


def test_urls_and_absolute_names_stay_as_they_are(tmp_path):
    archive, plain = tmp_path / "set.zip", tmp_path / "elsewhere" / "1.png"
    plain.parent.mkdir()
    tiny.image(1).save(plain)
    tiny.image(0).save(tmp_path / "0.png")
    with zipfile.ZipFile(archive, "w") as file:
        file.write(tmp_path / "0.png", "0.png")
    names = [f"zip://0.png::{archive}", str(plain), "https://example.com/a.png", "0.png"]
    folder = tmp_path / "set"
    folder.mkdir()
    path = folder / "list.jsonl"
    datasets.Dataset.from_dict({"image": names, "caption": ["a"] * 4}).to_json(path)
    loaded = load_training_set(str(path), cache_dir=str(tmp_path / "cache"))
    rows = TrainingRows(loaded, ["image"])
    assert [rows[index]["image"]["path"] for index in range(4)] == [*names[:3], str(folder / "0.png")]
    for index in range(2):
        assert np.array_equal(np.asarray(decode_image(rows[index]["image"])), np.asarray(tiny.image(index)))


def test_a_folder_is_asked_for_the_wanted_split_alone(repository, tmp_path, monkeypatch):
    asked = []
    load = sources.load_dataset
    monkeypatch.setattr(sources, "load_dataset", lambda *args, **kwargs: asked.append(kwargs) or load(*args, **kwargs))
    loaded = load_training_set(str(repository), config="swap", split="validation", cache_dir=str(tmp_path))
    assert isinstance(loaded, datasets.Dataset) and len(loaded) == 2
    assert [kwargs["split"] for kwargs in asked] == ["validation"]


def test_another_error_of_datasets_is_handed_on(repository, tmp_path):
    with pytest.raises(ValueError, match="replace.*swap|swap.*replace"):
        load_training_set(str(repository), config="none", cache_dir=str(tmp_path))


def test_a_wrong_split_is_named_with_those_that_are_there(repository, tmp_path):
    with pytest.raises(ValueError, match="'test'.*train, validation"):
        load_training_set(str(repository), config="swap", split="test", cache_dir=str(tmp_path))


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "rows.xlsx").write_text("a\tb\n")
    with pytest.raises(ValueError, match=r"rows\.xlsx: expected .*\.parquet, .*\.tsv"):
        load_training_set(str(tmp_path / "rows.xlsx"))


# Rows


def test_rows_carry_their_index_and_undecoded_images(dataset):
    rows = TrainingRows(dataset, ["image", "caption", "negative_image", "concepts"])
    assert len(rows) == 6
    read = rows.__getitems__([4, 1])
    assert [row["row"] for row in read] == [4, 1]
    assert [row["caption"] for row in read] == [dataset[4]["caption"], dataset[1]["caption"]]
    assert set(read[0]) == {"row", "image", "caption", "negative_image"}
    assert read[0]["image"]["bytes"][:4] == b"\x89PNG"
    assert read[1]["negative_image"] is None
    assert rows[4]["row"] == 4
    assert rows[4] == read[0]


def test_a_corrupt_image_is_not_opened_by_reading_a_row():
    content = {"image": [{"bytes": b"no image", "path": None}], "caption": ["a red cube"]}
    features = datasets.Features({"image": datasets.Image(), "caption": datasets.Value("string")})
    dataset = datasets.Dataset.from_dict(content, features=features)
    assert TrainingRows(dataset, ["image"])[0]["image"]["bytes"] == b"no image"


def test_a_selection_counts_from_its_own_start(dataset):
    assert TrainingRows(dataset.select([3, 5]), ["caption"])[1] == {"row": 1, "caption": dataset[5]["caption"]}


def test_rows_of_an_added_column_of_images_alone_reach_another_process(dataset, tmp_path):
    dataset.select_columns(["caption"]).save_to_disk(str(tmp_path))
    on_disk = datasets.load_from_disk(str(tmp_path))
    column = "negative_image"
    rows = TrainingRows(on_disk.add_column(column, [None] * len(on_disk), feature=datasets.Image()), [column])
    assert pickle.loads(pickle.dumps(rows)).column(column) == [None] * len(dataset)


def test_split_dictionaries_are_refused(dataset):
    with pytest.raises(TypeError, match=r"train\. .*dataset\['train'\]"):
        TrainingRows(datasets.DatasetDict(train=dataset), ["image"])


def test_streaming_sets_are_refused(dataset):
    with pytest.raises(TypeError, match="streaming=True"):
        TrainingRows(dataset.to_iterable_dataset(), ["image"])


def test_other_types_are_refused_by_name():
    with pytest.raises(TypeError, match=r"datasets\.Dataset, found list"):
        TrainingRows([{"image": None}], ["image"])


def test_batches_through_a_loader_with_two_workers_equal_those_without(dataset, clip):
    rows = TrainingRows(dataset, ["image", "caption", "negative_captions", "negative_image"])
    collator = CompositionalCollator(
        AutoProcessor.from_pretrained(clip), load_backbone(clip).config, num_negatives=2, negative_image=True
    )
    options = {"batch_size": 2, "collate_fn": collator}
    batches = list(torch.utils.data.DataLoader(rows, num_workers=2, **options))
    expected = list(torch.utils.data.DataLoader(rows, **options))
    assert [batch["row"].tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]
    for batch, other in zip(batches, expected, strict=True):
        assert batch.keys() == other.keys()
        assert torch.equal(batch["pixels"].pixels, other["pixels"].pixels)
        for key in set(batch) - {"pixels"}:
            torch.testing.assert_close(batch[key], other[key], rtol=0, atol=0, equal_nan=True)


def test_an_unfinished_build_is_refused(tmp_path):
    (tmp_path / ".build").mkdir()
    with pytest.raises(ValueError, match="interrupted"):
        load_training_set(str(tmp_path))


@pytest.mark.parametrize("name", ["rows.jsonl", "./rows", "/nowhere/rows", "a/b/c", "owner/rows.parquet"])
def test_a_path_without_a_file_is_named_before_the_hub_is_asked(name, monkeypatch):
    monkeypatch.setattr(sources, "load_dataset", lambda *_, **__: pytest.fail("the Hub was asked"))
    with pytest.raises(FileNotFoundError, match=f"'{re.escape(name)}' .*{re.escape(os.getcwd())}"):
        load_training_set(name)


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space .* /.* HF_DATASETS_CACHE"),
        (ValueError("Expected object or value"), "rows.jsonl .*json: Expected object or value$"),
    ],
)
def test_what_datasets_stopped_at_is_shown(tmp_path, monkeypatch, cause, message):
    def fail(*_, **__):
        raise DatasetGenerationError("An error occurred while generating the dataset") from cause

    (tmp_path / "rows.jsonl").write_text('{"caption": "a dog"}')
    monkeypatch.setattr(sources, "load_dataset", fail)
    with pytest.raises((OSError, ValueError), match=message):
        load_training_set(str(tmp_path / "rows.jsonl"))


def test_a_folder_of_something_else_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "vocab.json").write_text("[1, 2")
    with pytest.raises(ValueError, match=f"^{tmp_path} .*cannot be read"):
        load_training_set(str(tmp_path))


@pytest.mark.follows("hfcomp/data/sources.py", "Rename the file or the folder.")
def test_a_folder_with_a_script_of_its_name_is_named(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "own.py").touch()
    (folder / "rows.jsonl").write_text('{"caption": "a dog"}\n')
    with pytest.raises(ValueError, match=r"own/own\.py: .*script"):
        load_training_set(str(folder))
    (folder / "own.py").rename(folder / "other.py")
    assert load_training_set(str(folder))["caption"][:] == ["a dog"]


@pytest.mark.follows("hfcomp/reading.py", "Correct it, or remove the entry.")
@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "set/rows.jsonl"])
def test_half_a_character_is_named_with_its_file_and_line(name, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    lines = ['{"caption": "a dog"}', '{"caption": "a \\\\ud83d cat"}', '{"caption": "a \\ud83d cat"}']

    def write(lines):
        path.write_text("[" + ",\n".join(lines) + "]" if name.endswith(".json") else "\n".join(lines))
        return str(path.parent if "/" in name else path)

    with pytest.raises(ValueError, match=rf"^\S+/{name}, line 3: .* \\ud83d\."):
        load_training_set(write(lines))
    assert load_training_set(write(lines[:2]))["caption"][1] == "a \\ud83d cat"


@pytest.mark.parametrize(
    "read", [sources.load_source, lambda place, split: _load_folder(Path(place), {"split": split})]
)
def test_folders_of_one_name_and_replaced_files_give_their_own_rows(read, tmp_path):
    card = "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/*\n---\n"

    def write_and_read(folder, captions):
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "README.md").write_text(card)
        Dataset.from_dict({"caption": captions}).to_parquet(folder / "data/a.parquet")
        return read(str(folder), split="train")["caption"][:]

    assert write_and_read(tmp_path / "one/pairs", ["a", "b"]) == ["a", "b"]
    assert write_and_read(tmp_path / "other/pairs", ["c"]) == ["c"]
    assert write_and_read(tmp_path / "one/pairs", ["d"]) == ["d"]
