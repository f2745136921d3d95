"""Probes that tell texts or images from their negatives, on folds by image."""

from __future__ import annotations

import numpy as np
import pytest

from hfcomp.analysis.audit.checks import chance_levels
from hfcomp.analysis.audit.options import AuditOptions
from hfcomp.analysis.audit.probes import (
    NO_MODEL,
    embedding_probe,
    image_probe,
    model_checks,
    probe,
    text_probe,
    true_negatives,
)
from hfcomp.analysis.audit.texts import folds
from hfcomp.evaluation.encoding.embed import Indexed
from tests.analysis.audit import sets

pytest.importorskip("sklearn", reason="probes need scikit-learn: pip install 'hfcomp[eval]'")


def test_a_mark_of_all_negatives_is_found_by_words():
    check = text_probe(sets.data(60))
    assert check.value == 100 and check.low > 80 and check.facts["folds"] == 5


def test_without_a_mark_words_in_another_order_are_near_chance():
    check = text_probe(sets.data(60, ending=""))
    assert check.value < 75


def test_a_probe_is_trained_on_other_images_only():
    """Each image has a feature of its own that says which is the true one: useless on images that were not seen."""
    data = sets.data(40)
    own = np.eye(40)
    features = np.concatenate([own, -own])
    ids = data.pairs["image_id"].tolist()
    assert probe("embedding_probe", features, ids, data).value < 60
    shared = np.repeat([[1.0], [-1.0]], 40, axis=0)
    assert probe("embedding_probe", shared, ids, data).value == 100
    tied = probe("embedding_probe", np.zeros((80, 1)), ids, data)
    assert tied.value == 50 and tied.facts["undecided"] == 40


def test_a_probe_that_is_always_wrong_decides_as_much_as_its_reverse():
    """A mark means the opposite in two of five folds: learned from the others it is wrong there, else undecided."""
    data = sets.data(40)
    ids = data.pairs["image_id"].tolist()
    other = np.array([folds(ids, 0)[image_id] < 2 for image_id in ids])
    mark = np.where(other, -1.0, 1.0)[:, None]
    check = probe("text_probe", np.concatenate([mark, -mark]), ids, data)
    assert (check.facts["right"], check.facts["wrong"], check.facts["undecided"]) == (0, 16, 24)
    assert check.value == 70 and check.low > 50
    assert check.facts["reversed"] and check.reason == "reversed: the negative scores higher."
    chance = chance_levels(-other[:, None].astype(float), ids, either_way=True)[1][0]
    assert (check.chance, check.chance_high) == chance and chance.mean > 50


def test_few_images_are_not_probed():
    check = text_probe(sets.data(6))
    assert check.value is None and "6 images are too few" in check.reason


class Encoder:
    """Vectors by what a test wants to be seen: the mark of a negative, and of a negative image."""

    def __init__(self, mark: float = 1.0) -> None:
        self.mark, self.calls = mark, 0

    def index_images(self, images, *, column="image", progress=False) -> Indexed:
        marked = np.full(len(images), self.mark if column == "negative_image" else 0.0)
        return self._at(marked)

    def index_texts(self, texts, *, progress=False) -> Indexed:
        return self._at(np.array([self.mark * text.endswith(".") for text in texts]))

    def _at(self, marked) -> Indexed:
        vectors = np.stack([np.cos(marked), np.sin(marked)], axis=1).astype(np.float32)
        return Indexed(vectors, np.arange(len(marked)), 0, 0)


def test_embeddings_of_texts_and_of_images_are_probed():
    data = sets.data(20)
    assert embedding_probe(data, Encoder()).value == 100
    assert image_probe(data, Encoder()).value == 100
    assert embedding_probe(data, Encoder(0.0)).value == 50  # all equal: ties count half


def test_a_row_without_its_negative_image_is_left_out():
    data = sets.data(20, negative_image={3: None})
    assert image_probe(data, Encoder()).of == 19


def test_negatives_that_a_model_prefers_by_the_margin_are_shown_worst_first():
    texts = {row: [f"photo {row}"] for row in range(8)} | {2: ["a true one."], 5: ["another true one."]}
    data = sets.data(8, caption={row: f"a text {row}." for row in range(8)}, negative_captions=texts)
    # images lie at 0, texts with a full stop at the mark: the others are preferred
    check = true_negatives(data, Encoder(0.5), 0.02, 3)
    preferred = 1 - np.cos(0.5)
    assert check.value == 75 and check.facts["pairs"] == 6 and check.facts["margin"] == 0.02
    assert [example.row for example in check.examples] == [0, 1, 3] and f"{preferred:.3f}" in check.examples[0].note
    assert true_negatives(data, Encoder(0.5), 0.2).value == 0
    assert true_negatives(data, Encoder(0.5), 0.2).facts["preferred"] == 6


def test_without_a_model_it_is_said():
    checks = model_checks(sets.data(4), AuditOptions())
    assert [check.reason for check in checks] == [NO_MODEL] * 3
