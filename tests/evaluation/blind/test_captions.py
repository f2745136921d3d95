"""Captions for the bigram model: every form, what is left out, and what is said where there are none."""

from __future__ import annotations

import json

import numpy as np
import pytest
from datasets import Dataset

from hfcomp.evaluation.blind import captions as own
from hfcomp.evaluation.blind.captions import HOW_TO_FIX, CaptionSource, read_caption_source
from hfcomp.evaluation.spec import BenchmarkData, Folders, Origin, Unavailable

COCO = {
    "images": [{"id": 139, "file_name": "000000000139.jpg"}, {"id": 7, "file_name": "000000000007.jpg"}],
    "annotations": [{"image_id": 139, "caption": "A dog."}, {"image_id": 7, "caption": "Two cats"}],
}
NAMES = ["000000000139.jpg", "000000000007.jpg"]


def read(given=None, folders=None, benchmarks=()):
    return read_caption_source(given, folders or Folders(), benchmarks)


def test_files_of_every_kind_are_read(tmp_path):
    (tmp_path / "lines.txt").write_text("A dog.\n\nTwo cats\n")
    captions = read(tmp_path / "lines.txt")
    assert (captions.texts, captions.images) == (["A dog.", "Two cats"], [None, None])
    (tmp_path / "captions_val2017.json").write_text(json.dumps(COCO))
    captions = read(tmp_path / "captions_val2017.json")
    assert (captions.texts, captions.images) == (["A dog.", "Two cats"], NAMES)
    rows = {"caption": [["A dog.", "A puppy."], ["Two cats"]], "image_id": ["1", "2"]}
    Dataset.from_dict(rows).to_parquet(tmp_path / "own.parquet")
    captions = read(tmp_path / "own.parquet")
    assert (captions.texts, captions.images) == (["A dog.", "A puppy.", "Two cats"], ["1", "1", "2"])


def test_a_set_without_captions_is_refused(tmp_path):
    (tmp_path / "own.csv").write_text("words,image_id\nA dog,1\n")
    with pytest.raises(ValueError, match="column 'caption'"):
        read(tmp_path / "own.csv")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ValueError, match=r"empty.txt: .*no captions"):
        read(tmp_path / "empty.txt")


def test_cocos_captions_come_from_the_retrieval_benchmarks_folder(tmp_path):
    folder = tmp_path / "coco2017_retrieval"
    folder.mkdir()
    (folder / "captions_val2017.json").write_text(json.dumps(COCO))
    captions = read(folders=Folders(tmp_path))
    assert captions.place == str(folder / "captions_val2017.json") and captions.images == NAMES


def test_the_hub_is_read_only_where_the_run_reads_it_or_the_user_asks(monkeypatch):
    rows = Dataset.from_dict({"captions": [["A dog."], ["Two cats"]], "item": NAMES})
    asked = []

    def remote(self, folders):
        asked.append(self.repo)
        return BenchmarkData(rows, Origin(self.repo))

    monkeypatch.setattr(own.HubData, "remote", remote)
    with pytest.raises(Unavailable) as error:
        read(benchmarks=[BenchmarkData(rows, Origin("my/folder"))])
    assert error.value.how_to_fix == HOW_TO_FIX and not asked
    pooled = BenchmarkData(rows, Origin("web", pools=(Origin("lmms-lab/COCO-Caption2017"),)))
    assert read(benchmarks=[pooled]).images == NAMES
    assert read("coco").texts == ["A dog.", "Two cats"]
    assert asked == ["lmms-lab/COCO-Caption2017"] * 2


def test_captions_of_the_benchmarks_images_and_texts_are_left_out_and_counted():
    texts = ["A dog.", "a dog sits", "Two cats", "the grass", "a field"]
    images = ["000000000139.jpg", "COCO_val2014_000000000139.jpg", "7", None, "flickr/12.png"]
    source = CaptionSource(texts, images, "here")
    model, counts = source.model_without(["000000000139.jpg", "12.jpg"], ["TWO cats!", "a bird"])
    assert counts == {"place": "here", "captions": 1, "of_its_images": 3, "equal_texts": 1}
    alone, _ = CaptionSource(["the grass"], [None], "here").model_without([], [])
    np.testing.assert_array_equal(model.scores(["grass"]).sentence, alone.scores(["grass"]).sentence)
    assert source.model_without(["139.jpg", "7.jpg", "12.png"], ["the grass", "a field"])[0] is None
