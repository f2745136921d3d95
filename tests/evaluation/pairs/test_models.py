"""Models that score pairs: VQAScore and BLIP's matching."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from transformers import AutoProcessor, BlipForImageTextRetrieval, CLIPConfig, LlavaForConditionalGeneration

from hfcomp.evaluation.encoding.cache import EmbeddingCache, cached_models
from hfcomp.evaluation.models import pair_model
from hfcomp.evaluation.pairs.models import BlipMatcher, VQAScorer
from hfcomp.evaluation.pairs.options import PairOptions
from tests import tiny, tolerances
from tests.evaluation.pairs import readers
from tests.evaluation.pairs.asked import ask_pairs

TEXTS = ["a red cube", "a blue ball on a green ring, and a white star on a black cross", "a cone"]


@pytest.fixture(scope="module")
def folder(clip, tmp_path_factory):
    return readers.llava(tmp_path_factory.mktemp("models") / "llava", CLIPConfig.from_pretrained(clip).vision_config)


@pytest.fixture(scope="module")
def scorer(folder):
    return VQAScorer(folder, device="cpu")


def test_a_batch_for_an_encoder_and_decoder_is_as_one_by_one(tmp_path):
    scorer = VQAScorer(readers.blip2(tmp_path), device="cpu")
    assert scorer.facts["prompt"] == 'Does this figure show "{text}"? Please answer yes or no.'
    images = [tiny.image(number) for number in range(3)]
    with torch.inference_mode():
        batched = scorer.log_probabilities(images, TEXTS)
        single = torch.cat(
            [scorer.log_probabilities([image], [text]) for image, text in zip(images, TEXTS, strict=True)]
        )
    assert (batched - single).abs().max().item() <= readers.tolerance(scorer)
    assert single.std().item() > 100 * readers.tolerance(scorer)  # so that another pair's score would not pass


def test_pairs_are_scored_once_and_read_from_the_cache(folder, tmp_path):
    pairs = ask_pairs([(0, "a cone"), (1, "a cone"), (0, "a cone"), (0, "a ring")])
    first = VQAScorer(folder, device="cpu", cache=EmbeddingCache(tmp_path), batch_size=16)
    scores = first.score_pairs(pairs)
    assert (scores.computed, first.scored_pairs) == (3, 3)
    assert scores.values[0] == scores.values[2] and len(set(scores.values)) == 3
    again = VQAScorer(folder, device="cpu", cache=EmbeddingCache(tmp_path))
    stored = again.score_pairs(pairs)
    assert (stored.computed, again.scored_pairs) == (0, 0)
    np.testing.assert_array_equal(stored.values, scores.values)
    (listed,) = cached_models(tmp_path)
    assert (listed.kind, listed.entries) == ("pairs", 3)
    for options, computed in ((PairOptions(vqa_answer="no"), 3), (PairOptions(), 0)):
        again.ask(options)
        assert again.score_pairs(pairs).computed == computed


def test_a_module_is_scored_as_its_folder_is(folder, scorer):
    pairs = ask_pairs([(0, "a cone"), (1, "a ring")])
    module = LlavaForConditionalGeneration.from_pretrained(folder).train()
    own = VQAScorer(module, AutoProcessor.from_pretrained(folder))
    np.testing.assert_array_equal(own.score_pairs(pairs).values, scorer.score_pairs(pairs).values)
    assert module.training


def test_a_tokenizer_without_yes_is_refused(clip, tmp_path):
    vision = CLIPConfig.from_pretrained(clip).vision_config
    scorer = VQAScorer(readers.llava(tmp_path, vision, answer="Maybe"), device="cpu")
    with pytest.raises(ValueError, match="vqa_answer: found 'Yes'.*single token"):
        scorer.facts  # noqa: B018


def test_a_tokenizer_without_padding_pads_all_the_same(folder, scorer):
    processor = AutoProcessor.from_pretrained(folder)
    processor.tokenizer.pad_token = None
    own = VQAScorer(folder, processor, device="cpu")
    images = [tiny.image(number) for number in range(3)]
    with torch.inference_mode():
        scores, expected = (model.log_probabilities(images, TEXTS) for model in (own, scorer))
    assert (scores - expected).abs().max().item() <= readers.tolerance(scorer)
    assert processor.tokenizer.pad_token is None


def test_missing_weights_are_named(folder, tmp_path):
    model = LlavaForConditionalGeneration.from_pretrained(folder)
    state = {name: value for name, value in model.state_dict().items() if "lm_head" not in name}
    model.save_pretrained(tmp_path, state_dict=state)
    AutoProcessor.from_pretrained(folder).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"lack \['lm_head.weight'\]"):
        VQAScorer(tmp_path, device="cpu").backbone  # noqa: B018


def test_the_configuration_says_what_scores_a_model(folder, clip, siglip, tmp_path):
    assert pair_model(folder) is VQAScorer
    assert pair_model(clip) is None and pair_model(siglip) is None
    settings = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "architectures": None}))
    assert pair_model(tmp_path) is VQAScorer


BLIP_TEXTS = ["a red cube on a blue ball", "a cone", "a white star"]


@pytest.fixture(scope="module")
def folder_blip(tmp_path_factory):
    return readers.blip(tmp_path_factory.mktemp("models") / "blip")


@pytest.fixture(scope="module")
def matcher(folder_blip):
    return BlipMatcher(folder_blip, device="cpu")


def tolerance_blip(matcher):
    """Both logits are off by a product's error; a normed vector has length sqrt(hidden)."""
    longest = matcher.backbone.itm_head.weight.norm(dim=1).max().item() * math.sqrt(32)
    return 2 * longest * tolerances.network(layers=6)


def test_the_score_is_the_heads_probability_of_a_match(folder_blip, matcher):
    assert pair_model(folder_blip) is BlipMatcher and matcher.facts == {"score": "image-text matching"}
    model = BlipForImageTextRetrieval.from_pretrained(folder_blip).eval()
    processor = AutoProcessor.from_pretrained(folder_blip)
    images = [tiny.image(0), tiny.image(1)]
    shown = [images[0], images[0], images[1]]  # the first image is encoded once for two texts
    with torch.inference_mode():
        scores = matcher.log_probabilities(shown, BLIP_TEXTS)
        expected = [
            model(**processor(images=image, text=text, return_tensors="pt")).itm_score.log_softmax(-1)[0, 1]
            for image, text in zip(shown, BLIP_TEXTS, strict=True)
        ]
    assert (scores - torch.stack(expected)).abs().max().item() <= tolerance_blip(matcher)
    assert torch.stack(expected).std().item() > 100 * tolerance_blip(matcher)


def test_an_image_with_several_texts_is_encoded_once_a_batch(matcher, monkeypatch):
    seen, encode = [], matcher.backbone.vision_model.forward
    monkeypatch.setattr(
        matcher.backbone.vision_model, "forward", lambda pixels: (seen.append(len(pixels)), encode(pixels))[1]
    )
    matcher.score_pairs(ask_pairs([(number % 2, text) for number, text in enumerate(tiny.captions()[:24])]))
    assert seen == [2]


def test_long_texts_are_cut_and_counted(matcher):
    pairs = ask_pairs([(0, "a red cube " * 20), (0, "a cone")])
    scores = matcher.score_pairs(pairs)
    assert scores.truncated == 1 and np.isfinite(scores.values).all()
