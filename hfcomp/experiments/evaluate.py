"""The benchmarks that an experiment is scored on, from its fields; loaded before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from hfcomp.data.overlap.policy import ALLOW, check_own_split
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.benchmarks.keywords import NoKeyword
from hfcomp.evaluation.benchmarks.own import own_benchmark
from hfcomp.evaluation.benchmarks.sandbox import concept_benchmarks, keyword_benchmarks, sandbox_benchmarks
from hfcomp.evaluation.evaluator import Evaluator, Loaded, load_benchmark
from hfcomp.evaluation.scored_images import scored_images
from hfcomp.evaluation.spec import Average, Benchmark, data_folders, parse_folders
from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.negatives.keywords import MATCHINGS, PAPER_TABLE, read_keyword_table
from hfcomp.reading import nearest
from hfcomp.statistics import Measure, Outcomes
from hfcomp.statistics.measures import primary_measure

Log = Callable[[str], None]


def prepare_evaluation(config: ExperimentConfig, *, column_names: Any, seed: int, log: Log) -> Evaluator:
    """Loads what is scored before anything is trained, so that a missing file costs no training.

    `column_names` are those of an `own` set, `seed` is of the sandbox's scenes, and `log` receives what is left out.
    """
    evaluator = Evaluator(log)
    if config.evaluation == "own":
        _load_own(evaluator, config, column_names)
    if config.evaluation.startswith(SANDBOX):
        concepts = config.keyword_negatives if config.dataset == SANDBOX and config.keyword_negatives else []
        drawn = [one for concept in concepts for one in keyword_benchmarks([concept], **_keywords(config, seed))]
        evaluator.loaded += _with_keywords([*sandbox_benchmarks(config.evaluation_items, seed), *drawn])
    if config.evaluation.endswith("benchmarks"):
        _load_named(evaluator, config)
    return evaluator


def prepare_concepts(
    config: ExperimentConfig, concepts: Sequence[str], *, main: tuple[str, ...], log: Log
) -> dict[str, Evaluator]:
    """Loads what each concept is scored on; `main` are titles of benchmarks that may not be skipped.

    Raises ValueError for an evaluation that has no concepts, a concept that the keywords do not have, or a main
    benchmark that is not part of the evaluation.
    """
    if config.evaluation not in (SANDBOX, "benchmarks"):
        raise ValueError(
            f"evaluation={config.evaluation!r} has no concepts. Use sandbox, or benchmarks with keywords_*."
        )
    if config.evaluation == SANDBOX:
        drawn = {concept: concept_benchmarks(concept, **_keywords(config, 0)) for concept in concepts}
        _check_main(main, [one.title for benchmarks in drawn.values() for one in benchmarks], "those of sandbox")
        return {concept: Evaluator(log, [*_with_keywords(drawn[concept], concept)]) for concept in concepts}
    _check_main(main, [one.title for one in find_benchmarks(config.evaluation_benchmarks)], "evaluation_benchmarks")
    evaluator = Evaluator(log)
    _load_named(evaluator, config, main)
    return {concept: evaluator.of_concept(concept) for concept in concepts}


def check_primary(config: ExperimentConfig, outcomes: Outcomes) -> Measure | None:
    """The primary endpoint; raises ValueError for one that is not scored, naming those that are."""
    return primary_measure(outcomes, config.primary, declared_averages(config))


def declared_averages(config: ExperimentConfig) -> dict[str, tuple[Average, ...]]:
    """The averages in use of the benchmarks that an experiment is scored on, by title."""
    if not config.evaluation.endswith("benchmarks"):
        return {}
    return {one.title: one.averages for one in find_benchmarks(config.evaluation_benchmarks)}


def _keywords(config: ExperimentConfig, seed: int) -> dict[str, Any]:
    """The arguments of the sandbox's tests of keywords."""
    table = read_keyword_table(config.keyword_table) if config.keyword_table else PAPER_TABLE
    matching = MATCHINGS[config.keyword_matching]
    return {"items": config.evaluation_items, "seed": seed, "table": table, "matching": matching}


def _with_keywords(benchmarks: Iterable[Benchmark], needed: str = "") -> Iterator[Loaded]:
    """Benchmarks of the sandbox without those whose captions hold no keyword, unless it is of the needed concept."""
    for benchmark in benchmarks:
        try:
            yield load_benchmark(benchmark)
        except NoKeyword as error:
            if benchmark.name == "sandbox_keywords" and needed:
                raise ValueError(
                    f"no caption of the sandbox holds a keyword of {needed!r}. Pass a keyword_table of its words, "
                    "such as recipes/hard_negatives/sandbox_keywords.yaml."
                ) from error


def _load_own(evaluator: Evaluator, config: ExperimentConfig, column_names: Any) -> None:
    source, split = config.evaluation_dataset or config.dataset, config.evaluation_split
    if config.dataset != SANDBOX:
        allow, streaming = config.overlap == ALLOW, config.streaming
        training = config.dataset, config.dataset_split
        check_own_split(*training, source, split, allow=allow, streaming=streaming, log=evaluator.note)
    settings = {"config": config.dataset_config, "column_names": column_names}
    evaluator.load([own_benchmark(source, split=split, name="evaluation", title="own", **settings)])
    for one in evaluator.skipped:
        raise ValueError(f"evaluation: {source} is unavailable: {one['reason']} {one['how_to_fix']}")
    evaluator.images += [replace(one, name="own evaluation set") for one in scored_images(evaluator.loaded[0])]


def _load_named(evaluator: Evaluator, config: ExperimentConfig, needed: Sequence[str] = ()) -> None:
    """Loads the benchmarks that are named, without those whose data is unavailable, unless their title is `needed`.

    Their images may be in a training set; scenes of the sandbox are held out of its training sets.
    """
    option, drawn = "evaluation_data", len(evaluator.loaded)
    folders = data_folders(parse_folders(config.evaluation_data, option=option), option=option)
    chosen = {one.name: one for one in find_benchmarks(config.evaluation_benchmarks)}
    evaluator.load(chosen.values(), folders)
    for one in evaluator.skipped:
        said = f"evaluation: {one['benchmark']} is unavailable: {one['reason']} {one['how_to_fix']}"
        said = f"{said} In a recipe that option is --evaluation_data."
        if chosen[one["benchmark"]].title in needed:
            raise ValueError(said)
        evaluator.note(f"{said} It is skipped.")
    folders.check_used(option)
    if len(evaluator.loaded) == drawn:
        raise ValueError(f"evaluation: none of {', '.join(config.evaluation_benchmarks)} is available; see above.")
    evaluator.images += [image for one in evaluator.loaded[drawn:] for image in scored_images(one)]


def _check_main(main: Sequence[str], titles: Sequence[str], where: str) -> None:
    for name in main:
        if name not in titles:
            known = "; ".join(dict.fromkeys(titles))
            raise ValueError(f"{name!r} is none of {where}: {known}.{nearest(name, titles)}")
