"""The default metrics of an evaluation, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import EvalPrediction

from hfcomp.trainers.hooks import embedding_metrics
from tests.metrics.scorers import unit


def of(*predictions) -> dict[str, float]:
    return embedding_metrics(EvalPrediction(predictions=predictions, label_ids=()))


def test_choices_by_hand():
    image = np.eye(4, dtype=np.float32)
    text = 0.5 * image
    negative = np.zeros((4, 2, 4), dtype=np.float32)
    mask = np.array([[True, True], [True, False], [True, False], [False, False]])
    negative[0, :, 0] = 0.4, 0.1  # right: both below 0.5
    negative[1, :, 1] = 0.6, 0.0  # wrong
    negative[2, :, 2] = 0.5, 0.9  # a tie; the masked one has no say
    negative[3, :, 3] = 0.9, 0.9  # no valid negative: takes no part
    metrics = of(image, text, negative, mask)
    assert metrics == pytest.approx(
        {
            "image_to_text_recall@1": 1.0,
            "text_to_image_recall@1": 1.0,
            "caption_choice": 1 / 3,
            "caption_choice_ties": 1 / 3,
        }
    )


def test_the_two_directions_are_not_mixed_up():
    image = np.eye(2, dtype=np.float32)
    text = np.array([[1.0, 0.0], [2.0, 1.0]])
    # image 0 scores both texts 1 and 2, image 1 prefers its own; text 1 prefers image 0
    assert of(image, text) == {"image_to_text_recall@1": 0.5, "text_to_image_recall@1": 0.5}
    text = np.array([[3.0, 0.0], [2.0, 1.0]])
    assert of(image, text) == {"image_to_text_recall@1": 1.0, "text_to_image_recall@1": 0.5}


@pytest.mark.parametrize(("sign", "expected"), [(1, 1.0), (-1, 0.0)])
def test_a_perfect_and_an_inverted_model(sign, expected):
    image, negative = unit(20, 8, seed=0), unit(20, 3, 8, seed=1)
    metrics = of(image, sign * image, sign * negative, np.ones((20, 3), dtype=bool))
    assert metrics["image_to_text_recall@1"] == metrics["caption_choice"] == expected


@pytest.mark.parametrize("captions", [1, 5])
def test_an_image_of_several_rows_is_right_for_all_its_captions(captions):
    """One row for each caption, as in COCO: the other rows of the image tie and are right as well."""
    image = np.repeat(unit(12, 8, seed=0), captions, axis=0)
    own = 0.9 * image + 0.1 * unit(len(image), 8, seed=1)
    expected = {"image_to_text_recall@1": 1.0, "text_to_image_recall@1": 1.0}
    assert of(image, own) == expected
    order = np.random.default_rng(0).permutation(len(image))
    assert of(image[order], own[order]) == expected
    # the same with texts that several images share
    assert of(own, image) == expected
    assert of(image, -own)["text_to_image_recall@1"] == 0.0


def test_an_image_of_several_rows_does_not_hide_a_mistake():
    image = np.eye(3, dtype=np.float32)[[0, 0, 1, 2]]
    text = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0.8, 0], [0.9, 0, 0.5]], dtype=np.float32)
    # the second caption of image 0 fits image 1, as does its own; that of image 2 fits image 0 better
    assert of(image, text) == {"text_to_image_recall@1": 0.5, "image_to_text_recall@1": 0.75}


def test_a_tower_that_tells_nothing_apart_gets_nothing():
    same, other = np.repeat(unit(1, 8, seed=0), 10, axis=0), unit(10, 8, seed=1)
    assert of(same, other)["text_to_image_recall@1"] == of(other, same)["image_to_text_recall@1"] == 0.0
    assert of(same, other)["image_to_text_recall@1"] == of(other, same)["text_to_image_recall@1"] == 0.1


def test_a_constant_model_gets_nothing():
    same = np.ones((6, 4), dtype=np.float32)
    metrics = of(same, same, np.ones((6, 1, 4), dtype=np.float32), np.ones((6, 1), dtype=bool))
    assert metrics["caption_choice"] == metrics["image_to_text_recall@1"] == 0.0
    assert metrics["caption_choice_ties"] == 1.0


def test_a_random_model_is_at_chance():
    image, text, negative = unit(4000, 8, seed=0), unit(4000, 8, seed=1), unit(4000, 1, 8, seed=2)
    metrics = of(image, text, negative, np.ones((4000, 1), dtype=bool))
    assert abs(metrics["caption_choice"] - 0.5) < 4 * 0.5 / 4000**0.5
    assert metrics["image_to_text_recall@1"] < 0.005
