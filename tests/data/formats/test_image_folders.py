"""Image folders with captions: a text file beside each image, or one file that lists them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hfcomp.data.loading import load_training_set
from tests.factory.builds import png


def write(folder: Path, files: dict[str, str | int]) -> Path:
    """Texts, and images of a grey."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else png(content))
    return folder


def test_texts_beside_images_are_their_captions(tmp_path):
    files = {
        "b/1.jpg": 10,
        "b/1.txt": " a dog \n\na cat\n",
        "a.PNG": 20,
        "a.txt": "a bird",
        "c.jpg": 30,
        "notes.txt": "-",
    }
    rows = load_training_set(str(write(tmp_path, files)))
    assert rows["caption"][:] == [["a bird"], [], ["a dog", "a cat"]] and rows["image_id"][:] == ["a", "c", "b/1"]
    assert [row["image"].getpixel((0, 0))[0] for row in rows] == [20, 30, 10]
    with pytest.raises(ValueError, match="'test'.*train"):
        load_training_set(str(tmp_path), split="test")


def test_folders_of_splits_are_splits(tmp_path):
    write(tmp_path, {"train/1.jpg": 1, "train/1.txt": "one", "val/1.jpg": 2, "val/1.txt": "two"})
    assert load_training_set(str(tmp_path))["caption"][:] == [["one"]]
    assert load_training_set(str(tmp_path), split="val")["caption"][:] == [["two"]]


def test_a_text_that_is_not_utf_8_is_named(tmp_path):
    write(tmp_path, {"1.jpg": 1})
    (tmp_path / "1.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match="1.txt .*UTF-8 .* byte 3"):
        load_training_set(str(tmp_path))


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_list_of_images_and_captions_comes_first(tmp_path, kind):
    rows = [{"file_name": f"{name}.jpg", "caption": f"text {name}"} for name in "ab"]
    lines = [json.dumps(row) for row in rows] if kind == "jsonl" else ["file_name,caption"]
    lines += [] if kind == "jsonl" else [",".join(row.values()) for row in rows]
    write(tmp_path / "images", {"a.jpg": 1, "b.jpg": 2, "a.txt": "other", f"metadata.{kind}": "\n".join(lines)})
    loaded = load_training_set(str(tmp_path / "images"))
    assert loaded["caption"][:] == ["text a", "text b"] and loaded[1]["image"].getpixel((0, 0))[0] == 2
