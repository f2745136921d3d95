"""Embeddings equal the plain model's own, whatever the batch and the order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModel, AutoProcessor

from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.evaluation.cells import Crop, Fitted, Inset
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from tests import tiny, tolerances

TEXTS = ["a red cube on a blue ball", "a green cone on a white ring with a black star", "a red cube on a blue ball"]


@pytest.fixture(scope="module", params=["clip", "metaclip2", "siglip", "siglip2"])
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
    np.testing.assert_allclose(embedder.images(images), expected.image_embeds, atol=tolerances.embedding())
    np.testing.assert_allclose(embedder.texts(TEXTS).vectors, expected.text_embeds, atol=tolerances.embedding())


def test_equal_texts_get_equal_embeddings_to_the_last_bit(folder):
    vectors = Embedder(folder, batch_size=2, device="cpu").texts(TEXTS).vectors
    assert (vectors[0] == vectors[2]).all()


def test_texts_of_equal_tokens_are_one_text_and_tie(clip):
    """Upper case and white space are nothing to CLIP; in other batches such texts differed in the last bits."""
    plain = tiny.captions()[:30]
    loud = [f" {text.upper()}  " for text in plain]
    embedder = Embedder(clip, batch_size=4, device="cpu", cache=EmbeddingCache())
    embeddings = embedder.index_texts([*plain, *loud, f"{plain[0]}&#32;"])
    vectors = embeddings.take(slice(None))
    assert (vectors[:30] == vectors[30:60]).all() and (vectors[0] == vectors[60]).all()
    assert embedder.encoded_texts == len(embeddings.vectors) == 30
    embedder.texts(loud)
    assert embedder.encoded_texts == 30


def test_texts_that_are_cut_to_the_same_tokens_are_counted_one_by_one(clip):
    long = " and ".join([TEXTS[1]] * 9)
    embeddings = Embedder(clip, device="cpu").index_texts([f"{long} one", f"{long} two", f"{long} two", TEXTS[0]])
    assert len(embeddings.vectors) == 2 and embeddings.flagged == 2


def test_each_text_is_tokenized_once(clip, monkeypatch):
    embedder, seen = Embedder(clip, device="cpu"), []
    tokenize = TextTokenizer.__call__
    monkeypatch.setattr(TextTokenizer, "__call__", lambda self, texts: seen.extend(texts) or tokenize(self, texts))
    embedder.texts(TEXTS)
    assert sorted(seen) == sorted(set(TEXTS))


def test_a_whole_image_in_a_square_is_another_image(clip):
    picture = tiny.image(0, (64, 32))
    vectors = Embedder(clip, device="cpu").images(
        [picture, Fitted(picture, 64), Fitted(picture, 32), Fitted(picture, 64)]
    )
    assert (vectors[1] == vectors[3]).all() and not np.allclose(vectors[0], vectors[1], atol=1e-3)
    assert not np.allclose(vectors[1], vectors[2], atol=1e-6)


def test_an_image_without_its_edges_is_what_was_inside(clip):
    picture = tiny.image(0, (64, 32))
    inside = picture.crop((2, 2, 62, 30))
    vectors = Embedder(clip, device="cpu").images([picture, Inset(picture, 2), inside, Inset(picture, 3)])
    np.testing.assert_allclose(vectors[1], vectors[2], atol=tolerances.embedding())
    assert not np.allclose(vectors[0], vectors[1], atol=1e-4) and not np.allclose(vectors[1], vectors[3], atol=1e-4)


def test_equal_images_are_encoded_once_whatever_holds_them(folder, tmp_path):
    embedder = Embedder(folder, batch_size=2, device="cpu")
    pictures = [tiny.image(seed, (40, 50)) for seed in range(3)]
    path, copy = tmp_path / "a.png", tmp_path / "b.png"
    for file in (path, copy):
        pictures[0].save(file)
    content = path.read_bytes()
    files = [path, str(copy), content, {"bytes": content, "path": None}, {"bytes": None, "path": str(path)}]
    files += [bytearray(content)]
    pixels = [pictures[0].copy(), np.asarray(pictures[0])]
    expected = embedder.images(pictures)
    assert embedder.encoded_images == 3
    vectors = embedder.images([pictures[1], *files, *pixels, pictures[2], pictures[1]])
    assert embedder.encoded_images == 3 + 4  # the file and its pixels are not known to be the same before decoding
    assert (
        (vectors[1:7] == vectors[1]).all() and (vectors[7] == vectors[8]).all() and (vectors[10] == vectors[0]).all()
    )
    np.testing.assert_allclose(vectors[[1, 7, 0, 9]], expected[[0, 0, 1, 2]], atol=tolerances.embedding())


def test_a_column_of_a_data_set_will_do(clip):
    embedder = Embedder(clip, batch_size=4, device="cpu")
    rows = tiny.pairs(6)
    assert len(embedder.images(rows["image"])) == 6
    embedder.images([image for image in rows["image"] for _ in range(5)])
    assert embedder.encoded_images == 6 + 6


def test_a_part_of_an_image_is_another_image(clip):
    embedder, picture = Embedder(clip, device="cpu"), tiny.image(0, (64, 64))
    box = (0, 16, 32, 48)
    vectors = embedder.images([picture, Crop(picture, box), Crop(picture, (0, 0, 64, 64)), picture.crop(box)])
    assert not np.allclose(vectors[0], vectors[1])
    np.testing.assert_allclose(vectors[[1, 0]], vectors[[3, 2]], atol=tolerances.embedding())


def test_missing_images_have_no_vector(clip):
    embeddings = Embedder(clip, device="cpu").index_images([None, tiny.image(0), {"bytes": None, "path": None}])
    assert embeddings.index.tolist() == [-1, 0, -1] and len(embeddings.vectors) == 1
    with pytest.raises(ValueError, match="'image', row 1 .*empty"):
        Embedder(clip, device="cpu").images([tiny.image(0), None])


def test_tiny_images_are_counted(clip):
    assert Embedder(clip, device="cpu").index_images([tiny.image(0, (1, 1)), tiny.image(0)]).flagged == 1


def test_no_images_and_no_texts_give_empty_embeddings(folder):
    embedder = Embedder(folder, device="cpu")
    width = embedder.texts(TEXTS).vectors.shape[1]
    assert embedder.images([]).shape == embedder.texts([]).vectors.shape == (0, width)
    assert embedder.images([tiny.image(0)]).shape == (1, width)
    assert embedder.texts([]).truncated == 0


def test_one_text_or_image_instead_of_a_list_is_refused(clip):
    embedder = Embedder(clip, device="cpu")
    with pytest.raises(TypeError, match=r"'a red cube'.*\['a red cube'\]"):
        embedder.texts("a red cube")
    with pytest.raises(TypeError, match="texts, entry 1: found None"):
        embedder.texts(["a red cube", None])
    for image in ("a.jpg", b"", tiny.image(0)):
        with pytest.raises(TypeError, match=r"images: found one .*\[image\]"):
            embedder.images(image)


def test_an_image_that_cannot_be_read_is_named_by_its_row(clip):
    with pytest.raises(ValueError, match="'photo', row 2 .*supported"):
        Embedder(clip, device="cpu").images([tiny.image(0), tiny.image(0), b"none"], column="photo")


def test_a_module_keeps_its_modes_and_its_place(clip):
    model = AutoModel.from_pretrained(clip).train()
    model.vision_model.eval()
    modes = [part.training for part in model.modules()]
    embedder = Embedder(model)
    assert embedder.backbone is model and embedder.device == model.device
    outputs = embedder.images([tiny.image(0)]), embedder.texts(TEXTS).vectors
    assert [part.training for part in model.modules()] == modes
    with pytest.raises(ValueError, match="row 0"):
        embedder.images([b"none"])
    assert [part.training for part in model.modules()] == modes
    plain = Embedder(clip, device="cpu")
    assert (outputs[0] == plain.images([tiny.image(0)])).all() and (outputs[1] == plain.texts(TEXTS).vectors).all()


def test_a_module_is_copied_to_another_device(clip):
    model = AutoModel.from_pretrained(clip)
    embedder = Embedder(model, device="meta")
    assert model.device == torch.device("cpu") and embedder.backbone.device == torch.device("meta")


def test_a_module_without_a_processor_says_how_to_pass_one(clip):
    model = AutoModel.from_pretrained(clip)
    nameless = AutoModel.from_config(model.config)
    nameless.name_or_path = nameless.config._name_or_path = ""
    with pytest.raises(ValueError, match="no name_or_path.*processor=AutoProcessor"):
        Embedder(nameless)
    nameless.name_or_path = "no/such/folder/anywhere"
    with pytest.raises(ValueError, match="'no/such/folder/anywhere', .*processor=AutoProcessor"):
        Embedder(nameless)
    assert Embedder(nameless, AutoProcessor.from_pretrained(clip)).texts(TEXTS).vectors.shape[0] == 3


def test_truncated_texts_are_counted(folder):
    embeddings = Embedder(folder, device="cpu").texts([TEXTS[0], " and ".join([TEXTS[1]] * 9)])
    assert embeddings.truncated == 1


def test_texts_that_are_equal_only_once_they_are_cut_are_counted(folder):
    long = " and ".join([TEXTS[1]] * 9)
    embedder = Embedder(folder, device="cpu")
    embeddings = embedder.texts(
        [long, f"{long} here", f"{long} there", f"{TEXTS[0]} {long}", TEXTS[0], TEXTS[0].upper()]
    )
    assert (embeddings.truncated, embeddings.merged) == (4, 2)
    assert (embeddings.vectors[0] == embeddings.vectors[1]).all() and (
        embeddings.vectors[0] == embeddings.vectors[2]
    ).all()
    assert embedder.texts([TEXTS[0], TEXTS[0].upper(), long]).merged == 0


def test_an_adapter_is_its_base_with_the_adapter_whether_or_not_it_brings_a_processor(clip, tmp_path):
    base = AutoModel.from_pretrained(clip)
    torch.manual_seed(0)
    settings = LoraConfig(target_modules=["q_proj", "v_proj"], r=2, init_lora_weights=False)
    adapted = get_peft_model(base, settings)
    adapted.save_pretrained(tmp_path / "adapter")
    merged = adapted.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    AutoProcessor.from_pretrained(clip).save_pretrained(tmp_path / "merged")
    pictures = [tiny.image(seed) for seed in range(3)]
    with pytest.raises((OSError, ValueError)):
        AutoProcessor.from_pretrained(tmp_path / "adapter")
    one = Embedder(tmp_path / "adapter", device="cpu", cache=EmbeddingCache(tmp_path / "cache"))
    two = Embedder(tmp_path / "merged", device="cpu", cache=EmbeddingCache(tmp_path / "cache"))
    plain = Embedder(clip, device="cpu", cache=EmbeddingCache(tmp_path / "cache"))
    np.testing.assert_allclose(one.images(pictures), two.images(pictures), atol=tolerances.embedding())
    np.testing.assert_allclose(one.texts(TEXTS).vectors, two.texts(TEXTS).vectors, atol=tolerances.embedding())
    assert not np.allclose(plain.texts(TEXTS).vectors, one.texts(TEXTS).vectors, atol=1e-4)
