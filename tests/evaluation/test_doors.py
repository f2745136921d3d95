"""The same random CLIP through every door: the scores are equal."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoProcessor

import hfcomp
from hfcomp import Embedder, cli
from hfcomp.convert import export_open_clip
from tests import tiny

sentence_transformers = pytest.importorskip("sentence_transformers")
FOLDERS = "hfcomp/evaluation/encoding/other_folders.py"


class Mine:
    """An encoder of a user: two methods."""

    def __init__(self, place):
        self.embedder = Embedder(place)

    def encode_images(self, images):
        return self.embedder.images(images) * 3  # of any length

    def encode_texts(self, texts):
        return torch.tensor(self.embedder.texts(texts).vectors)


def sentence_transformer(place, folder):
    shutil.copytree(place, folder / "0_CLIPModel")
    module = {"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}
    (folder / "modules.json").write_text(json.dumps([module]))
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    file = tmp_path_factory.mktemp("rows") / "rows.parquet"
    tiny.pairs(24).to_parquet(file)
    return file


def scores(model, rows):
    results = hfcomp.evaluate({"model": model}, benchmarks=[str(rows)], cache=False, blind="none")
    return results.to_pandas()


@pytest.fixture
def expected(clip, rows):
    return scores(str(clip), rows)


def check(table, expected):
    assert table["value"].tolist() == expected["value"].tolist()


def test_objects(clip, rows, expected, tmp_path):
    check(scores(Mine(clip), rows), expected)
    check(scores((AutoModel.from_pretrained(clip), AutoProcessor.from_pretrained(clip)), rows), expected)
    folder = sentence_transformer(clip, tmp_path / "st")
    check(scores(sentence_transformers.SentenceTransformer(str(folder), device="cpu"), rows), expected)


def test_a_folder_of_sentence_transformers(clip, rows, expected, tmp_path):
    folder = sentence_transformer(clip, tmp_path / "st")
    assert not (folder / "config.json").exists()
    results = hfcomp.evaluate({"model": str(folder)}, benchmarks=[str(rows)], cache=False, blind="none")
    check(results.to_pandas(), expected)
    assert "sentence-transformers" in json.dumps(results.models["model"])


def test_a_folder_of_open_clip(old_clip, rows, tmp_path):
    folder = tmp_path / "open_clip"
    export_open_clip(old_clip, folder)
    AutoProcessor.from_pretrained(old_clip).save_pretrained(folder)  # its vocabulary is not CLIP's
    expected = scores(str(old_clip), rows)
    results = hfcomp.evaluate({"model": str(folder)}, benchmarks=[str(rows)], cache=False, blind="none")
    check(results.to_pandas(), expected)
    assert "open_clip" in json.dumps(results.models["model"])


@pytest.mark.follows(FOLDERS, "whose weights are a pickle. Convert it first: hfcomp convert {place} ")
def test_pickled_weights_of_open_clip_are_converted_first(old_clip, rows, tmp_path, monkeypatch):
    folder = tmp_path / "open_clip"
    export_open_clip(old_clip, folder)
    AutoProcessor.from_pretrained(old_clip).save_pretrained(folder)
    weights = next(folder.glob("*.safetensors"))
    torch.save(load_file(weights), folder / "open_clip_pytorch_model.bin")
    weights.unlink()
    with pytest.raises(ValueError, match="hfcomp convert .*--output") as refused:
        scores(str(folder), rows)
    monkeypatch.chdir(tmp_path)
    cli.main(str(refused.value).partition("hfcomp ")[2].split())
    check(scores("open_clip-transformers", rows), scores(str(old_clip), rows))


@pytest.mark.follows(FOLDERS, "It is not run. Load the model yourself and pass the object to hfcomp.evaluate().")
@pytest.mark.follows(FOLDERS, "with sentence-transformers and write safetensors with model.save_pretrained(FOLDER).")
def test_code_and_pickles_in_a_folder_of_sentence_transformers_are_never_run(clip, rows, expected, tmp_path):
    folder = sentence_transformer(clip, tmp_path / "st")
    loaded = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    modules = json.loads((folder / "modules.json").read_text())
    torch.save({}, folder / modules[0]["path"] / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pytorch_model.bin.*save_pretrained"):
        scores(str(folder), rows)
    loaded.save_pretrained(str(tmp_path / "safe"))
    check(scores(str(tmp_path / "safe"), rows), expected)
    modules[0]["type"] = "evil.Module"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="modules.json.*'evil.Module'"):
        scores(str(folder), rows)
    check(scores(loaded, rows), expected)


def test_an_object_with_two_spaces_is_named():
    class Two:
        def encode_images(self, images):
            return np.ones((len(images), 3))

        def encode_texts(self, texts):
            return np.ones((len(texts), 4))

    with pytest.raises(ValueError, match=r"Two.*\[1, 3\].*\[1, 4\]"):
        hfcomp.evaluate(Two(), benchmarks="sandbox", cache=False)
