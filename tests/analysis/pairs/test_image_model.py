"""The vision transformer of DINOScore."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, AutoModel

from hfcomp.analysis.pairs.image_model import ImageEmbedder
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.testing import write_tiny_dinov2
from tests import tiny

IMAGES = [tiny.image(seed, (40, 30)) for seed in range(5)]


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory):
    return write_tiny_dinov2(tmp_path_factory.mktemp("models") / "dinov2")


def test_vectors_are_the_class_tokens_of_the_model(dinov2):
    processor = AutoImageProcessor.from_pretrained(dinov2, trust_remote_code=False)
    model = AutoModel.from_pretrained(dinov2, trust_remote_code=False).eval()
    with torch.inference_mode():
        expected = model(**processor(IMAGES, return_tensors="pt")).pooler_output
    expected = torch.nn.functional.normalize(expected, dim=-1).numpy()
    found = ImageEmbedder(str(dinov2), batch_size=2, device="cpu").index_images([*IMAGES, None, IMAGES[1]])
    np.testing.assert_allclose(found.take(slice(0, 5)), expected, atol=2e-6)
    assert found.index.tolist() == [0, 1, 2, 3, 4, -1, 1] and found.computed == 5


def test_vectors_are_kept_for_later_runs(dinov2, tmp_path):
    first, second = (
        ImageEmbedder(str(dinov2), device="cpu", cache=EmbeddingCache(tmp_path / "cache")).index_images(images)
        for images in (IMAGES[:3], IMAGES)
    )
    assert (first.computed, second.computed) == (3, 2)
    np.testing.assert_array_equal(first.vectors, second.vectors[:3])
    stale = write_tiny_dinov2(tmp_path / "other")
    weights = torch.nn.init.normal_(torch.empty(1))
    model = AutoModel.from_pretrained(stale, trust_remote_code=False)
    with torch.no_grad():
        model.embeddings.cls_token += weights
    model.save_pretrained(stale)
    other = ImageEmbedder(str(stale), device="cpu", cache=EmbeddingCache(tmp_path / "cache"))
    assert other.index_images(IMAGES).computed == 5, "vectors of other weights are not its own"


def test_what_is_no_vision_transformer_is_refused(tmp_path, dinov2):
    with pytest.raises(ValueError, match="image_model: .* has no configuration or image processor"):
        ImageEmbedder(str(tmp_path), device="cpu")
    with pytest.raises(ValueError, match="column 'negative_image', row 1"):
        ImageEmbedder(str(dinov2), device="cpu").index_images([IMAGES[0], b"no image"], column="negative_image")
    with pytest.raises(ValueError, match="device: 'cuda:99' cannot be used here"):
        ImageEmbedder(str(dinov2), device="cuda:99")
