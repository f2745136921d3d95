"""The benchmarks that an experiment is scored on, from its fields; loaded before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from hfcomp.data.overlap.policy import ALLOW, check_own_split
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.benchmarks.keywords import NoKeyword
from hfcomp.evaluation.benchmarks.own import own_benchmark
from hfcomp.evaluation.benchmarks.sandbox import concept_benchmarks, keyword_benchmarks, sandbox_benchmarks
from hfcomp.evaluation.data_folders import check_used, data_folders, parse_folders
from hfcomp.evaluation.evaluator import (
    ConceptEvaluator,
    Evaluator,
    Loaded,
    images_of,
    load_benchmark,
    load_benchmarks,
)
from hfcomp.evaluation.spec import Average, Benchmark, Folders
from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.negatives.keywords import MATCHINGS, PAPER_TABLE, read_keyword_table
from hfcomp.reading import expand_variables, nearest

Tell = Callable[[str], None]


def prepare_evaluation(config: ExperimentConfig, *, column_names: Any, seed: int, tell: Tell) -> Evaluator:
    """Loads the items before anything is trained, so that a missing file costs no training.

    Args:
        config: the experiment.
        column_names: contract name to the data set's own, for `own`.
        seed: of the sandbox's scenes.
        tell: receives what was left out.
    """
    if config.evaluation == "own":
        return _own(config, column_names, tell)
    drawn: list[Loaded] = []
    if config.evaluation.startswith(SANDBOX):
        concepts = config.keyword_negatives if config.dataset == SANDBOX and config.keyword_negatives else []
        found = [one for concept in concepts for one in keyword_benchmarks([concept], **_keywords(config, seed))]
        drawn = _drawn((*sandbox_benchmarks(config.evaluation_items, seed), *found))
    chosen = _named(config, tell) if config.evaluation.endswith("benchmarks") else []
    # scenes of the sandbox are held out of its training sets by how they are drawn
    return Evaluator((*drawn, *chosen), tell, images_of(chosen))


def prepare_concepts(
    config: ExperimentConfig, concepts: Sequence[str], *, main: tuple[str, ...], seed: int, tell: Tell
) -> ConceptEvaluator:
    """Loads the items of an evaluation of concepts.

    Args:
        config: the experiment.
        concepts: all that will be asked for.
        main: benchmarks, as tables call them, that are scored when a brief evaluation is asked for.
        seed: of the sandbox's scenes.
        tell: receives what was left out.

    Raises:
        ValueError: for an evaluation that has no concepts, a concept that the keywords do not have, or a main
            benchmark that is not part of the evaluation.
    """
    if config.evaluation not in (SANDBOX, "benchmarks"):
        raise ValueError(
            f"evaluation={config.evaluation!r} has no concepts. Use sandbox, or benchmarks with keywords_*."
        )
    if config.evaluation == SANDBOX:
        found = {concept: concept_benchmarks(concept, **_keywords(config, seed)) for concept in concepts}
        _check_main(main, [one.title for benchmarks in found.values() for one in benchmarks], "those of sandbox")
        of = {concept: Evaluator(tuple(_drawn(found[concept], needed=concept)), tell) for concept in concepts}
        return ConceptEvaluator(of, main, [])
    _check_main(main, [one.title for one in find_benchmarks(config.evaluation_benchmarks)], "evaluation_benchmarks")
    loaded = _named(config, tell, main)
    whole = Evaluator(tuple(loaded), tell, images_of(loaded))
    return ConceptEvaluator({concept: whole.of_concept(concept) for concept in concepts}, main, whole.images)


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


def _drawn(benchmarks: Iterable[Benchmark], needed: str | None = None) -> list[Loaded]:
    """The sandbox's benchmarks with their scenes, without those whose captions hold no keyword.

    Raises:
        ValueError: when the first of those is about a concept that is needed.
    """
    found: list[Loaded] = []
    for benchmark in benchmarks:
        try:
            found.append(load_benchmark(benchmark))
        except NoKeyword as error:
            if benchmark.name == "sandbox_keywords" and needed is not None:
                raise ValueError(
                    f"no caption of the sandbox holds a keyword of {needed!r}. Pass a keyword_table of its words, "
                    "such as recipes/hard_negatives/sandbox_keywords.yaml."
                ) from error
    return found


def _own(config: ExperimentConfig, column_names: Any, tell: Tell) -> Evaluator:
    source = config.evaluation_dataset or config.dataset
    if config.dataset != SANDBOX:
        check_own_split(
            config.dataset,
            config.dataset_split,
            source,
            config.evaluation_split,
            allow=config.overlap == ALLOW,
            streaming=config.streaming,
            log=tell,
        )
    benchmark = own_benchmark(
        source,
        split=config.evaluation_split,
        config=config.dataset_config,
        column_names=column_names,
        name="evaluation",
        title="own",
    )
    loaded = load_benchmarks((benchmark,), Folders(), needed=(benchmark.title,), log=tell)
    return Evaluator(tuple(loaded), tell, [replace(one, name="own evaluation set") for one in images_of(loaded)])


def _named(config: ExperimentConfig, tell: Tell, needed: Sequence[str] = ()) -> list[Loaded]:
    """The benchmarks that are named, without those whose data is unavailable, unless their title is `needed`."""
    given = [expand_variables(text, "evaluation_data") for text in config.evaluation_data]
    folders = data_folders(parse_folders(given, option="evaluation_data"), option="evaluation_data")
    chosen = find_benchmarks(config.evaluation_benchmarks)
    hint = "In a recipe that option is --evaluation_data."
    found = load_benchmarks(chosen, folders, needed=needed, hint=hint, log=tell)
    check_used(folders, option="evaluation_data")
    if not found:
        raise ValueError(f"evaluation: none of {', '.join(config.evaluation_benchmarks)} is available; see above.")
    return found


def _check_main(main: Sequence[str], titles: Sequence[str], where: str) -> None:
    for name in main:
        if name not in titles:
            known = "; ".join(dict.fromkeys(titles))
            raise ValueError(f"{name!r} is none of {where}: {known}.{nearest(name, titles)}")
