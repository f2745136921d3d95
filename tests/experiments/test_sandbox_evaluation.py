"""The sandbox's evaluation: which lines there are, what a blind scorer gets, and one line counted by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import CLIPModel

from hfcomp.evaluation.embed import Embedder, TextEmbeddings
from hfcomp.experiments.items import COMPOSITION, GENERAL
from hfcomp.experiments.sandbox_evaluation import SandboxEvaluation, retrieval_rows
from hfcomp.sandbox import KINDS, sandbox_clip_config, sandbox_processor

ITEMS = 12


class Blind:
    """An embedder to which everything is the same."""

    def images(self, images, **_):
        return np.ones((len(images), 1), dtype=np.float32)

    def texts(self, texts, **_):
        return TextEmbeddings(np.ones((len(texts), 1), dtype=np.float32), 0)


@pytest.fixture(scope="module")
def evaluate() -> SandboxEvaluation:
    return SandboxEvaluation(ITEMS, seed=0)


@pytest.fixture(scope="module")
def items(evaluate) -> pd.DataFrame:
    return evaluate(Blind())


def test_a_blind_scorer_gets_nothing_but_ties(items):
    scored = items[~items["metric"].str.contains("same image")]
    assert scored["metric"].str.contains("recall").any()
    assert not scored["value"].any() and scored["tie"].all()


def test_kinds_that_add_have_a_choice_and_no_match_of_groups(items):
    own = items[items["benchmark"] == "sandbox"]
    assert list(own[own["metric"] == "caption choice"]["subset"].unique()) == list(KINDS)
    assert list(own[own["metric"] == "group"]["subset"].unique()) == [k for k in KINDS if not k.startswith("add_")]


def test_lines_items_and_aspects(items):
    lines = items.groupby(["benchmark", "metric", "subset"]).size()
    assert (lines[lines.index.get_level_values("benchmark") == "sandbox"] == ITEMS).all()
    assert lines["sandbox retrieval", "text-to-image recall@1", "all"] == retrieval_rows(ITEMS) == 30
    assert lines["sandbox two positives", "text only", "swap"] == 3 * ITEMS
    assert set(lines["sandbox edited"]["image"].index) == {"object", "color", "size", "location"}
    assert set(lines["sandbox levels"]["image choice"].index) == {f"level {number}" for number in (1, 2, 3, 4)}
    aspects = items.groupby("benchmark")["aspect"].agg(set)
    assert aspects["sandbox"] == aspects["sandbox novel"] == {COMPOSITION}
    for name in ("sandbox retrieval", "sandbox zero-shot", "sandbox levels", "sandbox wordings"):
        assert aspects[name] == {GENERAL}
    assert not items.duplicated(["benchmark", "metric", "subset", "item"]).any()


def test_the_values_are_those_of_the_scores(evaluate):
    torch.manual_seed(0)
    embedder = Embedder(CLIPModel(sandbox_clip_config()), sandbox_processor())
    table = evaluate(embedder).set_index(["benchmark", "metric", "item"])["value"].to_dict()
    rows = evaluate.choices
    image = embedder.images(rows["image"])
    text = embedder.texts(rows["caption"]).vectors
    negative = embedder.texts([texts[0] for texts in rows["negative_captions"]]).vectors
    other = embedder.images(rows["negative_image"])
    for row, name in enumerate(rows["image_id"]):
        right, wrong = image[row] @ text[row], image[row] @ negative[row]
        assert table["sandbox", "caption choice", name] == float(right > wrong)
        if ("sandbox", "group", name) in table:
            all_four = right > wrong and right > other[row] @ text[row]
            all_four &= other[row] @ negative[row] > max(wrong, other[row] @ text[row])
            assert table["sandbox", "group", name] == float(all_four)
