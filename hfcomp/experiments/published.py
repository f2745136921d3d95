"""Published sizes of the effects that a recipe measures."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from hfcomp.evaluation.published.scores import published_scores
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.reading import nearest


def published_effects(config: ExperimentConfig) -> list[dict[str, Any]]:
    """Differences between the models of `published_models` on `published_measure`.

    Returns:
        `model`, `reference` (names of the run's models), `value` from -1 to 1 and `place`, the source.

    Raises:
        ValueError: for a measure or a model without published numbers.
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
