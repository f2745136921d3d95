"""A recipe's training set: loads or generates rows, filters them, adds negatives, and removes scored images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from datasets import Dataset

from hfcomp.data.columns import rename_columns
from hfcomp.data.concepts.columns import with_concepts
from hfcomp.data.image_ids import IMAGE_ID, with_image_ids
from hfcomp.data.loading import contract_rows
from hfcomp.data.negatives import RATINGS, with_concreteness, with_keyword_negatives
from hfcomp.data.overlap import COLUMNS as IMAGE_COLUMNS
from hfcomp.data.overlap import ScoredImages
from hfcomp.data.pair_table import Log, Rows, RowSource, choose_captions, complete_rows, every_caption, read_rows
from hfcomp.data.sampling.neighbors import check_batch_images
from hfcomp.data.sampling.replay import with_shared_image_ids
from hfcomp.data.sources import load_source
from hfcomp.distributed import first_process_first
from hfcomp.evaluation.encoding.cache import open_cache
from hfcomp.evaluation.encoding.neighbors import with_neighbors
from hfcomp.experiments.arm import count_images, fit_batch, method_arm
from hfcomp.experiments.experiment_config import SANDBOX, SANDBOX_MODELS, ExperimentConfig
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.session import Session
from hfcomp.fields import columns_of
from hfcomp.negatives.keywords import MATCHINGS, PAPER_TABLE, read_keyword_table
from hfcomp.sandbox.bases import base_folder
from hfcomp.sandbox.ratings import LABELS


class TrainingSet(NamedTuple):
    """The rows that the arms of a study train on."""

    rows: Rows
    replay: Dataset | None = None  # rows of a general dataset, some of which are added to every batch


def load_rows(
    recipe: Recipe,
    session: Session,
    scored: Sequence[ScoredImages],
    *,
    part: str = "",
    trainers: Sequence[type] = (),
) -> TrainingSet:
    """Loads the rows that the method and its controls train on, and the rows that they replay.

    Args:
        recipe: Recipe whose rows are loaded.
        session: Session that logs which rows are left out.
        scored: Images of the evaluation. `overlap` decides what happens to training and replay rows that show them.
        part: Prefix of log lines about the rows.
        trainers: Additional trainer classes, besides the recipe's own, that train on these rows.
    """

    def log(note: str) -> None:
        session.log(f"{part}: {note}" if part else note)

    number = num_negatives(recipe)
    with first_process_first():  # the other processes then use its cache
        rows = training_rows(recipe.experiment, recipe.column_names, seed=recipe.seed, num_negatives=number, log=log)
    classes = (recipe.trainer_class, *trainers)
    read = {"image", *columns_of(name for trainer in classes for name in trainer.required_features)}
    columns = [name for name in IMAGE_COLUMNS if name in read]
    config = recipe.experiment
    if RATINGS in read and config.rates_in_sandbox and not config.joins_ratings:
        human = "; concreteness_ratings is not used for these rows" if config.concreteness_ratings else ""
        log(f"concreteness of the sandbox's keywords: {LABELS[config.ratings]}{human}")
    # Fields that determine the rows; evaluation fields do not. Images are looked up by hash once per key, so the seed
    # is left out if it determines only texts: three seeds then share one search for scored images.
    values = {name: value for name, value in config.model_dump().items() if not name.startswith("evaluation")}
    given = {"seed": recipe.seed, "columns": recipe.column_names, "negatives": number}
    seeded = config.dataset == SANDBOX or config.keyword_captions_only
    guard = partial(
        session.overlap.without_scored,
        scored=scored,
        policy=config.overlap,
        log=log,
        progress=session.state.is_main_process and not session.quiet,
    )
    images_key = [values, given if seeded else {"columns": given["columns"]}]
    rows = guard(rows, columns=columns, key=[values, given], images_key=images_key)
    replay = None
    if config.replay_dataset:
        with first_process_first():
            replay = replay_rows(config, seed=recipe.seed, log=log)
        log(f"replay: {len(replay):,} rows of {config.replay_dataset}; all models get the same rows")
        key = ["replay", values, recipe.seed]
        replay = guard(replay, columns=["image"], key=key, images_key=key, part="the replay set")
    # Image ids are added here, so the controls do not read the images again.
    if not isinstance(rows, Dataset):
        replay = replay and with_image_ids(replay)
    elif replay is None:
        rows = with_image_ids(rows)
    else:
        rows, replay = with_shared_image_ids(rows, replay)
    size = fit_batch(recipe.batch, rows, log)
    if recipe.batch.neighbors and isinstance(rows, Dataset):  # checked before images are encoded
        check_batch_images(count_images(rows), size, recipe.batch.neighbors, "--batch_size")
    if config.hard_images:
        arm = method_arm(recipe, rows, replay)  # checks the rows before all images are embedded
        replace(arm, arguments={**arm.arguments, "num_neighbors": 0}).check()
        with first_process_first():
            rows = _with_hard_images(config, rows, log, session.device)
    return TrainingSet(rows, replay)


def num_negatives(recipe: Recipe) -> int:
    """Number of negatives per row: as many as the trainer reads, or one for the controls if it reads none."""
    return max(1, int(recipe.trainer_arguments.get("num_negatives", recipe.trainer_class.config_class.num_negatives)))


def training_rows(
    config: ExperimentConfig, column_names: Any = None, *, seed: int, log: Log, num_negatives: int = 1
) -> Rows:
    """Loads the rows of an experiment, including those that its evaluation scores.

    With `captions: all`, all first captions come first, then all second captions and so on. The seed determines the
    sandbox's scenes and the keyword negatives.
    """
    if config.dataset == SANDBOX:
        dataset = rename_columns(_sandbox_rows(config, seed, num_negatives), column_names)
    else:
        dataset = _loaded_rows(config, column_names, log)
    if config.keyword_negatives:
        dataset = with_keyword_negatives(
            dataset,
            config.keyword_negatives,
            num_negatives=num_negatives,
            seed=seed,
            matching=MATCHINGS[config.keyword_matching],
            table=read_keyword_table(config.keyword_table) if config.keyword_table else PAPER_TABLE,
            others="are left out" if config.keyword_captions_only else "are used without one",
            log=log,
        )
    if config.joins_ratings:
        dataset = with_concreteness(dataset, config.concreteness_ratings, log)
    if config.concept_parser:
        dataset = with_concepts(dataset, config.concept_parser, log)
    if config.streaming:
        return dataset
    captions = config.captions == "all" or bool(config.captions_file)
    dataset = complete_rows(dataset, captions=captions, negatives=config.keyword_captions_only)
    if config.keyword_captions_only and not len(dataset):
        raise ValueError(
            f"keyword_captions_only: no caption contains a keyword of {', '.join(config.keyword_negatives or [])}. "
            "Choose other concepts, or set keyword_matching: extended, which matches more forms of the keywords."
        )
    return dataset


def _loaded_rows(config: ExperimentConfig, column_names: Any, log: Log) -> Rows:
    """Loads a dataset with the contract's column names and one caption per row, except when streaming."""
    source = RowSource(
        name=config.dataset,
        split=config.dataset_split,
        config=config.dataset_config,
        column_names=column_names,
        captions_file=config.captions_file,
        key_column=config.key_column,
        captions_columns=config.captions_columns,
        condition=config.dataset_filter,
        streaming=config.streaming,
    )
    dataset = read_rows(source, log)
    if config.captions == "drawn":
        log("several captions per image: one is drawn every epoch")
    if config.streaming or config.captions == "drawn":
        return dataset
    return every_caption(dataset, log) if config.captions == "all" else choose_captions(dataset, config.captions, log)


def replay_rows(config: ExperimentConfig, *, seed: int, log: Log) -> Dataset:
    """Loads an experiment's replay rows, one caption each, including rows that its evaluation scores."""
    if config.replay_dataset == SANDBOX:
        from hfcomp.sandbox import REPLAY_SEED, pretraining_set

        # Scenes like those in the second phase of the bases' pretraining, which a base knows and may forget.
        return pretraining_set(config.dataset_rows, REPLAY_SEED + seed, places=True)
    part = {"split": config.replay_split, "config": config.replay_config}
    dataset = load_source(config.replay_dataset, **part)
    dataset = contract_rows(dataset, config.replay_dataset, config.replay_column_names, **part)
    if config.captions != "drawn":
        dataset = choose_captions(dataset, "first" if config.captions == "first" else "longest", log)
    return dataset.select_columns([name for name in ("image", "caption", IMAGE_ID) if name in dataset.column_names])


def _sandbox_rows(config: ExperimentConfig, seed: int, num_negatives: int) -> Dataset:
    from hfcomp.sandbox import KIND_WEIGHTS, training_set

    kinds = config.negative_kinds
    return training_set(
        config.dataset_rows,
        seed,
        kind_weights={kind: KIND_WEIGHTS.get(kind, 1.0) for kind in kinds} if kinds else None,
        # More negatives would change the scenes. With keyword negatives, the scenes are the same for any number.
        num_negatives=1 if config.keyword_negatives else num_negatives,
        edit_noise=config.edit_noise,
        edit_noise_step=config.edit_noise_step,
        caption_noise=config.caption_noise,
        false_negatives=config.false_negatives,
        ratings="bands" if config.joins_ratings else config.ratings,  # human ratings are joined later
    )


def _with_hard_images(config: ExperimentConfig, rows: Rows, log: Log, device: str | None) -> Rows:
    """Adds each image's nearest neighbors according to the base model."""
    place, cache = config.model or base_folder(SANDBOX_MODELS[config.fresh_model]), open_cache()
    return with_neighbors(rows, place=place, number=config.hard_images, log=log, cache=cache, device=device)
