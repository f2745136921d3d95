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
