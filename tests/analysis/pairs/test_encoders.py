"""BERTScore against the authors' library, its files and layers; the vision transformer of DINOScore."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, AutoModel

from hfcomp.analysis.pairs import encoders
from hfcomp.analysis.pairs.encoders import BertScore, ImageEmbedder, Tokens, greedy_f1, read_baseline
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.testing import write_tiny_dinov2
from tests import tiny
from tests.analysis.pairs import models

TEXTS = tiny.captions()[::97]
FIRST = [*TEXTS, "a red", "a red cube", ""]
SECOND = [*TEXTS[1:], TEXTS[0], "a red cube on a blue ball", "", ""]
IMAGES = [tiny.image(seed, (40, 30)) for seed in range(5)]


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    return models.roberta(tmp_path_factory.mktemp("models") / "roberta")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return models.bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.mark.parametrize("layer", [0, 2, 3])
@pytest.mark.parametrize("name", ["roberta", "bert"])
def test_scores_are_those_of_the_library(name, layer, request, monkeypatch):
    library = pytest.importorskip("bert_score")
    folder = request.getfixturevalue(name)
    # transformers 5 ignores the blank that the library asks for before a text, and has no such way to an empty text
    blank = " " if name == "roberta" else ""
    encode = lambda tokenizer, text: tokenizer.encode(blank + text.strip())  # noqa: E731
    monkeypatch.setattr("bert_score.utils.sent_encode", encode)
    written = sum(bool(first and second) for first, second in zip(FIRST, SECOND, strict=True))
    *_, expected = library.score(
        FIRST[:written], SECOND[:written], model_type=str(folder), num_layers=layer, device="cpu", batch_size=7
    )
    score = BertScore(str(folder), layer=layer, batch_size=5, device="cpu")
    np.testing.assert_allclose(score(FIRST, SECOND)[:written], expected, atol=2e-6)


def test_order_batches_and_empty_texts_change_nothing(roberta):
    score = BertScore(str(roberta), device="cpu", batch_size=64)
    whole = score(FIRST, SECOND)
    assert score.layer == models.LAYERS and score.baseline is None
    np.testing.assert_allclose(score(SECOND, FIRST), whole, atol=2e-6)
    score.batch_size = 1
    np.testing.assert_allclose(score(FIRST, SECOND), whole, atol=2e-6)
    assert list(whole[-2:]) == [0, 0]
    np.testing.assert_allclose(score(TEXTS, TEXTS), 1, atol=2e-6)


def test_a_long_text_is_cut_to_the_model(roberta):
    long = " ".join(["red"] * 500)
    score = BertScore(str(roberta), device="cpu")
    assert np.isfinite(score([long], ["a red cube"])).all() and score.truncated == 1
    np.testing.assert_allclose(score([long], [f"{long} cube"]), 1, atol=2e-6)


def test_a_baseline_rescales(roberta, tmp_path):
    file = tmp_path / "roberta.tsv"
    file.write_text("LAYER,P,R,F\n2,0.1,0.2,0.5\n3,0.1,0.2,0.75\n")
    plain = BertScore(str(roberta), device="cpu")(FIRST, SECOND)
    rescaled = BertScore(str(roberta), device="cpu", baseline=file)(FIRST, SECOND)
    np.testing.assert_allclose(rescaled, (plain - 0.75) / 0.25)
    for text, match in (
        ("LAYER,P,R,F\n1,0,0,0\n", "no row for layer 3"),
        ("a,b\n1,2\n", r"found the columns \['a', 'b'\]"),
        ("", r"found the columns \[\]"),
        ("LAYER,P,R,F\n3,0,0,much\n", "LAYER 3: .*'much'"),
        ("LAYER,P,R,F\n3,0,0,1\n", "expected a number below 1"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=match):
            read_baseline(file, 3)


def test_known_models_have_the_authors_layer_and_baseline(tmp_path, monkeypatch):
    monkeypatch.setattr(encoders, "KNOWN", {"known": (2, 0.5)})
    folder = str(models.roberta(tmp_path / "known"))
    scorer = BertScore(folder, device="cpu")
    assert (scorer.layer, scorer.baseline) == (2, 0.5)
    assert BertScore(folder, device="cpu", layer=3).baseline is None, "the baseline is of another layer"
    with pytest.raises(ValueError, match="text_layer: found 4,.*known.* 0 to 3"):
        BertScore(folder, device="cpu", layer=4)


def test_the_shipped_numbers_are_the_librarys():
    """What is in its files; the paper's numbers are of roberta-large."""
    library = pytest.importorskip("bert_score")
    from pathlib import Path

    folder = Path(library.__file__).parent / "rescale_baseline" / "en"
    for name, (layer, baseline) in encoders.KNOWN.items():
        assert library.utils.model2layers[name] == layer
        assert read_baseline(folder / f"{name}.tsv", layer) == baseline


def test_greedy_matching_by_hand():
    """Two words against one: each takes its best, ends of texts do not count."""
    east, north = torch.eye(2)
    first = Tokens(
        torch.stack([east, east, north])[None], torch.ones(1, 3).bool(), torch.tensor([[False, True, True]])
    )
    second = Tokens(east[None, None], torch.ones(1, 1).bool(), torch.ones(1, 1).bool())
    precision, recall = 1 / 2, 1
    assert greedy_f1(first, second).item() == pytest.approx(2 * precision * recall / (precision + recall))


def test_models_that_do_not_load_are_named(tmp_path, clip):
    with pytest.raises(ValueError, match=r"text_model: .*nothing: no such folder"):
        BertScore(str(tmp_path / "nothing"), device="cpu")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="text_model: .*empty .*loaded"):
        BertScore(str(tmp_path / "empty"), device="cpu")
    folder = models.bert(tmp_path / "bert")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match="weights .*damaged"):
        BertScore(str(folder), device="cpu")


def test_made_up_weights_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = models.bert(tmp_path / "bert")
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if "layer.1." not in name and "pooler" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks \d+ weights.*\['encoder.layer.1"):
        BertScore(str(folder), device="cpu")


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory):
    return write_tiny_dinov2(tmp_path_factory.mktemp("models") / "dinov2")


def test_vectors_are_the_class_tokens_of_the_model(dinov2):
    processor = AutoImageProcessor.from_pretrained(dinov2, trust_remote_code=False)
    model = AutoModel.from_pretrained(dinov2, trust_remote_code=False).eval()
    with torch.inference_mode():
        expected = model(**processor(IMAGES, return_tensors="pt")).pooler_output
    expected = torch.nn.functional.normalize(expected, dim=-1).numpy()
    embeddings = ImageEmbedder(str(dinov2), batch_size=2, device="cpu").index_images([*IMAGES, None, IMAGES[1]])
    np.testing.assert_allclose(embeddings.take(slice(0, 5)), expected, atol=2e-6)
    assert embeddings.index.tolist() == [0, 1, 2, 3, 4, -1, 1] and embeddings.computed == 5


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
    with pytest.raises(ValueError, match="image_model: .* image processor"):
        ImageEmbedder(str(tmp_path), device="cpu")
    with pytest.raises(ValueError, match="column 'negative_image', row 1"):
        ImageEmbedder(str(dinov2), device="cpu").index_images([IMAGES[0], b"no image"], column="negative_image")
    with pytest.raises(ValueError, match="device: 'cuda:99'"):
        ImageEmbedder(str(dinov2), device="cuda:99")
