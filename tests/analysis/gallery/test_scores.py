"""Scores of a page are those of the models' embeddings, and its verdicts those of the evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.modeling import load_backbone
from tests import tiny
from tests.analysis.gallery.pages import dataset, encode, held, page, save_rows

ROUNDED = 5e-7
"""Of a cosine with six decimals; half a last place, and what fp32 adds to it is less."""


def test_cosines_margins_and_verdicts_are_those_of_the_embeddings(clip, siglip, tmp_path):
    rows = dataset()
    path = page(save_rows(tmp_path, rows), tmp_path, models=(f"one={clip}", f"two={siglip}"))
    about, data = held(path, "about"), held(path, "data")
    assert [model["name"] for model in about["models"]] == ["one", "two"]
    for model, folder in enumerate((clip, siglip)):
        embedder = Embedder(folder, device="cpu")
        image, text = embedder.images(rows["image"][:]), embedder.texts(rows["caption"][:]).vectors
        negative = embedder.texts([captions[0] for captions in rows["negative_captions"]]).vectors
        own, other = (image * text).sum(1), (image * negative).sum(1)
        for row in range(8):
            cosine, negatives, elsewhere, wrong, by_captions, by_images = data[row]["scores"][model]
            assert cosine == pytest.approx(own[row], abs=2 * ROUNDED)
            assert negatives == [pytest.approx(other[row], abs=2 * ROUNDED)]
            assert by_captions == (1 if own[row] > other[row] else -1 if own[row] == other[row] else 0)
            assert (elsewhere is None) == (wrong is None) == (by_images is None) == (row % 3 == 2)
        backbone = load_backbone(folder)
        assert about["models"][model]["scale"] == pytest.approx(float(backbone.logit_scale.detach().exp()), rel=1e-6)
    assert about["models"][0]["bias"] == 0 != about["models"][1]["bias"]
    text = path.read_text("utf-8")
    right = sum(item["scores"][0][4] == 1 for item in data)
    assert f"{right} of 8" in text and "changed between them" in text


def test_the_negative_image_s_scores_are_its_own(clip, tmp_path):
    rows = dataset(2)
    scores = held(page(save_rows(tmp_path, rows), tmp_path, models=(str(clip),)), "data")[1]["scores"][0]
    embedder = Embedder(clip, device="cpu")
    image = embedder.images([rows["negative_image"][1]])[0]
    texts = embedder.texts([rows["caption"][1], rows["negative_captions"][1][0]]).vectors
    assert np.abs(np.array(scores[2:4]) - texts @ image).max() <= 2 * ROUNDED


def test_equal_texts_tie_and_a_row_without_caption_or_image_has_no_verdict(clip, tmp_path):
    broken = {"bytes": b"no image", "path": None}
    rows = dataset(
        4,
        negative_captions={0: [tiny.captions()[0], ""], 1: ["", ""]},
        caption={2: None},
        image={3: broken},
        negative_image={1: encode(tiny.image(1))},
    )
    data = held(page(save_rows(tmp_path, rows), tmp_path, models=(str(clip),)), "data")
    first, second, third, last = (row["scores"][0] for row in data)
    assert first[4] == -1 and first[0] == first[1][0]
    assert second[1] == [] and second[4] is None and second[5] == -1  # image and negative image are the same
    assert third[0] is None and third[1][0] is not None and third[4] is None
    assert last[0] is None and last[4] is None and last[2] is not None


def test_a_second_run_encodes_nothing(clip, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    source, calls = save_rows(tmp_path), []
    first = held(page(source, tmp_path, models=(str(clip),), no_cache=False), "data")
    monkeypatch.setattr(Embedder, "_fill", lambda *parts: calls.append(len(parts[3])))
    again = held(page(source, tmp_path, models=(str(clip),), no_cache=False), "data")
    assert again == first and not any(calls)


def test_a_set_without_negatives_has_cosines_and_no_verdict(clip, tmp_path):
    rows = dataset().select_columns(["image", "caption"])
    path = page(save_rows(tmp_path, rows), tmp_path, models=(str(clip),))
    assert all(row["scores"][0][1:] == [[], None, None, None, None] for row in held(path, "data"))
    assert "Shown rows that are right" not in path.read_text("utf-8")
