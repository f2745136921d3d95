"""Image-text matching of a tiny random BLIP."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import AutoProcessor, BlipForImageTextRetrieval

from hfcomp.evaluation.models import pair_model
from hfcomp.evaluation.pairs.models import BlipMatcher
from tests import tiny, tolerances
from tests.evaluation.pairs import readers
from tests.evaluation.pairs.asked import asked

TEXTS = ["a red cube on a blue ball", "a cone", "a white star"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return readers.blip(tmp_path_factory.mktemp("models") / "blip")


@pytest.fixture(scope="module")
def matcher(folder):
    return BlipMatcher(folder, device="cpu")


def tolerance(matcher):
    """Both logits are off by a product's error; a normed vector has length sqrt(hidden)."""
    longest = matcher.backbone.itm_head.weight.norm(dim=1).max().item() * math.sqrt(32)
    return 2 * longest * tolerances.network(layers=6)


def test_the_score_is_the_heads_probability_of_a_match(folder, matcher):
    assert pair_model(folder) is BlipMatcher and matcher.facts == {"score": "image-text matching"}
    model = BlipForImageTextRetrieval.from_pretrained(folder).eval()
    processor = AutoProcessor.from_pretrained(folder)
    images = [tiny.image(0), tiny.image(1)]
    shown = [images[0], images[0], images[1]]  # the first image is encoded once for two texts
    with torch.inference_mode():
        found = matcher.log_probabilities(shown, TEXTS)
        expected = [
            model(**processor(images=image, text=text, return_tensors="pt")).itm_score.log_softmax(-1)[0, 1]
            for image, text in zip(shown, TEXTS, strict=True)
        ]
    assert (found - torch.stack(expected)).abs().max().item() <= tolerance(matcher)
    assert torch.stack(expected).std().item() > 100 * tolerance(matcher)


def test_an_image_with_several_texts_is_encoded_once_a_batch(matcher, monkeypatch):
    seen, encode = [], matcher.backbone.vision_model.forward
    monkeypatch.setattr(
        matcher.backbone.vision_model, "forward", lambda pixels: (seen.append(len(pixels)), encode(pixels))[1]
    )
    matcher.score_pairs(asked([(number % 2, text) for number, text in enumerate(tiny.captions()[:24])]))
    assert seen == [2]


def test_long_texts_are_cut_and_counted(matcher):
    pairs = asked([(0, "a red cube " * 20), (0, "a cone")])
    scores = matcher.score_pairs(pairs)
    assert scores.truncated == 1 and np.isfinite(scores.values).all()
