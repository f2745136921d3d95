"""What a study starts from, loaded before anything is written or trained.

Its base, the benchmarks that it is scored on, the blind rules on these and the published sizes of its effects.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

from hfcomp.data.overlap.policy import ALLOW, check_own_split
from hfcomp.distributed import fail_together, rank
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.benchmarks.means import MEANS
from hfcomp.evaluation.benchmarks.own import own_benchmark
from hfcomp.evaluation.benchmarks.papers.keywords import NoKeyword
from hfcomp.evaluation.benchmarks.sandbox import (
    AVERAGES,
    concept_benchmarks,
    keyword_benchmarks,
    sandbox_benchmarks,
)
from hfcomp.evaluation.blind.outcomes import BlindRules
from hfcomp.evaluation.blind.results import BlindResults
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.items.scored_images import scored_images
from hfcomp.evaluation.loaded import Loaded, load_benchmark
from hfcomp.evaluation.published.scores import published_scores
from hfcomp.evaluation.spec import Average, Benchmark, data_folders, parse_folders
from hfcomp.experiments.experiment_config import SANDBOX, SANDBOX_MODELS, ExperimentConfig
from hfcomp.experiments.recipe_files import check_place
from hfcomp.modeling import load_config, load_processor
from hfcomp.modeling.random_clip import RANDOM_CLIPS, check_vocabulary, write_random_clip
from hfcomp.negatives.keywords import MATCHINGS, PAPER_TABLE, read_keyword_table
from hfcomp.reading import nearest
from hfcomp.sandbox.bases import base_folder
from hfcomp.statistics import Measure, Outcomes
from hfcomp.statistics.measures import primary_measure
from hfcomp.trainers.stages import damage, write_checksums
from hfcomp.writing import replacing_folder

Log = Callable[[str], None]
OPTION = "evaluation_data"


def prepare(config: ExperimentConfig, *, column_names: Any, seed: int = 0, log: Log) -> Evaluator:
    """Looks for the base, then loads what is scored as `prepare_evaluation`: a missing file costs no training."""
    prepare_base(config)
    return prepare_evaluation(config, column_names=column_names, seed=seed, log=log)


def prepare_evaluation(config: ExperimentConfig, *, column_names: Any, seed: int, log: Log) -> Evaluator:
    """Loads what is scored; the column names are those of an `own` set, the seed is that of the sandbox's scenes."""
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
    """Loads what each concept is scored on; `main` are titles of benchmarks that may not be skipped."""
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
    return {concept: evaluator.select_concept(concept) for concept in concepts}


def prepare_guard_benchmarks(config: ExperimentConfig, log: Log) -> tuple[Evaluator, dict[str, tuple[Average, ...]]]:
    """Loads the benchmarks that choose the points of the forgetting guard, and their averages by title."""
    # All benchmarks are needed: without one, the others would choose another point.
    evaluator, found = Evaluator(log), find_benchmarks(config.guard_benchmarks)
    names = {"evaluation_benchmarks": config.guard_benchmarks, "evaluation_data": config.guard_data}
    _load_named(evaluator, config.model_copy(update=names), [one.title for one in found], option="guard_data")
    return evaluator, {one.title: one.averages for one in found} | MEANS


def check_primary(config: ExperimentConfig, outcomes: Outcomes) -> Measure | None:
    return primary_measure(outcomes, config.primary, declared_averages(config))


def declared_averages(config: ExperimentConfig) -> dict[str, tuple[Average, ...]]:
    """Averages in use of the benchmarks that an experiment is scored on, by title, and those over benchmarks."""
    drawn = {SANDBOX: AVERAGES} if config.evaluation.startswith(SANDBOX) else {}
    if not config.evaluation.endswith("benchmarks"):
        return drawn
    return drawn | {one.title: one.averages for one in find_benchmarks(config.evaluation_benchmarks)} | MEANS


def _keywords(config: ExperimentConfig, seed: int) -> dict[str, Any]:
    table = read_keyword_table(config.keyword_table) if config.keyword_table else PAPER_TABLE
    matching = MATCHINGS[config.keyword_matching]
    return {"items": config.evaluation_items, "seed": seed, "table": table, "matching": matching}


def _with_keywords(benchmarks: Iterable[Benchmark], needed: str = "") -> Iterator[Loaded]:
    """Benchmarks of the sandbox; one whose captions hold no keyword is left out unless its concept is needed."""
    for benchmark in benchmarks:
        try:
            yield load_benchmark(benchmark)
        except NoKeyword as error:
            if benchmark.name == "sandbox_keywords" and needed:
                raise ValueError(
                    f"no caption of the sandbox holds a keyword of {needed!r}. Pass a --keyword_table of its words, "
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
    # A benchmark that is unavailable is skipped, but not the one set that a recipe is scored on.
    for one in evaluator.skipped:
        raise ValueError(f"evaluation: {source} is unavailable: {one['reason']} {one['how_to_fix']}")
    evaluator.images += [replace(one, name="own evaluation set") for one in scored_images(evaluator.loaded[0])]


def _load_named(
    evaluator: Evaluator, config: ExperimentConfig, needed: Sequence[str] = (), *, option: str = "evaluation_data"
) -> None:
    """Loads the benchmarks that are named, without those whose data is unavailable, unless their title is `needed`."""
    # With `sandbox+benchmarks` scenes are already loaded, and they do not count as an available benchmark.
    drawn = len(evaluator.loaded)
    folders = data_folders(parse_folders(config.evaluation_data, option=option), option=option)
    chosen = {one.name: one for one in find_benchmarks(config.evaluation_benchmarks)}
    evaluator.load(chosen.values(), folders)
    for one in evaluator.skipped:
        said = f"evaluation: {one['benchmark']} is unavailable: {one['reason']} {one['how_to_fix']}"
        said = f"{said} In a recipe that option is --{option}."
        if chosen[one["benchmark"]].title in needed:
            raise ValueError(said)
        evaluator.note(f"{said} It is skipped.")
    folders.check_used(option)
    if len(evaluator.loaded) == drawn:
        raise ValueError(f"evaluation: none of {', '.join(config.evaluation_benchmarks)} is available; see above.")
    # Images of the sandbox's scenes are held out of its training sets already.
    evaluator.images += [image for one in evaluator.loaded[drawn:] for image in scored_images(one)]


def _check_main(main: Sequence[str], titles: Sequence[str], where: str) -> None:
    for name in main:
        if name not in titles:
            known = "; ".join(dict.fromkeys(titles))
            raise ValueError(f"found {name!r}, expected one of {where}: {known}.{nearest(name, titles)}")


def prepare_base(config: ExperimentConfig) -> None:
    """Looks for the base and the files of a recipe: a mistyped name costs nothing."""
    # Files are checked before the Hub is queried for a model, which takes seconds.
    for name in ("model", "dataset", "replay_dataset", "evaluation_dataset", "captions_file", "concreteness_ratings"):
        check_place(name, getattr(config, name))
    if config.model:
        try:
            # The configuration shows whether it is a supported dual encoder, without its weights.
            load_config(config.model)
            load_processor(config.model, argument="--model")
        except OSError as error:
            place = "" if Path(config.model).is_dir() else "no such folder here, and from the Hub: "
            raise OSError(f"model={config.model}: {place}{error}") from error
    elif config.fresh_model not in SANDBOX_MODELS:
        check_vocabulary(config.clip_vocabulary)


def base_model(config: ExperimentConfig, folder: Path, seed: int) -> Path | str:
    """The model that all arms start from: the recipe's, or one written to `base/` in a folder."""
    if config.model:
        return config.model
    base = folder / "base"
    if config.fresh_model in SANDBOX_MODELS:
        shipped = SANDBOX_MODELS[config.fresh_model]
        make_base(base, lambda part: shutil.copytree(base_folder(shipped), part, dirs_exist_ok=True))
    else:
        size = RANDOM_CLIPS[config.fresh_model]()
        make_base(base, lambda part: write_random_clip(part, config.clip_vocabulary, seed=seed, config=size))
    return base


def make_base(folder: Path, write: Callable[[Path], object]) -> None:
    with fail_together():
        # The checksums are written last, so a model that a killed process left incomplete counts as damaged.
        if rank() == 0 and damage(folder) is not None:
            with replacing_folder(folder) as part:
                write(part)
                write_checksums(part)
    if not (folder / "config.json").is_file():
        raise RuntimeError(f"{folder}: the main process wrote a model that this one does not see. Share the disk.")


def score_blind_rules(config: ExperimentConfig, evaluator: Evaluator) -> BlindResults:
    """Choices of the rules that read texts alone, on the benchmarks of a recipe."""
    folders = data_folders(parse_folders(config.evaluation_data, option=OPTION), option=OPTION)
    rules = BlindRules(config.blind_captions, folders)
    # Keyed by the titles in a run's outcomes, which do not mention missing images.
    tables = rules.score((one.benchmark.title, one.benchmark, one.data) for one in evaluator.loaded)
    return BlindResults.join(tables, **rules.facts)


def published_effects(config: ExperimentConfig) -> list[dict[str, Any]]:
    """Differences between the models of `published_models` on `published_measure`.

    Returns:
        `model`, `reference` (names of the run's models), `value` from -1 to 1 and `place`, the source.
    """
    if config.published_models is None:
        return []
    benchmark, _, metric = str(config.published_measure).rpartition(": ")
    values = {one.model: one.value for one in published_scores(benchmark) if one.metric == metric}
    if not values:
        known = {f"{one.benchmark}: {one.metric}" for one in published_scores()}
        found = f"published_measure: {config.published_measure!r} has no published numbers."
        raise ValueError(f"{found}{nearest(str(config.published_measure), known)}")
    for name in config.published_models.values():
        if name not in values:
            raise ValueError(
                f"published_models: {name!r} has no published number of {config.published_measure}."
                f"{nearest(name, values)} Known: {', '.join(values)}."
            )
    return [
        {
            "model": one,
            "reference": other,
            "value": values[config.published_models[one]] - values[config.published_models[other]],
            "place": benchmark,
        }
        for one, other in permutations(config.published_models, 2)
    ]
