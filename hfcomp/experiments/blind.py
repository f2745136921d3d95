"""Blind rules on what a recipe is scored on: read and scored before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass

from hfcomp.evaluation.blind.outcomes import BlindRules
from hfcomp.evaluation.blind.results import BlindResults
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.spec import Benchmark, BenchmarkData, data_folders, parse_folders
from hfcomp.experiments.experiment_config import ExperimentConfig

OPTION = "evaluation_data"


@dataclass(frozen=True)
class _Scored:
    """A benchmark as the outcomes of a run call it."""

    benchmark: Benchmark
    data: BenchmarkData

    @property
    def title(self) -> str:
        return self.benchmark.title


def score_blind_rules(config: ExperimentConfig, evaluator: Evaluator) -> BlindResults:
    """What the rules that read texts alone make of the benchmarks of a recipe.

    Raises:
        ValueError: for captions of `blind_captions` that are not as expected.
        FileNotFoundError: for a path of it where nothing is.
    """
    folders = data_folders(parse_folders(config.evaluation_data, option=OPTION), option=OPTION)
    rules = BlindRules(config.blind_captions, folders)
    return rules.results(rules.score(_Scored(one.benchmark, one.data) for one in evaluator.loaded))
