"""The method on the sandbox's rows with human ratings, beside the method on those of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hfcomp.data.negatives import with_concreteness
from hfcomp.experiments.arm import Arm
from hfcomp.experiments.controls import NotApplicable, rated_config, static_margin
from hfcomp.experiments.experiment_config import HUMAN, STATIC_MARGIN
from hfcomp.experiments.mean_margin import mean_margin
from hfcomp.experiments.recipes import Recipe

Log = Callable[[str], None]


def rated_arms(recipe: Recipe, method: Arm, log: Log) -> list[Arm]:
    """The control `static-margin`, where the recipe has it, and the method, on the same rows with human ratings.

    None where the rows are not the sandbox's, the method has human ratings itself or depends on none, or the recipe
    names no file of them; what is left out is logged.
    """
    config, path = recipe.experiment, recipe.experiment.concreteness_ratings
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
