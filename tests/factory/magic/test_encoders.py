"""Encoders of names: captions, models of sentence-transformers, text towers and a server (about 8 s)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from threadpoolctl import threadpool_limits
from transformers import BertConfig, BertModel, BertTokenizer

from hfcomp import Embedder
from hfcomp.factory.magic import encoders
from hfcomp.factory.magic.encoders import CaptionsEncoder, SentenceEncoder, TextTower, open_encoder
from hfcomp.factory.magic.options import DEFAULT_ENCODER
from tests.factory.writers.endpoint import serving
from tests.factory.writers.test_embeddings import embeds, numbers
from tests.real_models import sentence_encoder as sentence_encoder

CAPTIONS = {
    "dog": ["a brown dog in a park", "a dog with a ball"],
    "puppy": ["a brown puppy in a park", "a dog with a ball"],
    "sofa": ["a red sofa by the wall", "couch with cushions"],
    "empty": ["12 34"],
}


def test_concepts_of_like_captions_are_similar():
    names = list(CAPTIONS)
    vectors = CaptionsEncoder(CAPTIONS.__getitem__).encode(names)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 0], atol=1e-6)
    cosines = vectors @ vectors.T
    assert cosines[0, 1] > 0.5 > cosines[0, 2]
    np.testing.assert_array_equal(vectors, CaptionsEncoder(CAPTIONS.__getitem__).encode(names))


def test_the_number_of_threads_moves_no_bit():
    """With 2 threads, BLAS adds up in another order at this size."""
    rng, names = np.random.default_rng(0), [f"n{number:04}" for number in range(2_000)]
    captions = {
        name: " ".join(f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in rng.zipf(1.4, 200) % 676) for name in names
    }
    vectors = []
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            vectors.append(CaptionsEncoder(lambda name: [captions[name]]).encode(names))
    np.testing.assert_array_equal(*vectors)


@pytest.mark.parametrize("names", [["dog"], ["dog", "sofa"], ["empty"], ["empty", "empty"], ["dog", "dog"]])
def test_few_concepts_and_words(names):
    vectors = CaptionsEncoder(CAPTIONS.__getitem__).encode(names)
    assert len(vectors) == len(names) and np.isfinite(vectors).all()


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A random model in the layout of sentence-transformers' repositories."""
    folder = tmp_path_factory.mktemp("model")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "cat", "party"]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertModel(config).save_pretrained(folder)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def test_a_sentence_encoder_gives_unit_vectors_and_its_identity(model):
    pytest.importorskip("sentence_transformers")
    encoder = SentenceEncoder(str(model), "cpu")
    assert str(model.parent) not in encoder.facts()["encoder"]
    vectors = encoder.encode(["dog", "cat party", "dog"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert vectors.dtype == np.float32 and vectors.shape == (3, 16)


def test_the_default_encoder(sentence_encoder, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert sentence_encoder == DEFAULT_ENCODER
    encoder = SentenceEncoder(DEFAULT_ENCODER, "cpu")
    party, celebration, station = encoder.encode(["birthday party", "celebration", "train station"])
    assert party @ celebration > 0.5 > 0.3 > party @ station
    assert encoder.facts()["encoder"].startswith(DEFAULT_ENCODER)


def test_what_is_missing_is_said(monkeypatch):
    with pytest.raises(OSError, match="is not a folder"):
        SentenceEncoder("./nowhere").facts()
    monkeypatch.setattr(encoders, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"hfcomp\[magic\].*--encoder captions"):
        SentenceEncoder("any")


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_the_text_tower_of_a_dual_encoder_reads_names(kind, request):
    place = str(request.getfixturevalue(kind))
    encoder = open_encoder(place, device="cpu", server={}, log=print)
    assert isinstance(encoder, TextTower) and encoder.facts()["tower"] == "text"
    vectors = encoder.encode(["dog", "cat party", "dog"])
    np.testing.assert_array_equal(vectors[0], vectors[2])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(vectors, Embedder(place, device="cpu").texts(["dog", "cat party", "dog"]).vectors)


def test_a_model_is_recognized_by_its_files(model, clip, tmp_path):
    assert isinstance(open_encoder(str(model), server={}, log=print), SentenceEncoder)
    copy = tmp_path / "clip"
    shutil.copytree(clip, copy)
    (copy / "modules.json").write_text((model / "modules.json").read_text())  # as `hfcomp train` writes it too
    assert isinstance(open_encoder(str(copy), server={}, log=print), TextTower)
    with pytest.raises(OSError, match="is not a folder"):
        open_encoder("./nowhere", server={}, log=print).facts()


def test_a_server_gives_unit_vectors_and_its_address_is_no_fact(tmp_path):
    pytest.importorskip("openai")
    lines: list[str] = []
    with serving(embeds) as server:
        settings = {"base_url": server.base_url, "answer_cache": str(tmp_path)}
        encoder = open_encoder("endpoint:m", server=settings, log=lines.append)
        vectors = encoder.encode(["a", "bb", "a"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(vectors[1] * np.linalg.norm(numbers("bb")), numbers("bb"), rtol=1e-6)
    assert encoder.facts() == {"encoder": "endpoint:m"}
    assert lines == ["embeddings of 3 numbers; answers from the model: 2"]
