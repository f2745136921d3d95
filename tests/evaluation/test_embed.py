"""Embeddings equal the plain model's own, whatever the batch and the order."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoProcessor

from hfcomp.evaluation.benchmarks.sugarcrepe import SUBSETS, sugarcrepe_items
from hfcomp.evaluation.embed import Embedder
from tests import tiny

TEXTS = ["a red cube on a blue ball", "a green cone on a white ring with a black star", "a red cube on a blue ball"]


@pytest.fixture(scope="module", params=["clip", "siglip", "siglip2"])
def folder(request, tmp_path_factory):
    return getattr(tiny, request.param)(tmp_path_factory.mktemp("models") / request.param)


def test_embeddings_are_those_of_the_plain_model(folder):
    model, processor = AutoModel.from_pretrained(folder).eval(), AutoProcessor.from_pretrained(folder)
    images = [tiny.image(seed, (40, 50)) for seed in range(3)]
    length = model.config.text_config.max_position_embeddings
    inputs = processor(
        text=TEXTS, images=images, padding="max_length", truncation=True, max_length=length, return_tensors="pt"
    )
    inputs.pop("attention_mask", None)
    with torch.no_grad():
        expected = model(**inputs)
    embedder = Embedder(folder, batch_size=2, device="cpu")
    np.testing.assert_allclose(embedder.images(images), expected.image_embeds, atol=2e-6)
    np.testing.assert_allclose(embedder.texts(TEXTS).vectors, expected.text_embeds, atol=2e-6)


def test_equal_texts_get_equal_embeddings_to_the_last_bit(folder):
    vectors = Embedder(folder, batch_size=2, device="cpu").texts(TEXTS).vectors
    assert (vectors[0] == vectors[2]).all()


def count_encoded(embedder, monkeypatch) -> list[int]:
    """The sizes of the batches of images that are encoded from here on."""
    sizes, encode = [], embedder._encode_images
    monkeypatch.setattr(embedder, "_encode_images", lambda images: sizes.append(len(images)) or encode(images))
    return sizes


def test_equal_images_are_encoded_once_whatever_holds_them(folder, monkeypatch, tmp_path):
    embedder = Embedder(folder, batch_size=2, device="cpu")
    pictures = [tiny.image(seed, (40, 50)) for seed in range(3)]
    path, copy = tmp_path / "a.png", tmp_path / "b.png"
    for file in (path, copy):
        pictures[0].save(file)
    content = path.read_bytes()
    same = [path, str(copy), content, {"bytes": content, "path": None}, {"bytes": None, "path": str(path)}]
    same += [pictures[0].copy(), np.asarray(pictures[0]), bytearray(content)]
    expected = embedder.images(pictures)
    sizes = count_encoded(embedder, monkeypatch)
    found = embedder.images([pictures[1], *same, pictures[2], pictures[1]])
    assert sizes == [2, 1]
    assert (found[1:9] == found[1]).all() and (found[10] == found[0]).all()
    np.testing.assert_allclose(found[[1, 0, 9]], expected, atol=2e-6)


def test_a_column_of_a_data_set_will_do(clip, monkeypatch):
    embedder = Embedder(clip, batch_size=4, device="cpu")
    rows = tiny.pairs(6)
    sizes = count_encoded(embedder, monkeypatch)
    assert len(embedder.images(rows["image"])) == 6
    assert sum(sizes) <= 6
    embedder.images([image for image in rows["image"] for _ in range(5)])
    assert sum(sizes[len(sizes) // 2 :]) <= 6


def test_no_images_and_no_texts_give_empty_embeddings(folder):
    embedder = Embedder(folder, device="cpu")
    width = embedder.texts(TEXTS).vectors.shape[1]
    assert embedder.images([]).shape == embedder.texts([]).vectors.shape == (0, width)
    assert embedder.images([tiny.image(0)]).shape == (1, width)
    assert embedder.texts([]).truncated == 0


def test_one_text_or_image_instead_of_a_list_is_refused(clip):
    embedder = Embedder(clip, device="cpu")
    with pytest.raises(TypeError, match=r"found the text 'a red cube', expected a list.*\['a red cube'\]"):
        embedder.texts("a red cube")
    with pytest.raises(TypeError, match="texts, entry 1: found None, expected a text"):
        embedder.texts(["a red cube", None])
    for one in ("a.jpg", b"", tiny.image(0)):
        with pytest.raises(TypeError, match=r"images: found one .*expected a list.*\[image\]"):
            embedder.images(one)


def test_an_image_that_cannot_be_read_is_named_by_its_row(clip):
    with pytest.raises(ValueError, match="column 'photo', row 2 is in no image format"):
        Embedder(clip, device="cpu").images([tiny.image(0), tiny.image(0), b"none"], column="photo")


def test_a_module_keeps_its_modes_and_its_place(clip):
    model = AutoModel.from_pretrained(clip).train()
    model.vision_model.eval()
    modes = [part.training for part in model.modules()]
    embedder = Embedder(model)
    assert embedder.backbone is model and embedder.device == model.device
    found = embedder.images([tiny.image(0)]), embedder.texts(TEXTS).vectors
    assert [part.training for part in model.modules()] == modes
    with pytest.raises(ValueError, match="row 0"):
        embedder.images([b"none"])
    assert [part.training for part in model.modules()] == modes
    plain = Embedder(clip, device="cpu")
    assert (found[0] == plain.images([tiny.image(0)])).all() and (found[1] == plain.texts(TEXTS).vectors).all()


def test_a_module_is_copied_to_another_device(clip):
    model = AutoModel.from_pretrained(clip)
    embedder = Embedder(model, device="meta")
    assert model.device == torch.device("cpu") and embedder.backbone.device == torch.device("meta")


def test_a_module_without_a_processor_says_how_to_pass_one(clip):
    model = AutoModel.from_pretrained(clip)
    nameless = AutoModel.from_config(model.config)
    nameless.name_or_path = nameless.config._name_or_path = ""
    with pytest.raises(ValueError, match="where it was loaded from.*processor=AutoProcessor"):
        Embedder(nameless)
    nameless.name_or_path = "no/such/folder/anywhere"
    with pytest.raises(ValueError, match="'no/such/folder/anywhere', where no processor.*processor=AutoProcessor"):
        Embedder(nameless)
    assert Embedder(nameless, AutoProcessor.from_pretrained(clip)).texts(TEXTS).vectors.shape[0] == 3


def test_truncated_texts_are_counted(folder):
    found = Embedder(folder, device="cpu").texts([TEXTS[0], " and ".join([TEXTS[1]] * 9)])
    assert found.truncated == 1


def test_sugarcrepe_counts_the_items_whose_photograph_is_missing(tmp_path):
    for subset in SUBSETS:
        rows = {str(i): {"filename": f"{i}.jpg", "caption": "a", "negative_caption": "b"} for i in range(3)}
        (tmp_path / f"{subset}.json").write_text(json.dumps(rows))
    tiny.image(0).save(tmp_path / "1.jpg")
    items, absent = sugarcrepe_items(tmp_path, tmp_path)
    assert (len(items), absent) == (7, 14)
    assert {item.subset for item in items} == set(SUBSETS) and {item.item for item in items} == {"1"}


def test_sugarcrepe_names_the_file_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="add_att.json is missing"):
        sugarcrepe_items(tmp_path, tmp_path)
