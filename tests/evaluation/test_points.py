"""Points between two models, scored together: as each alone, with every image decoded and text tokenized once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from transformers import AutoProcessor

from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.evaluation.benchmarks.composition.sugarcrepe import SUGARCREPE
from hfcomp.evaluation.benchmarks.sandbox import sandbox_benchmarks
from hfcomp.evaluation.encoding import embed
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.points import PointsEmbedder, point_name
from hfcomp.evaluation.spec import Folders
from hfcomp.modeling.interpolation import load_interpolation
from tests import tiny
from tests.evaluation import small_sugarcrepe

ALPHAS = (0.0, 0.4, 1.0)


@pytest.fixture(scope="module")
def tuned_model(tmp_path_factory):
    return tiny.clip(tmp_path_factory.mktemp("tuned"), seed=1)


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory):
    instance = Evaluator(print)
    instance.load([SUGARCREPE], Folders(small_sugarcrepe.write(tmp_path_factory.mktemp("sugarcrepe"))))
    instance.load(
        [
            benchmark
            for benchmark in sandbox_benchmarks(6)
            if benchmark.name in ("sandbox_retrieval", "sandbox_zero_shot")
        ]
    )
    return instance


@pytest.fixture
def embedder(clip, tuned_model):
    return PointsEmbedder(
        load_interpolation(clip, tuned_model), ALPHAS, AutoProcessor.from_pretrained(tuned_model), device="cpu"
    )


def test_a_point_scores_as_the_model_that_is_saved_of_it(clip, tuned_model, evaluator, embedder, tmp_path):
    scores = embedder.score(evaluator)
    load_interpolation(clip, tuned_model).save(tmp_path / "point", 0.4)
    AutoProcessor.from_pretrained(tuned_model).save_pretrained(tmp_path / "point")
    alone = {0.0: clip, 0.4: tmp_path / "point", 1.0: tuned_model}
    tables = {alpha: evaluator(embed.Embedder(place, device="cpu")) for alpha, place in alone.items()}
    for alpha, expected in tables.items():
        own = scores[scores["arm"] == point_name(alpha)].drop(columns="arm").reset_index(drop=True)
        assert own.equals(expected)
    assert not tables[0.0]["value"].equals(tables[1.0]["value"])


def test_images_are_decoded_and_texts_tokenized_once_for_all_points(evaluator, embedder, monkeypatch):
    decoded, tokenized = Counter(), Counter()
    decode, tokenize = embed.decoded, TextTokenizer.__call__

    def count(value, where):
        image = decode(value, where)
        decoded[image.tobytes()] += 1
        return image

    monkeypatch.setattr(embed, "decoded", count)
    monkeypatch.setattr(
        TextTokenizer, "__call__", lambda self, texts: tokenized.update(texts) or tokenize(self, texts)
    )
    embedder.score(evaluator.select_benchmarks(["SugarCrepe"]))
    assert len(decoded) == 20 and set(decoded.values()) == {1}
    assert len(tokenized) > 20 and set(tokenized.values()) == {1}


def test_nothing_of_the_points_is_kept_on_disk(embedder):
    assert embedder.cache.folder is None
    vectors = embedder.images([tiny.image(0)])
    lengths = np.linalg.norm(vectors.reshape(len(ALPHAS), -1), axis=1)
    assert lengths == pytest.approx(1)
