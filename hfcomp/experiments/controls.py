"""Controls: what a method is read against, from the same base, with the same positives and the same steps.

Each is a function from the method's arm to its own, which raises `NotApplicable` where it would say nothing. Beside
them is the method on the sandbox's rows with human ratings.
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
from hfcomp.trainers.hooks import declare_info_nce as declare_info_nce  # where objectives of others import it from
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.stages import stage_config, world_size_at_launch

# Arguments that InfoNCE on only the positives would reject, or that would bring it more than those.
NEGATIVE_ARGUMENTS = ("num_negatives", "max_concepts", "draw_negatives", "num_neighbors")
# Columns that a margin by ratings reads.
COLUMNS = ("negative_captions", "negative_concreteness")
Log = Callable[[str], None]


class NotApplicable(ValueError):
    """The control would say nothing about this method; the message says why."""


class Undeclared(NotApplicable):
    """The objective does not say what the control needs to know; the message says how to fix it."""


def plain(method: Arm) -> Arm:
    """InfoNCE on the positives (the sigmoid loss for SigLIP): what training on these captions alone gives."""
    arguments = {key: value for key, value in method.arguments.items() if key not in NEGATIVE_ARGUMENTS}
    return replace(method, name="plain", trainer_class=InfoNCETrainer, arguments=arguments)


def same_batch(method: Arm) -> Arm:
    """InfoNCE on the method's own batch, negatives included: what the objective adds to the data.

    Not applicable where the objective is InfoNCE, or reads no negatives, so that plain is the same.
    """
    objective = method.trainer_class
    # Looked up by the class itself: a subclass may have terms that its parent's settings do not cover.
    form = INFO_NCE_FORMS.get(objective)
    if form is None:
        raise Undeclared(
            f"{objective.__name__} does not say how it becomes InfoNCE. Beside the class call hfcomp.trainers."
            f"hooks.declare_info_nce({objective.__name__}, ...) with the arguments that switch its margins "
            "and further terms off, or leave same-batch out of --controls."
        )
    if form.trainer_class is objective and not form.arguments:
        raise NotApplicable(f"{objective.__name__} is InfoNCE on its own batch already.")
    if not _reads_negatives(method) and not issubclass(objective, GroupedTrainer):  # whose batches are not plain's
        raise NotApplicable(f"{method.name} reads no negatives: InfoNCE on its batch is plain.")
    arguments = {**method.arguments, **form.arguments}
    if form.trainer_class is not objective:  # whose default may be another number
        arguments.setdefault("num_negatives", objective.config_class.num_negatives)
    return replace(method, name=SAME_BATCH, trainer_class=form.trainer_class, arguments=arguments)


def static_margin(method: Arm) -> Arm:
    """The method itself with one margin for every pair, the mean of its own over the training rows."""
    # The method's gain over this control comes from telling pairs apart by their ratings, not from a margin as such.
    margin = mean_margin(method, rated_config(method))
    if math.isnan(margin):
        raise NotApplicable("no row has a negative.")
    return replace(
        method,
        name=STATIC_MARGIN,
        arguments={**method.arguments, "margin": "static", "static_margin": margin},
        description=f"{method.name} with the same margin for every pair, {margin:.2f}, the mean of its own",
    )


def rated_config(method: Arm) -> CementConfig:
    """The config of a method whose margin depends on the ratings of its rows; `NotApplicable` for any other."""
    # Only the class itself counts: a subclass may have a margin of its own.
    if method.trainer_class is not CementTrainer:
        raise NotApplicable(f"{method.name} has no margin that depends on ratings.")
    config = stage_config(method.trainer_class, Path("unused"), method.arguments, method.batch_size)
    if config.margin not in RATED_MARGINS:
        raise NotApplicable(f"{method.name} has the margin {config.margin}, which depends on no ratings.")
    if not isinstance(method.rows, Dataset):
        raise NotApplicable(f"the mean of {method.name}'s margin is over all rows, and the training set is streamed.")
    missing = [name for name in COLUMNS if name not in method.rows.column_names]
    if missing:
        raise NotApplicable(f"the training set has no {' and no '.join(missing)}.")
    if config.draw_captions:
        raise NotApplicable(f"the mean of {method.name}'s margin is not known, as captions are drawn in each epoch.")
    return config


def mean_margin(arm: Arm, config: CementConfig) -> float:
    """The mean in logits of the margin of a `CementTrainer`'s rows; NaN if no row has a negative.

    Raises:
        ValueError: for a row without an entry in `negative_captions`, or a rating that is none.
    """
    columns = arm.rows.select_columns(list(COLUMNS))[:]
    found = [
        negative_entries(dict(zip(columns, values, strict=True)), row, 1)[0]
        for row, values in enumerate(zip(*columns.values(), strict=True))
    ]
    # Counted as in the loss: a negative without a rating has the margin 0, and a row without negative caption and
    # negative image has none. In float64, because the mean of millions of rows would lose digits in float32.
    margins = margin_function(config)(torch.tensor([values["negative_concreteness"] for _, values in found]))
    texts = torch.tensor([bool(text) for text, _ in found], dtype=torch.bool)
    images = torch.tensor(present_entries(arm.rows, "negative_image"), dtype=torch.bool)
    return margins[texts | images].double().mean().item()


def shuffled(method: Arm) -> Arm:
    """The method itself with every row's negatives given to another row, of another photograph."""
    # The negatives stay what they are, as texts and as images, but are no longer near their caption. A method that
    # does as well with them gains from more data, not from hardness. The same holds for neighbors: each row brings
    # along what is near to another row.
    if _reads_negatives(method):
        _check_loaded(method)
    if not _reads_negatives(method) or not any(is_negative(name) for name in method.rows.column_names):
        raise NotApplicable(f"{method.name} reads no negatives.")
    if len(method.rows) < 2:
        raise NotApplicable("the training set has one row.")
    partners = derangement(photographs_or_rows(method.rows), int(method.arguments.get("seed", 42)))
    return replace(method, name="shuffled", rows=ShuffledNegatives(method.rows, partners))


def random_spans(method: Arm) -> Arm:
    """The method itself with runs of words from anywhere in a caption in place of its phrases."""
    # The runs have the number and the lengths of the phrases, so the same number of texts is encoded. A method that
    # does as well with them gains from more and shorter texts, not from phrases that name a thing. Now and then a run
    # is a phrase by chance.
    limit = method.arguments.get("max_concepts", method.trainer_class.config_class.max_concepts)
    if not limit or "concepts" not in method.rows.column_names:
        raise NotApplicable(f"{method.name} reads no concepts.")
    _check_loaded(method)
    return replace(method, name="random-spans", rows=RandomSpans(method.rows, int(method.arguments.get("seed", 42))))


def equal_images(method: Arm, cost: StageSummary) -> Arm:
    """Plain with as many images encoded as the method: what the method's `cost` buys in positives."""
    processes = world_size_at_launch()
    accumulated = int(method.arguments.get("gradient_accumulation_steps") or 1)
    fraction = method.arguments.get("replay_fraction", method.trainer_class.config_class.replay_fraction)
    replayed = count_replay_rows(fraction, method.batch_size, processes)
    # The batch grows by the images that the method encoded beyond its positives and replay rows. Steps and replay rows
    # stay the same, or the control would differ in more than the positives.
    images = cost.images / (cost.steps * accumulated) - replayed
    batch = round(images / processes) * processes
    if batch <= method.batch_size:
        raise NotApplicable(f"{method.name} encodes as many images as plain does.")
    if not isinstance(method.rows, IterableDataset) and batch > len(method.rows):
        raise NotApplicable(f"its batch of {batch:,} rows is larger than the training set ({len(method.rows):,}).")
    arm = plain(method)
    changed = {"max_steps": cost.steps} | ({"replay_fraction": replayed / (replayed + batch)} if replayed else {})
    return replace(arm, name=EQUAL_IMAGES, batch_size=batch, arguments={**arm.arguments, **changed})


# Controls that are known before the method is trained.
CONTROLS = {
    "plain": plain,
    SAME_BATCH: same_batch,
    STATIC_MARGIN: static_margin,
    "shuffled": shuffled,
    "random-spans": random_spans,
}
EQUAL_IMAGES = "equal-images"


def compared_arms(config: ExperimentConfig, method: Arm, *, asked: bool, log: Log) -> list[Arm]:
    """What a recipe trains beside its method before it: see `control_arms` and `rated_arms`."""
    return [*control_arms(config.controls, method, asked=asked, log=log), *rated_arms(config, method, log)]


def control_arms(names: Collection[str], method: Arm, *, asked: bool, log: Log) -> list[Arm]:
    """The controls of `CONTROLS` that say something about a method, in that order; skipped ones are logged."""
    found = []
    for name, control in CONTROLS.items():
        try:
            found += [control(method)] if name in names else []
        except NotApplicable as reason:
            # A default control may be missing. A control that a recipe or command line requests may not.
            if asked and isinstance(reason, Undeclared):
                raise Undeclared(f"control {name}: {reason}") from None
            log(f"control {name} is skipped: {reason}")
    for arm in found:
        if arm.description:
            log(f"{arm.name}: {arm.description}")
    return found


def _reads_negatives(method: Arm) -> bool:
    return any("negative" in name for name in method.trainer_class.required_features) or any(
        method.arguments.get(name) for name in ("num_negatives", "num_neighbors")
    )


def _check_loaded(method: Arm) -> None:
    if isinstance(method.rows, IterableDataset):
        raise NotApplicable("it gives rows those of another row or place, and the training set is streamed.")


def rated_arms(config: ExperimentConfig, method: Arm, log: Log) -> list[Arm]:
    """The control `static-margin`, if the recipe has it, and the method, on the sandbox's rows with human ratings."""
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
        log(f"Human ratings were not given: --concreteness_ratings FILE runs {' and '.join(names)} too.")
        return []
    human = replace(method, name=names[-1], rows=with_concreteness(method.rows, path, log))
    mean = mean_margin(human, margin)
    human = replace(human, description=f"{method.name} with human ratings ({Path(path).name}), mean margin {mean:.2f}")
    arms = [replace(static_margin(human), name=name) for name in names[:-1]] + [human]
    for arm in arms:
        log(f"{arm.name}: {arm.description}")
    return arms
