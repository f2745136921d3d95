from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoProcessor, CLIPModel, CLIPProcessor

from hfcomp.sandbox import sandbox_clip_config, sandbox_processor, training_set
from hfcomp.sandbox.captions import PREFIXES, draw_caption, paraphrase, words
from hfcomp.sandbox.negatives import applicable_kinds, draw_negative
from hfcomp.sandbox.processor import MAX_TOKENS
from tests import tolerances

from .drawn import EVERYTHING, draw_scenes

# Of "a red star left of a blue ring". A saved model is useless under other ids: a word more or less changes them.
IDS = [730, 320, 560, 714, 673, 686, 320, 613, 707, 731]


@pytest.fixture(scope="module")
def processor():
    return sandbox_processor()


@pytest.fixture(scope="module")
def rows():
    return training_set(50, 0)[:]


def test_every_word_is_one_token(processor):
    tokenizer = processor.tokenizer
    for word in words():
        start, token, end = tokenizer(word).input_ids
        assert (start, end) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
        assert tokenizer.convert_ids_to_tokens(token) == word + "</w>"


def test_captions_decode_to_themselves_and_fit(processor, rows):
    for caption in [*rows["caption"], *rows["generalized_caption"]]:
        ids = processor.tokenizer(caption).input_ids
        assert processor.tokenizer.decode(ids, skip_special_tokens=True).strip() == caption
        assert len(ids) == len(caption.split()) + 2 <= processor.tokenizer.model_max_length


def longest_texts():
    """What the grammar says at most, with every word said, in each wording and in general words."""
    generator, scenes = np.random.default_rng(0), draw_scenes(0, 300)
    for scene in scenes:
        caption = draw_caption(generator, scene, **EVERYTHING)
        for worded in (caption, paraphrase(generator, caption)):
            for prefix in PREFIXES:
                yield replace(worded, prefix=prefix).text(scene)
                yield replace(worded, prefix=prefix).generalized_text(scene)
        if "add_obj" in applicable_kinds(scene, caption):
            negative = draw_negative(generator, scene, caption, "add_obj")
            yield negative.caption.text(negative.scene)


def test_longest_text_of_the_grammar_fits(processor):
    longest = max(set(longest_texts()), key=lambda text: len(text.split()))
    assert len(longest.split()) > 30
    assert len(processor.tokenizer(longest, truncation=False).input_ids) <= MAX_TOKENS
    assert processor.tokenizer.model_max_length == MAX_TOKENS
    assert sandbox_clip_config().text_config.max_position_embeddings == MAX_TOKENS


def test_other_text_falls_apart_without_unknown_tokens(processor):
    tokenizer = processor.tokenizer
    ids = tokenizer("two Zebras, één?").input_ids
    assert ids.count(tokenizer.eos_token_id) == 1
    assert tokenizer.decode(ids, skip_special_tokens=True).replace(" ", "") == "twozebras,één?"


def test_special_tokens(processor):
    tokenizer = processor.tokenizer
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|startoftext|>", "<|endoftext|>")
    assert tokenizer.eos_token_id == len(tokenizer) - 1
    assert tokenizer(["a red ring", "a"], padding=True).input_ids[1][-3:] == [tokenizer.eos_token_id] * 3


def test_pixels_are_centered_at_sixty(processor, rows):
    pixels = processor.image_processor(rows["image"], return_tensors="pt")["pixel_values"]
    values = torch.stack([torch.tensor(np.array(image)) for image in rows["image"]]).permute(0, 3, 1, 2)
    torch.testing.assert_close(pixels, (values.float() - 60) / 60)


def test_other_image_sizes_are_brought_to_the_model_s(processor):
    image = Image.new("RGB", (100, 50))
    assert processor.image_processor(image, return_tensors="pt")["pixel_values"].shape == (1, 3, 36, 36)


@pytest.mark.parametrize("cls", [CLIPProcessor, AutoProcessor])
def test_round_trip(processor, rows, tmp_path, cls):
    processor.save_pretrained(tmp_path)
    loaded = cls.from_pretrained(tmp_path)
    arguments = {"text": rows["caption"], "images": rows["image"], "padding": True, "return_tensors": "pt"}
    expected, actual = processor(**arguments), loaded(**arguments)
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[key], actual[key]) for key in expected)
    assert isinstance(loaded, CLIPProcessor)
    assert loaded.tokenizer.model_max_length == processor.tokenizer.model_max_length
    assert loaded.tokenizer.get_vocab() == processor.tokenizer.get_vocab()


def test_ids_are_the_same_in_every_process(processor):
    assert sandbox_processor().tokenizer.get_vocab() == processor.tokenizer.get_vocab()
    assert processor.tokenizer("a red star left of a blue ring").input_ids == IDS


def test_model_reads_what_the_processor_gives(processor, rows, tmp_path):
    torch.manual_seed(0)
    config = sandbox_clip_config(processor.tokenizer)
    assert config.text_config.eos_token_id == processor.tokenizer.eos_token_id != 2
    model = CLIPModel(config).eval()
    assert sum(parameter.numel() for parameter in model.parameters()) < 700_000
    assert model.logit_scale.exp().item() == pytest.approx(14.3)
    inputs = processor(text=rows["caption"], images=rows["image"], padding=True, return_tensors="pt")
    with torch.no_grad():
        together = model(**inputs).text_embeds[0]
        alone = model(
            **processor(text=rows["caption"][:1], images=rows["image"][:1], return_tensors="pt")
        ).text_embeds[0]
    torch.testing.assert_close(together, alone, atol=tolerances.embedding(), rtol=0)
    model.save_pretrained(tmp_path)
    _, report = CLIPModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]


def test_default_configuration_fits_the_default_tokenizer(processor):
    assert sandbox_clip_config().to_dict() == sandbox_clip_config(processor.tokenizer).to_dict()
