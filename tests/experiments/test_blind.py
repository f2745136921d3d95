"""Blind rules on what a recipe is scored on, before there is a model."""

from __future__ import annotations

import pytest

from hfcomp.evaluation.blind.rules import BIGRAMS, CONSTANT, FULL_STOP, SHORTER
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.prepare import prepare_evaluation, score_blind_rules

FIELDS = {"objective": "m:C", "method": "M", "dataset": "sandbox", "batch_size": 8, "evaluation_items": 5}


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return prepare_evaluation(ExperimentConfig(**FIELDS), column_names=None, seed=0, log=print)


def test_the_sandbox_is_scored_by_the_rules_that_need_no_captions(evaluator):
    blind = score_blind_rules(ExperimentConfig(**FIELDS), evaluator)
    assert blind.rules == [CONSTANT, SHORTER, FULL_STOP]
    assert set(blind.skipped) == set(BIGRAMS) and "--blind_captions" in blind.skipped[BIGRAMS[0]]
    assert set(blind.outcomes.table["benchmark"]) <= {entry.benchmark.title for entry in evaluator.loaded}


def test_captions_that_a_recipe_names_are_counted_and_wrong_ones_refused_before_training(evaluator, tmp_path):
    path = tmp_path / "captions.txt"
    path.write_text("a red cube left of a blue ball\n")
    blind = score_blind_rules(ExperimentConfig(**FIELDS, blind_captions=str(path)), evaluator)
    assert set(BIGRAMS) <= set(blind.rules) and not blind.skipped
    with pytest.raises(OSError, match="nowhere"):
        score_blind_rules(ExperimentConfig(**FIELDS, blind_captions=str(tmp_path / "nowhere.csv")), evaluator)
