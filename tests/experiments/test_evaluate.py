"""Evaluation on a set of the user's own: items by image, the first negative that exists, missing splits told early."""

from __future__ import annotations

import datasets
import numpy as np
import pytest

from hfcomp.evaluation.embed import Embedder
from hfcomp.experiments.evaluate import prepare_evaluation
from hfcomp.experiments.recipes import ExperimentConfig
from tests import tiny


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("own")
    rows = tiny.pairs(9)
    rows = rows.map(lambda row, index: {"image_id": f"image-{index // 3}"}, with_indices=True)
    datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(folder)
    return str(folder)


def evaluation(source: str, **changes):
    config = ExperimentConfig(objective="x:y", method="m", dataset=source, batch_size=2, evaluation="own", **changes)
    told: list[str] = []
    return prepare_evaluation(config, column_names=None, seed=0, tell=told.append), told


def test_retrieval_and_choice_of_the_held_out_split(source, clip):
    evaluate, told = evaluation(source)
    items = evaluate(Embedder(clip, device="cpu"))
    assert set(items["metric"]) == {"caption choice", "text-to-image recall@1", "image-to-text recall@1"}
    assert items.groupby("metric").size().tolist() == [9, 9, 9]
    assert set(items["image_id"]) == {"image-0", "image-1", "image-2"}
    assert told == [f"evaluation: 9 rows of {source} (test), 9 with a negative"]


def test_the_values_are_those_of_the_scores(source, clip):
    evaluate, _ = evaluation(source)
    items = evaluate(Embedder(clip, device="cpu")).set_index(["metric", "item"])["value"]
    rows, embedder = tiny.pairs(9), Embedder(clip, device="cpu")
    image, text = embedder.images(rows["image"][:]), embedder.texts(rows["caption"][:]).vectors
    negative = embedder.texts([texts[0] for texts in rows["negative_captions"]]).vectors
    for index in range(9):
        right, wrong = image[index] @ text[index], image[index] @ negative[index]
        assert items["caption choice", str(index)] == float(right > wrong)
        assert items["image-to-text recall@1", str(index)] == float(np.argmax(text @ image[index]) == index)


def test_a_missing_split_is_told_before_anything_is_trained(source):
    with pytest.raises(ValueError, match="has no split 'validation'; it has: train, test"):
        evaluation(source, evaluation_split="validation")
