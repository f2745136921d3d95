"""Models whose own forward pass scores pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    AutoProcessor,
    BertTokenizer,
    Blip2Config,
    Blip2ForImageTextRetrieval,
    Blip2Processor,
    FlavaConfig,
    FlavaForPreTraining,
    FlavaModel,
    ViltConfig,
    ViltForImageAndTextRetrieval,
    ViltProcessor,
)

from hfcomp import Embedder
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.models import open_encoders, pair_model
from hfcomp.evaluation.pairs.heads import Blip2Matcher, FlavaMatcher, ViltMatcher
from hfcomp.evaluation.pairs.options import PAPER
from hfcomp.modeling.image_processors import BlipImageProcessorPil, ViltImageProcessorPil
from tests import families, tiny
from tests.evaluation.pairs import readers

TEXTS = ["a red cube", "a blue ball on a green ring, and a white star on a black cross", "a cone"]
LAYER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SIDE = {"height": 32, "width": 32}


def tokenizer():
    return BertTokenizer().train_new_from_iterator(tiny.captions(), 300)


def blip2(folder, image_token_index=None):
    words = tokenizer()
    reader = {**LAYER, "vocab_size": len(words), "encoder_hidden_size": 32, "use_qformer_text_input": True}
    config = Blip2Config(
        vision_config={**LAYER, "image_size": 32, "patch_size": 8},
        qformer_config={**reader, "max_position_embeddings": 24},
        text_config={"model_type": "opt", "hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 8},
        num_query_tokens=3,
        image_token_index=image_token_index,
        image_text_hidden_size=16,
    )
    Blip2ForImageTextRetrieval(config).save_pretrained(folder)
    Blip2Processor(BlipImageProcessorPil(size=SIDE), words, num_query_tokens=3).save_pretrained(folder)


def vilt(folder):
    words = tokenizer()
    config = ViltConfig(**LAYER, vocab_size=len(words), max_position_embeddings=24, image_size=32, patch_size=8)
    readers.save(ViltForImageAndTextRetrieval(config), folder)
    ViltProcessor(ViltImageProcessorPil(size={"shortest_edge": 32}), words).save_pretrained(folder)


def flava(folder):
    families.write_family(folder, "flava")
    codebook = {"num_groups": 2, "num_blocks_per_group": 1, "hidden_size": 8, "vocab_size": 16}
    config = FlavaConfig.from_pretrained(folder, image_codebook_config=codebook)
    readers.save(FlavaForPreTraining(config), folder)


def blip2_of_today(folder):
    blip2(folder, image_token_index=5)


KINDS = {
    "blip2 with an image token": (blip2_of_today, Blip2Matcher, Blip2ForImageTextRetrieval),
    "blip2": (blip2, Blip2Matcher, Blip2ForImageTextRetrieval),
    "flava": (flava, FlavaMatcher, FlavaForPreTraining),
    "vilt": (vilt, ViltMatcher, ViltForImageAndTextRetrieval),
}


def by_hand(name, model, processor, image, text):
    """Scores a pair with the model's own forward pass."""
    inputs = processor(images=image, text=text, return_tensors="pt")
    with torch.inference_mode():
        if name == "vilt":
            return model(**inputs).logits.sigmoid().item()
        if name == "flava":  # nothing is masked
            inputs = {**inputs, "input_ids_masked": inputs["input_ids"], "return_loss": False}
            return model(**inputs).itm_logits.softmax(-1)[0, 1].item()
        if name == "blip2":  # without the token index, the model reads the text only
            inputs = {**inputs, **processor.tokenizer(text, return_tensors="pt", return_token_type_ids=False)}
        return model(**inputs, use_image_text_matching_head=True).logits_per_image.softmax(-1)[0, 1].item()


@pytest.mark.parametrize("name", KINDS)
def test_the_score_is_the_heads_probability_of_a_match(name, tmp_path):
    write, matcher, model = KINDS[name]
    torch.manual_seed(0)
    write(tmp_path)
    assert pair_model(tmp_path, by_head=True) is matcher
    images, scorer = [tiny.image(seed) for seed in (1, 1, 2)], matcher(tmp_path, device="cpu")
    loaded, processor = model.from_pretrained(tmp_path).eval(), AutoProcessor.from_pretrained(tmp_path)
    expected = [by_hand(name, loaded, processor, *pair) for pair in zip(images, TEXTS, strict=True)]
    scorer.backbone.eval()
    with torch.inference_mode():
        scores = scorer.log_probabilities(images, TEXTS).exp().numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert len(set(np.round(scores, 6))) == 3
    assert scorer.count_truncated([*TEXTS, "a red cube " * 20]) == 1


def test_a_checkpoint_of_flava_is_a_dual_encoder_unless_its_head_is_named(tmp_path):
    flava(tmp_path)
    processor = AutoProcessor.from_pretrained(tmp_path)
    modules = [(kind.from_pretrained(tmp_path), processor) for kind in (FlavaModel, FlavaForPreTraining)]
    settings = {"device": "cpu", "cache": EmbeddingCache(), "batch_size": 8, "split": False}
    encoders = open_encoders([tmp_path, tmp_path, *modules], [False, True, False, False], PAPER, **settings)
    assert [type(encoder) for encoder in encoders] == [Embedder, FlavaMatcher] * 2
    vectors = [encoder.texts(["a cone"]).vectors for encoder in encoders[::2]]
    np.testing.assert_allclose(*vectors)
