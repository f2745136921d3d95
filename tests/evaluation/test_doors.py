"""The same random CLIP through every door: the scores are equal."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file
from transformers import AutoModel, AutoProcessor

import hfcomp
from hfcomp import Embedder, cli
from hfcomp.convert import export_open_clip
from hfcomp.evaluation.encoding.objects import ObjectEncoder
from tests import tiny, tolerances
from tests.convert import reference

sentence_transformers = pytest.importorskip("sentence_transformers")
FOLDERS = "hfcomp/evaluation/encoding/other_folders.py"
OBJECTS = "hfcomp/evaluation/encoding/objects.py"


class Mine:
    """An encoder of a user: two methods."""

    def __init__(self, place):
        self.embedder = Embedder(place)

    def encode_images(self, images):
        return self.embedder.images(images) * 3  # of any length

    def encode_texts(self, texts):
        return torch.tensor(self.embedder.texts(texts).vectors)


class OpenClip(reference.OpenClip):
    """A model with the methods of open_clip's that hfcomp calls, with the weights of a folder."""

    def __init__(self, folder):
        vision = reference.Vision(tiny.IMAGE_SIZE, 16, 32, 2, 2, 64, 16, "quick_gelu", 1e-5)
        weights = load_file(folder / "open_clip_model.safetensors")
        text = reference.Text(*weights["token_embedding.weight"].shape[:1], 24, 32, 2, 2, 64, 16, "quick_gelu", 1e-5)
        super().__init__(vision, text)
        self.load_state_dict(weights)

    encode_image, encode_text = reference.OpenClip.images, reference.OpenClip.texts


def open_clip_model(folder):
    """Returns the model of a folder with its transform and tokenizer, as open_clip gives them."""
    processor = AutoProcessor.from_pretrained(folder)
    settings = {"padding": "max_length", "max_length": 24, "truncation": True, "return_tensors": "pt"}
    return (
        OpenClip(folder),
        lambda image: processor.image_processor(image, return_tensors="pt")["pixel_values"][0],
        lambda texts: processor.tokenizer(texts, **settings)["input_ids"],
    )


class Mteb:
    """A model with the methods of MTEB's encoders that hfcomp calls; images and texts are columns of `inputs`."""

    mteb_model_meta = SimpleNamespace(modalities=["image", "text"])

    def __init__(self, model):
        self.model = model

    def encode(self, inputs, *, task_metadata, hf_split, hf_subset, prompt_type=None, **kwargs):
        (column,) = inputs.dataset.features
        assert list(inputs.dataset[0]) == [column] and task_metadata == "metadata of SugarCrepe"
        return np.concatenate([self.model.encode(batch[column], **kwargs) for batch in inputs])


def sentence_transformer(place, folder):
    shutil.copytree(place, folder / "0_CLIPModel")
    module = {"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}
    (folder / "modules.json").write_text(json.dumps([module]))
    return folder


def open_clip_folder(place, folder):
    export_open_clip(place, folder)
    AutoProcessor.from_pretrained(place).save_pretrained(folder)  # its vocabulary is not CLIP's
    return folder


def in_cache(place, name):
    """Puts a folder into the cache of the Hub, in its layout, and returns its id."""
    repository = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    shutil.copytree(place, repository / "snapshots" / ("0" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    return name


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    file = tmp_path_factory.mktemp("rows") / "rows.parquet"
    tiny.pairs(24).to_parquet(file)
    return file


def evaluate(model, rows):
    return hfcomp.evaluate({"model": model}, benchmarks=[str(rows)], cache=False, blind="none")


def scores(model, rows):
    return evaluate(model, rows).to_pandas()


@pytest.fixture
def expected(clip, rows):
    return scores(str(clip), rows)


def check(table, expected):
    assert table["value"].tolist() == expected["value"].tolist()


FOLDER_DOORS = {"folder": "", "Hub": "", "sentence-transformers": "sentence-transformers", "open_clip": "open_clip"}
FOLDER_DOORS |= {"sentence-transformers Hub": "sentence-transformers", "open_clip Hub": "converted from open_clip"}
OBJECT_DOORS = ("transformers", "SentenceTransformer", "open_clip model", "MTEB", "two methods")


@pytest.fixture(scope="module")
def doors(old_clip, tmp_path_factory):
    """The same CLIP as everything that `hfcomp.evaluate` takes."""
    place = tmp_path_factory.mktemp("doors")
    sentences = sentence_transformer(old_clip, place / "st")
    folder = open_clip_folder(old_clip, place / "open_clip")
    model, processor = AutoModel.from_pretrained(old_clip), AutoProcessor.from_pretrained(old_clip)
    loaded = sentence_transformers.SentenceTransformer(str(sentences), device="cpu")
    return {
        "folder": str(old_clip),
        "Hub": in_cache(old_clip, "me/clip"),
        "sentence-transformers": str(sentences),
        "sentence-transformers Hub": in_cache(sentences, "me/st"),
        "open_clip": str(folder),
        "open_clip Hub": f"hf-hub:{in_cache(folder, 'me/open_clip')}",
        "transformers": (model, processor),
        "SentenceTransformer": loaded,
        "open_clip model": open_clip_model(folder),
        "MTEB": Mteb(loaded),
        "two methods": Mine(old_clip),
    }


@pytest.fixture(scope="module")
def plain(old_clip, rows):
    return evaluate(str(old_clip), rows)


@pytest.fixture
def mteb_tasks(monkeypatch):
    """The part of MTEB that hfcomp calls."""
    task = SimpleNamespace(metadata="metadata of SugarCrepe")
    monkeypatch.setitem(sys.modules, "mteb", SimpleNamespace(get_task={"SugarCrepe": task}.get))


@pytest.mark.parametrize("door", [*FOLDER_DOORS, *OBJECT_DOORS])
def test_every_door_gives_the_same_scores(doors, door, plain, rows, mteb_tasks, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    results = evaluate(doors[door], rows)
    check(results.to_pandas(), plain.to_pandas())
    for actual, expected in zip(*(each.scores["cosines"].to_pylist() for each in (results, plain)), strict=True):
        np.testing.assert_allclose(actual, expected, atol=tolerances.cosine())
    library = FOLDER_DOORS.get(door, "")
    assert library in results.models["model"].get("library", "")
    assert any(note.startswith("model: read by ") and library in note for note in results.notes) is bool(library)


@pytest.mark.follows(OBJECTS, "and `open_clip.get_tokenizer(NAME)` make them.")
def test_a_model_of_open_clip_needs_its_tokenizer(doors, rows):
    model, preprocess, tokenizer = doors["open_clip model"]
    for parts in (model, (model, preprocess), (model, preprocess, SimpleNamespace(transforms=[]))):
        with pytest.raises(ValueError, match="OpenClip: found OpenClip.*get_tokenizer"):
            evaluate(parts, rows)


@pytest.mark.follows(OBJECTS, "set mteb_model_meta.modalities = ['image', 'text'] on the model.")
def test_a_model_of_mteb_declares_what_it_embeds(doors, plain, rows, mteb_tasks):
    model = Mteb(doors["SentenceTransformer"])
    model.mteb_model_meta = SimpleNamespace(modalities=["text"])
    with pytest.raises(ValueError, match="Mteb: its mteb_model_meta.modalities are text"):
        evaluate(model, rows)
    model.mteb_model_meta.modalities = ["image", "text"]
    check(scores(model, rows), plain.to_pandas())


def test_a_model_that_mteb_loads(doors, plain, rows):
    """With MTEB installed, which is not among the development tools because it takes 270 MB."""
    meta = pytest.importorskip("mteb").get_model_meta("openai/clip-vit-base-patch32")
    model = meta.model_copy(update={"name": doors["folder"], "revision": None}).load_model(device="cpu")
    check(scores(model, rows), plain.to_pandas())


def test_a_module_in_training_mode_is_not_changed():
    norm = torch.nn.BatchNorm1d(3)
    norm.encode_images = norm.encode_texts = lambda inputs: norm(torch.ones(len(inputs), 3))
    ObjectEncoder(norm)
    assert norm.training and norm.num_batches_tracked == 0


@pytest.mark.follows(FOLDERS, "whose weights are a pickle. Convert it first: hfcomp convert {place} ")
def test_pickled_weights_of_open_clip_are_converted_first(old_clip, rows, tmp_path, monkeypatch):
    folder = open_clip_folder(old_clip, tmp_path / "open_clip")
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
