"""Loads the prerequisites of a study before anything is written or trained.

These are the base, the benchmarks for scoring, the blind rules on them, and the published sizes of the effects.
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
NOTHING = "nothing"  # the evaluation of a dry run without data, which no recipe can set


def prepare(config: ExperimentConfig, *, column_names: Any, seed: int = 0, log: Log) -> Evaluator:
    """Checks the base, then loads the evaluation data, so a missing file is found before training."""
    prepare_base(config)
    return prepare_evaluation(config, column_names=column_names, seed=seed, log=log)


def prepare_evaluation(config: ExperimentConfig, *, column_names: Any, seed: int, log: Log) -> Evaluator:
    """Loads the evaluation data. `column_names` apply to an `own` set, `seed` to the sandbox's scenes."""
    evaluator = Evaluator(log)
    if config.evaluation == "own":
        _load_own(evaluator, config, column_names)
    if config.evaluation.startswith(SANDBOX):
        concepts = config.keyword_negatives if config.dataset == SANDBOX and config.keyword_negatives else []
        settings = _keyword_settings(config, seed)
        drawn = [benchmark for concept in concepts for benchmark in keyword_benchmarks([concept], **settings)]
        evaluator.loaded += _load_scenes([*sandbox_benchmarks(config.evaluation_items, seed), *drawn])
    if config.evaluation.endswith("benchmarks"):
        _load_benchmarks(evaluator, config)
    return evaluator


def prepare_concepts(
    config: ExperimentConfig, concepts: Sequence[str], *, main: tuple[str, ...], log: Log
) -> dict[str, Evaluator]:
    """Loads the evaluation data of each concept; `main` lists titles of benchmarks that may not be skipped."""
    if config.evaluation == NOTHING:
        return {concept: Evaluator(log) for concept in concepts}
    if config.evaluation not in (SANDBOX, "benchmarks"):
        raise ValueError(
            f"evaluation={config.evaluation!r} does not score concepts; expected {SANDBOX}, or evaluation_benchmarks "
            "named keywords_*."
        )
    if config.evaluation == SANDBOX:
        drawn = {concept: concept_benchmarks(concept, **_keyword_settings(config, 0)) for concept in concepts}
        titles = [benchmark.title for benchmarks in drawn.values() for benchmark in benchmarks]
        _check_main(main, titles, "the sandbox benchmarks")
        return {concept: Evaluator(log, [*_load_scenes(drawn[concept], concept)]) for concept in concepts}
    titles = [benchmark.title for benchmark in find_benchmarks(config.evaluation_benchmarks)]
    _check_main(main, titles, "evaluation_benchmarks")
    evaluator = Evaluator(log)
    _load_benchmarks(evaluator, config, main)
    return {concept: evaluator.select_concept(concept) for concept in concepts}


def prepare_guard_benchmarks(config: ExperimentConfig, log: Log) -> tuple[Evaluator, dict[str, tuple[Average, ...]]]:
    """Loads the benchmarks that the forgetting guard chooses points on, and their averages by title."""
    # All benchmarks are required: without one of them, the rule would choose another point.
    evaluator, benchmarks = Evaluator(log), find_benchmarks(config.guard_benchmarks)
    names = {"evaluation_benchmarks": config.guard_benchmarks, "evaluation_data": config.guard_data}
    titles = [benchmark.title for benchmark in benchmarks]
    _load_benchmarks(evaluator, config.model_copy(update=names), titles, option="guard_data")
    return evaluator, {benchmark.title: benchmark.averages for benchmark in benchmarks} | MEANS


def check_primary(config: ExperimentConfig, outcomes: Outcomes) -> Measure | None:
    return primary_measure(outcomes, config.primary, declared_averages(config))


def declared_averages(config: ExperimentConfig) -> dict[str, tuple[Average, ...]]:
    """Averages in use for an experiment: those of its benchmarks, by title, and those over several benchmarks."""
    drawn = {SANDBOX: AVERAGES} if config.evaluation.startswith(SANDBOX) else {}
    if not config.evaluation.endswith("benchmarks"):
        return drawn
    benchmarks = find_benchmarks(config.evaluation_benchmarks)
    return drawn | {benchmark.title: benchmark.averages for benchmark in benchmarks} | MEANS


def _keyword_settings(config: ExperimentConfig, seed: int) -> dict[str, Any]:
    table = read_keyword_table(config.keyword_table) if config.keyword_table else PAPER_TABLE
    matching = MATCHINGS[config.keyword_matching]
    return {"items": config.evaluation_items, "seed": seed, "table": table, "matching": matching}


def _load_scenes(benchmarks: Iterable[Benchmark], needed: str = "") -> Iterator[Loaded]:
    """Loads sandbox benchmarks, skipping those whose captions contain no keyword unless their concept is needed."""
    for benchmark in benchmarks:
        try:
            yield load_benchmark(benchmark)
        except NoKeyword as error:
            if benchmark.name == "sandbox_keywords" and needed:
                raise ValueError(
                    f"no sandbox caption contains a keyword of {needed!r}. Pass a --keyword_table with the sandbox's "
                    "words, such as recipes/hard_negatives/sandbox_keywords.yaml."
                ) from error


def _load_own(evaluator: Evaluator, config: ExperimentConfig, column_names: Any) -> None:
    source, split = config.evaluation_dataset or config.dataset, config.evaluation_split
    if config.dataset != SANDBOX:
        allow, streaming = config.overlap == ALLOW, config.streaming
        training = config.dataset, config.dataset_split
        check_own_split(*training, source, split, allow=allow, streaming=streaming, log=evaluator.note)
    settings = {"config": config.dataset_config, "column_names": column_names}
    evaluator.load([own_benchmark(source, split=split, name="evaluation", title="own", **settings)])
    # Unavailable benchmarks are skipped, but this is the only set that the recipe is scored on.
    for skipped in evaluator.skipped:
        raise ValueError(f"evaluation: {source} is unavailable: {skipped['reason']} {skipped['how_to_fix']}")
    evaluator.images += [replace(image, name="own evaluation set") for image in scored_images(evaluator.loaded[0])]


def _load_benchmarks(
    evaluator: Evaluator, config: ExperimentConfig, needed: Sequence[str] = (), *, option: str = "evaluation_data"
) -> None:
    """Loads the named benchmarks. Skips unavailable data unless the benchmark's title is `needed`."""
    # With `sandbox+benchmarks`, scenes are already loaded, and they do not count as an available benchmark.
    drawn = len(evaluator.loaded)
    folders = data_folders(parse_folders(config.evaluation_data, option=option), option=option)
    chosen = {benchmark.name: benchmark for benchmark in find_benchmarks(config.evaluation_benchmarks)}
    evaluator.load(chosen.values(), folders)
    for skipped in evaluator.skipped:
        name = skipped["benchmark"]
        message = f"evaluation: {name} is unavailable: {skipped['reason']} {skipped['how_to_fix']}"
        message = f"{message} In a recipe, that option is --{option}."
        if chosen[name].title in needed:
            raise ValueError(message)
        evaluator.note(f"{message} The benchmark is skipped.")
    folders.check_used(option)
    if len(evaluator.loaded) == drawn:
        raise ValueError(f"evaluation: none of {', '.join(config.evaluation_benchmarks)} is available; see above.")
    # The sandbox's training sets already exclude the images of its evaluation scenes.
    evaluator.images += [image for loaded in evaluator.loaded[drawn:] for image in scored_images(loaded)]


def _check_main(main: Sequence[str], titles: Sequence[str], where: str) -> None:
    for name in main:
        if name not in titles:
            known = "; ".join(dict.fromkeys(titles))
            raise ValueError(f"found {name!r}, expected one of {where}: {known}.{nearest(name, titles)}")


def prepare_base(config: ExperimentConfig) -> None:
    """Checks that the base and the files of a recipe exist, so a mistyped name costs nothing."""
    # Files are checked before the Hub is queried for a model, which takes seconds.
    for name in ("model", "dataset", "replay_dataset", "evaluation_dataset", "captions_file", "concreteness_ratings"):
        check_place(name, getattr(config, name))
    if config.model:
        try:
            # The configuration is enough to see whether it is a dual encoder; no weights are needed.
            load_config(config.model)
            load_processor(config.model, argument="--model")
        except OSError as error:
            place = "" if Path(config.model).is_dir() else "no such local folder, and from the Hub: "
            raise OSError(f"model={config.model}: {place}{error}") from error
    elif config.fresh_model not in SANDBOX_MODELS:
        check_vocabulary(config.clip_vocabulary)


def base_model(config: ExperimentConfig, folder: Path, seed: int) -> Path | str:
    """The model that all arms start from: the recipe's model, or a fresh one written to `base/` in `folder`."""
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
        raise RuntimeError(
            f"{folder}: this process cannot see the model that the main process wrote. Use a shared disk."
        )


def score_blind_rules(config: ExperimentConfig, evaluator: Evaluator) -> BlindResults:
    """Scores the rules that read only texts on the benchmarks of a recipe."""
    folders = data_folders(parse_folders(config.evaluation_data, option=OPTION), option=OPTION)
    rules = BlindRules(config.blind_captions, folders)
    # Keyed by the titles in a run's outcomes, which do not mention missing images.
    tables = rules.score((loaded.benchmark.title, loaded.benchmark, loaded.data) for loaded in evaluator.loaded)
    return BlindResults.join(tables, **rules.facts)


def published_effects(config: ExperimentConfig) -> list[dict[str, Any]]:
    """Differences between the models of `published_models` on `published_measure`.

    Returns:
        Mappings with `model`, `reference` (names of models in the run), `value` from -1 to 1, and `place`, the source.
    """
    if config.published_models is None:
        return []
    benchmark, _, metric = str(config.published_measure).rpartition(": ")
    values = {score.model: score.value for score in published_scores(benchmark) if score.metric == metric}
    if not values:
        known = {f"{score.benchmark}: {score.metric}" for score in published_scores()}
        problem = f"published_measure: {config.published_measure!r} has no published numbers."
        raise ValueError(f"{problem}{nearest(str(config.published_measure), known)}")
    for name in config.published_models.values():
        if name not in values:
            raise ValueError(
                f"published_models: {name!r} has no published number for {config.published_measure}."
                f"{nearest(name, values)} Known: {', '.join(values)}."
            )
    return [
        {
            "model": model,
            "reference": reference,
            "value": values[config.published_models[model]] - values[config.published_models[reference]],
            "place": benchmark,
        }
        for model, reference in permutations(config.published_models, 2)
    ]
