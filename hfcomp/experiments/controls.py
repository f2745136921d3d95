"""Controls: runs to compare a method with, trained from the same base with the same positives and the same steps.

Each control is a function from the method's arm to its own arm. It raises `NotApplicable` if the comparison would not
be informative. This module also builds the method on the sandbox's rows with human ratings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import torch
from datasets import Dataset, IterableDataset

from hfcomp.data.collators import negative_entries
from hfcomp.data.concepts.spans import RandomSpans
from hfcomp.data.image_ids import photographs_or_rows
from hfcomp.data.loading import present_entries
from hfcomp.data.negatives import ShuffledNegatives, derangement, is_negative, with_concreteness
from hfcomp.data.sampling.replay import count_replay_rows
from hfcomp.experiments.arm import Arm
from hfcomp.experiments.experiment_config import HUMAN, SAME_BATCH, STATIC_MARGIN, ExperimentConfig
from hfcomp.trainers.cement import RATED_MARGINS, CementConfig, CementTrainer, margin_function
from hfcomp.trainers.cost import StageSummary
from hfcomp.trainers.grouped import GroupedTrainer
from hfcomp.trainers.hooks import INFO_NCE_FORMS
from hfcomp.trainers.hooks import declare_info_nce as declare_info_nce  # third-party objectives import it from here
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.stages import stage_config, world_size_at_launch

# Arguments that InfoNCE on only the positives would reject, or that would add more than the positives.
NEGATIVE_ARGUMENTS = ("num_negatives", "max_concepts", "draw_negatives", "num_neighbors")
# Columns that a rating-dependent margin reads.
COLUMNS = ("negative_captions", "negative_concreteness")
Log = Callable[[str], None]


class NotApplicable(ValueError):
    """The control is not informative for this method; the message says why."""


class Undeclared(NotApplicable):
    """The objective does not declare what the control needs; the message says how to fix it."""


def plain(method: Arm) -> Arm:
    """InfoNCE on the positives (the sigmoid loss for SigLIP): the effect of training on these captions and no more."""
    arguments = {key: value for key, value in method.arguments.items() if key not in NEGATIVE_ARGUMENTS}
    return replace(method, name="plain", trainer_class=InfoNCETrainer, arguments=arguments)


def same_batch(method: Arm) -> Arm:
    """InfoNCE on the method's own batch, negatives included: shows what the objective adds to the data.

    Not applicable if the objective is InfoNCE already, or if it reads no negatives and the control would equal plain.
    """
    objective = method.trainer_class
    # Looks up the class itself, because a subclass may have terms that its parent's settings do not cover.
    form = INFO_NCE_FORMS.get(objective)
    if form is None:
        raise Undeclared(
            f"{objective.__name__} does not declare how it becomes InfoNCE. Next to the class, call hfcomp.trainers."
            f"hooks.declare_info_nce({objective.__name__}, ...) with the arguments that switch off its margins "
            "and additional terms, or leave same-batch out of --controls."
        )
    if form.trainer_class is objective and not form.arguments:
        raise NotApplicable(f"{objective.__name__} already is InfoNCE on its own batch.")
    if not _reads_negatives(method) and not issubclass(objective, GroupedTrainer):  # its batches differ from plain's
        raise NotApplicable(f"{method.name} reads no negatives, so InfoNCE on its batch equals plain.")
    arguments = {**method.arguments, **form.arguments}
    if form.trainer_class is not objective:  # its default may be another number
        arguments.setdefault("num_negatives", objective.config_class.num_negatives)
    return replace(method, name=SAME_BATCH, trainer_class=form.trainer_class, arguments=arguments)


def static_margin(method: Arm) -> Arm:
    """The method itself with one margin for every pair: the mean of its own margin over the training rows."""
    # The method's gain over this control comes from the ratings of pairs, not from having a margin.
    margin = mean_margin(method, rated_config(method))
    if math.isnan(margin):
        raise NotApplicable("no row has a negative.")
    return replace(
        method,
        name=STATIC_MARGIN,
        arguments={**method.arguments, "margin": "static", "static_margin": margin},
        description=f"{method.name} with one margin for all pairs, the mean of {method.name}'s own margins "
        f"({margin:.2f} with seed {method.arguments.get('seed', 42)})",
    )


def rated_config(method: Arm) -> CementConfig:
    """The config of a method whose margin depends on the ratings of its rows; `NotApplicable` for any other."""
    # Only the class itself counts, because a subclass may define another margin.
    if method.trainer_class is not CementTrainer:
        raise NotApplicable(f"{method.name} has no margin that depends on ratings.")
    config = stage_config(method.trainer_class, Path("unused"), method.arguments, method.batch_size)
    if config.margin not in RATED_MARGINS:
        raise NotApplicable(f"{method.name} has the margin {config.margin}, which does not depend on ratings.")
    if not isinstance(method.rows, Dataset):
        raise NotApplicable(f"the mean of {method.name}'s margin needs all rows, but the training set is streamed.")
    missing = [name for name in COLUMNS if name not in method.rows.column_names]
    if missing:
        raise NotApplicable(f"the training set has no {' and no '.join(missing)}.")
    if config.draw_captions:
        raise NotApplicable(f"the mean of {method.name}'s margin is unknown, because captions are drawn every epoch.")
    return config


def mean_margin(arm: Arm, config: CementConfig) -> float:
    """The mean margin over a `CementTrainer`'s rows, in logits; NaN if no row has a negative.

    Raises:
        ValueError: If a row has no entry in `negative_captions`, or a rating is invalid.
    """
    columns = arm.rows.select_columns(list(COLUMNS))[:]
    entries = [
        negative_entries(dict(zip(columns, values, strict=True)), row, 1)[0]
        for row, values in enumerate(zip(*columns.values(), strict=True))
    ]
    # Counts as in the loss: a negative without a rating has a margin of 0, and a row with neither a negative caption
    # nor a negative image has no margin. float64, because the mean of millions of rows would lose digits in float32.
    margins = margin_function(config)(torch.tensor([values["negative_concreteness"] for _, values in entries]))
    texts = torch.tensor([bool(text) for text, _ in entries], dtype=torch.bool)
    images = torch.tensor(present_entries(arm.rows, "negative_image"), dtype=torch.bool)
    return margins[texts | images].double().mean().item()


def shuffled_negatives(method: Arm) -> Arm:
    """The method itself, with every row's negatives moved to a row with another photograph."""
    # The negatives are the same texts and images, but no longer close to their caption. A method that does equally
    # well with them gains from more data, not from hardness. The same holds for neighbors: each row gets images that
    # are close to another row.
    if _reads_negatives(method):
        _check_loaded(method)
    if not _reads_negatives(method) or not any(is_negative(name) for name in method.rows.column_names):
        raise NotApplicable(f"{method.name} reads no negatives.")
    if len(method.rows) < 2:
        raise NotApplicable("the training set has one row.")
    partners = derangement(photographs_or_rows(method.rows), int(method.arguments.get("seed", 42)))
    return replace(method, name="shuffled", rows=ShuffledNegatives(method.rows, partners))


def random_spans(method: Arm) -> Arm:
    """The method itself, with random word spans of a caption instead of its phrases."""
    # The spans match the phrases in number and length, so the same number of texts is encoded. A method that does
    # equally well with them gains from more and shorter texts, not from phrases that name a thing. Occasionally a span
    # is a phrase by chance.
    limit = method.arguments.get("max_concepts", method.trainer_class.config_class.max_concepts)
    if not limit or "concepts" not in method.rows.column_names:
        raise NotApplicable(f"{method.name} reads no concepts.")
    _check_loaded(method)
    return replace(method, name="random-spans", rows=RandomSpans(method.rows, int(method.arguments.get("seed", 42))))


def equal_images(method: Arm, cost: StageSummary) -> Arm:
    """Plain, encoding the same number of images as the method: shows what the method's `cost` buys in positives."""
    processes = world_size_at_launch()
    accumulated = int(method.arguments.get("gradient_accumulation_steps") or 1)
    fraction = method.arguments.get("replay_fraction", method.trainer_class.config_class.replay_fraction)
    replayed = count_replay_rows(fraction, method.batch_size, processes)
    # The batch grows by the images that the method encoded beyond its positives and replay rows. Steps and replay rows
    # stay the same; otherwise the control would differ in more than the positives.
    images = cost.images / (cost.steps * accumulated) - replayed
    batch = round(images / processes) * processes
    if batch <= method.batch_size:
        raise NotApplicable(f"{method.name} encodes no more images than plain.")
    if not isinstance(method.rows, IterableDataset) and batch > len(method.rows):
        raise NotApplicable(f"its batch of {batch:,} rows is larger than the training set ({len(method.rows):,}).")
    arm = plain(method)
    changed = {"max_steps": cost.steps} | ({"replay_fraction": replayed / (replayed + batch)} if replayed else {})
    return replace(arm, name=EQUAL_IMAGES, batch_size=batch, arguments={**arm.arguments, **changed})


# Controls that can be built before the method is trained.
CONTROLS = {
    "plain": plain,
    SAME_BATCH: same_batch,
    STATIC_MARGIN: static_margin,
    "shuffled": shuffled_negatives,
    "random-spans": random_spans,
}
EQUAL_IMAGES = "equal-images"


def compared_arms(config: ExperimentConfig, method: Arm, *, requested: bool, log: Log) -> list[Arm]:
    """The arms that a recipe trains before its method: see `control_arms` and `rated_arms`."""
    return [*control_arms(config.controls, method, requested=requested, log=log), *rated_arms(config, method, log)]


def control_arms(names: Collection[str], method: Arm, *, requested: bool, log: Log) -> list[Arm]:
    """The requested controls that are informative for a method, in the order of `CONTROLS`; logs skipped ones."""
    arms = []
    for name, control in CONTROLS.items():
        try:
            arms += [control(method)] if name in names else []
        except NotApplicable as reason:
            # A default control may be skipped, but not one that a recipe or command line requests.
            if requested and isinstance(reason, Undeclared):
                raise Undeclared(f"control {name}: {reason}") from None
            log(f"control {name} is skipped: {reason}")
    for arm in arms:
        if arm.description:
            log(f"{arm.name}: {arm.description}")
    return arms


def _reads_negatives(method: Arm) -> bool:
    return any("negative" in name for name in method.trainer_class.required_features) or any(
        method.arguments.get(name) for name in ("num_negatives", "num_neighbors")
    )


def _check_loaded(method: Arm) -> None:
    if isinstance(method.rows, IterableDataset):
        raise NotApplicable("it takes values from other rows or positions, but the training set is streamed.")


def rated_arms(config: ExperimentConfig, method: Arm, log: Log) -> list[Arm]:
    """The method, and the control `static-margin` if the recipe has it, on the sandbox's rows with human ratings."""
    path = config.concreteness_ratings
    if not config.rates_in_sandbox or config.joins_ratings:
        return []
    try:
        margin = rated_config(method)
    except NotApplicable as reason:
        if path:
            log(f"concreteness_ratings is not read: {reason}")
        return []
    names = [f"{name}-{HUMAN}" for name in (STATIC_MARGIN, method.name) if name in (*config.controls, method.name)]
    if not path:
        log(f"No human ratings: pass --concreteness_ratings FILE to also run {' and '.join(names)}.")
        return []
    human = replace(method, name=names[-1], rows=with_concreteness(method.rows, path, log))
    mean = mean_margin(human, margin)
    human = replace(human, description=f"{method.name} with human ratings ({Path(path).name}), mean margin {mean:.2f}")
    arms = [replace(static_margin(human), name=name) for name in names[:-1]] + [human]
    for arm in arms:
        log(f"{arm.name}: {arm.description}")
    return arms
