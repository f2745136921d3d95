"""The benchmarks that an experiment is scored on: loaded before anything is trained, then scored model by model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from hfcomp.data.overlap import ScoredImages
from hfcomp.data.overlap.policy import ALLOW, check_own_split
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.benchmarks.keywords import NoKeyword
from hfcomp.evaluation.benchmarks.own import own_benchmark
from hfcomp.evaluation.benchmarks.sandbox import concept_benchmarks, keyword_benchmarks, sandbox_benchmarks
from hfcomp.evaluation.data_folders import check_used, data_folders, parse_folders
from hfcomp.evaluation.engine import Encoder, run_benchmark, select_rows, validate
from hfcomp.evaluation.remarks import cut_remark, remarks
from hfcomp.evaluation.scored_images import scored_images
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Average, Benchmark, BenchmarkData, Unavailable
from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.negatives.keywords import MATCHINGS, PAPER_TABLE, read_keyword_table
from hfcomp.reading import expand_variables, nearest

Tell = Callable[[str], None]
Loaded = tuple[Benchmark, BenchmarkData]


@dataclass(frozen=True)
class Evaluation:
    """Benchmarks with their data; called with an encoder, it scores them.

    Attributes:
        loaded: each benchmark with its validated data.
        tell: receives how many texts were cut, once for each benchmark: the models of a run share a tokenizer.
        images: those that are scored, other than the sandbox's own scenes, which are held out of its training sets by
            how they are drawn.
        reported: names of the benchmarks whose cut texts were reported.
    """

    loaded: tuple[Loaded, ...]
    tell: Tell
    images: list[ScoredImages] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)

    def __call__(self, encoder: Encoder) -> pd.DataFrame:
        """One row per item and metric, with the columns of `hfcomp.evaluation.engine.Report.items`."""
        tables = []
        for benchmark, data in self.loaded:
            report = run_benchmark(benchmark, data, encoder, progress=not benchmark.synthetic)
            if report.truncated and benchmark.name not in self.reported:
                self.reported.add(benchmark.name)
                self.tell(f"{benchmark.name}: {cut_remark(report.truncated, report.merged)}")
            tables.append(report.items)
        return pd.concat(tables, ignore_index=True)

    def of_titles(self, titles: Sequence[str]) -> Evaluation:
        """The benchmarks of these titles alone."""
        return replace(self, loaded=tuple(one for one in self.loaded if one[0].title in titles))


@dataclass(frozen=True)
class ConceptEvaluation:
    """An evaluation of concepts, one at a time: that concept's items where a benchmark has such, else all of its.

    Attributes:
        of: concept to its evaluation.
        main: titles of the benchmarks that a brief evaluation scores.
        images: as `Evaluation` has them.
    """

    of: Mapping[str, Evaluation]
    main: tuple[str, ...]
    images: list[ScoredImages]

    def __call__(self, encoder: Encoder, concept: str, brief: bool = False) -> pd.DataFrame:
        """As `Evaluation`, of a concept."""
        one = self.of[concept]
        return (one.of_titles(self.main) if brief else one)(encoder)


def prepare_evaluation(config: ExperimentConfig, *, column_names: Any, seed: int, tell: Tell) -> Evaluation:
    """Loads the items before anything is trained, so that a missing file costs no training.

    Args:
        config: the experiment.
        column_names: contract name to the data set's own, for `own`.
        seed: of the sandbox's scenes.
        tell: receives what was left out.
    """
    if config.evaluation == "own":
        return _own(config, column_names, tell)
    loaded: list[Loaded] = []
    images: list[ScoredImages] = []
    if config.evaluation.startswith(SANDBOX):
        concepts = config.keyword_negatives if config.dataset == SANDBOX and config.keyword_negatives else []
        found = [one for concept in concepts for one in keyword_benchmarks([concept], **_keywords(config, seed))]
        loaded += _drawn((*sandbox_benchmarks(config.evaluation_items, seed), *found))
    if config.evaluation.endswith("benchmarks"):
        chosen = _load(config, tell)
        loaded += chosen
        images += [image for one in chosen for image in scored_images(*one)]
    return Evaluation(tuple(loaded), tell, images)


def prepare_concepts(
    config: ExperimentConfig, concepts: Sequence[str], *, main: tuple[str, ...], seed: int, tell: Tell
) -> ConceptEvaluation:
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
        of = {concept: tuple(_drawn(found[concept], needed=concept)) for concept in concepts}
        return ConceptEvaluation({concept: Evaluation(of[concept], tell) for concept in concepts}, main, [])
    _check_main(main, [one.title for one in find_benchmarks(config.evaluation_benchmarks)], "evaluation_benchmarks")
    whole = _load(config, tell, main)
    images, reported = [image for one in whole for image in scored_images(*one)], set[str]()
    parts = {concept: tuple((one, _of_concept(data, concept)) for one, data in whole) for concept in concepts}
    make = partial(Evaluation, tell=tell, images=images, reported=reported)
    return ConceptEvaluation({concept: make(part) for concept, part in parts.items()}, main, images)


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
            found.append((benchmark, validate(benchmark, load_items(benchmark))))
        except NoKeyword as error:
            if benchmark.name == "sandbox_keywords" and needed is not None:
                raise ValueError(
                    f"no caption of the sandbox holds a keyword of {needed!r}. Pass a keyword_table of its words, "
                    "such as recipes/hard_negatives/sandbox_keywords.yaml."
                ) from error
    return found


def _own(config: ExperimentConfig, column_names: Any, tell: Tell) -> Evaluation:
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
    data = validate(benchmark, load_items(benchmark))
    for remark in remarks(benchmark, data):
        tell(remark)
    images = [replace(one, name="own evaluation set") for one in scored_images(benchmark, data)]
    return Evaluation(((benchmark, data),), tell, images)


def _load(config: ExperimentConfig, tell: Tell, needed: Sequence[str] = ()) -> list[Loaded]:
    """The benchmarks that are named, with their data.

    A benchmark whose data is unavailable is skipped with a note, unless its title is `needed`.
    """
    given = [expand_variables(text, "evaluation_data") for text in config.evaluation_data]
    folders, found = data_folders(parse_folders(given, option="evaluation_data"), option="evaluation_data"), []
    for benchmark in find_benchmarks(config.evaluation_benchmarks):
        try:
            data = validate(benchmark, load_items(benchmark, folders))
        except Unavailable as error:
            said = f"{benchmark.name} is unavailable: {error} In a recipe that option is --evaluation_data."
            if benchmark.title in needed:
                raise ValueError(f"evaluation: {said}") from error
            tell(f"evaluation: {said} It is skipped.")
            continue
        found.append((benchmark, data))
        for remark in remarks(benchmark, data):
            tell(remark)
    check_used(folders, option="evaluation_data")
    if not found:
        raise ValueError(f"evaluation: none of {', '.join(config.evaluation_benchmarks)} is available; see above.")
    return found


def _check_main(main: Sequence[str], titles: Sequence[str], where: str) -> None:
    for name in main:
        if name not in titles:
            known = "; ".join(dict.fromkeys(titles))
            raise ValueError(f"{name!r} is none of {where}: {known}.{nearest(name, titles)}")


def _of_concept(data: BenchmarkData, concept: str) -> BenchmarkData:
    """The items of a concept where there are such, else all: another concept's texts need not be encoded."""
    chosen = np.flatnonzero(np.asarray(data.rows["subset"][:]) == concept)
    return select_rows(data, chosen) if len(chosen) else data
