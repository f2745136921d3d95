"""A set by the default encoder: refused, built with the settings that the error names, and trained on (about 12 s)."""

from __future__ import annotations

import re

import pytest
from datasets import List, Value
from huggingface_hub import constants

from hfcomp.data.columns import rename_columns
from hfcomp.data.loading import load_training_set
from hfcomp.data.sampling.groups import Groups
from hfcomp.trainers.clear_glass import ClearGlassTrainer
from tests.factory.magic.sets import WORDS, build_magic
from tests.real_models import sentence_encoder as sentence_encoder
from tests.trainers import runs


@pytest.fixture
def given(sentence_encoder, monkeypatch) -> dict:
    """The options of a set with the default encoder and the paper's settings."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return {"encoder": sentence_encoder, "negative_similarity": None, "shared_levels": None}


@pytest.mark.slow
@pytest.mark.follows("hfcomp/data/sampling/groups.py", "finds some with `--negative_quantile 0.99`.")
def test_settings_of_the_error_make_a_set_that_trains(given, clip, tmp_path, advice):
    with pytest.raises(
        ValueError, match="none of the 4 concepts has a hard negative, .*no cosine is above 0.85"
    ) as error:
        build_magic(tmp_path, **given)
    (quantile,) = re.findall(r"--negative_quantile ([.\d]+),", str(error.value))
    folder = build_magic(tmp_path, **given, negative_quantile=float(quantile)).folder
    rows = rename_columns(load_training_set(str(folder)), {"caption": "generalized_caption"})
    negatives = {
        row["group"]: row["hard_negative_groups"] for row in rows.select_columns(["group", "hard_negative_groups"])
    }
    assert {*negatives} == {*WORDS} and sorted(map(len, negatives.values())) == [0, 0, 1, 1]
    assert runs.build(ClearGlassTrainer, clip, rows, tmp_path, pairs_per_group=4, max_steps=1).train().global_step == 1
    empty = rows.remove_columns("hard_negative_groups").add_column(
        "hard_negative_groups", [[]] * len(rows), feature=List(Value("string"))
    )
    advice.of(runs.build, ClearGlassTrainer, clip, empty, tmp_path, pairs_per_group=4)
    assert any(Groups.from_columns(rows["group"][:], rows["hard_negative_groups"][:]).hard_negatives)
