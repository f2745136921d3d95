"""The mean of a margin that depends on ratings, over the rows that an arm trains on."""

from __future__ import annotations

import torch

from hfcomp.data.collators import negative_entries
from hfcomp.data.loading import entries_there
from hfcomp.experiments.arm import Arm
from hfcomp.trainers.cement import CementConfig, margin_function

COLUMNS = ("negative_captions", "negative_concreteness")
"""That the rows need."""


def mean_margin(arm: Arm, config: CementConfig) -> float:
    """The mean of an arm's margin over its rows, in logits, as the loss counts it.

    A negative without a rating has the margin 0, and a row without negative caption and negative image has none.

    Args:
        arm: that trains `CementTrainer` on a data set with the `COLUMNS`.
        config: its config, of which the margin is taken.

    Returns:
        The mean, NaN where no row has a negative.

    Raises:
        ValueError: for a row without an entry in `negative_captions`, or a rating that is none.
    """
    columns = arm.rows.select_columns(list(COLUMNS))[:]
    found = [
        negative_entries(dict(zip(columns, values, strict=True)), row, 1)[0]
        for row, values in enumerate(zip(*columns.values(), strict=True))
    ]
    margins = margin_function(config)(torch.tensor([values["negative_concreteness"] for _, values in found]))
    texts = torch.tensor([bool(text) for text, _ in found], dtype=torch.bool)
    images = torch.tensor(entries_there(arm.rows, "negative_image"), dtype=torch.bool)
    return margins[texts | images].double().mean().item()
