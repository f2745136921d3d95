"""Every family of dual encoders that the installed transformers has, through the embedder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoProcessor

from hfcomp import Embedder
from tests import families, tiny

TEXTS = ["a red cube on a blue ball", "a blue cube on a red ball", "a ring", "a red cube " * 30]
FIRST = ("flava",)  # features of all tokens, of which the first is the embedding


def images():
    rng = np.random.default_rng(0)
    sizes = ((40, 64), (64, 40), (tiny.IMAGE_SIZE, tiny.IMAGE_SIZE))
    return [families.Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in sizes]


@pytest.fixture(
    scope="module", params=[name for name in families.model_types() if name not in families.WITHOUT_EMBEDDINGS]
)
def family(request, tmp_path_factory):
    return request.param, families.write_family(tmp_path_factory.mktemp("families") / request.param, request.param)


def features(family, folder):
    """Embeds with the family's own class and processor, as its documentation does."""
    # With PyTorch's attention, AIMv2's text tower would be causal only if a text is padded.
    attention = "eager" if family == "aimv2" else None
    model = AutoModel.from_pretrained(folder, attn_implementation=attention).eval()
    processor = AutoProcessor.from_pretrained(folder)
    limit = processor.tokenizer.model_max_length
    with torch.inference_mode():
        image = [model.get_image_features(**processor.image_processor([x], return_tensors="pt")) for x in images()]
        text = []
        for words in TEXTS:
            padding = {"padding": "max_length"} if family in ("siglip", "siglip2") else {}
            inputs = processor.tokenizer(words, truncation=True, max_length=limit, return_tensors="pt", **padding)
            mask = {} if padding else {"attention_mask": inputs["attention_mask"]}
            text.append(model.get_text_features(input_ids=inputs["input_ids"], **mask))
    pooled = [
        [(x.pooler_output[:, 0] if family in FIRST else x.pooler_output) for x in part] for part in (image, text)
    ]
    return [torch.nn.functional.normalize(torch.cat(part), dim=-1).numpy() for part in pooled]


def test_embeddings_equal_the_models_own(family):
    name, folder = family
    image, text = features(name, folder)
    embedder = Embedder(folder)
    np.testing.assert_allclose(embedder.images(images()), image, atol=2e-6)
    np.testing.assert_allclose(embedder.texts(TEXTS).vectors, text, atol=2e-6)
