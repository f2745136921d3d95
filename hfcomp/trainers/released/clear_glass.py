"""CLEAR GLASS as in its authors' code: `alpha` weights the loss between groups, joint vectors are normalized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from hfcomp.losses import centroid_group_loss
from hfcomp.losses.group_pairwise import released_pairwise_group_loss
from hfcomp.trainers.clear_glass import ClearGlassConfig, ClearGlassTrainer, GroupLoss
from hfcomp.trainers.config import option
from hfcomp.trainers.hooks import declare_info_nce


@dataclass
class ClearGlassReleasedConfig(ClearGlassConfig):
    """Arguments of [`ClearGlassReleasedTrainer`], with the values of the paper's Table 2."""

    alpha: float = option(0.7, "Weight of the loss between groups, 0 to 1; the loss within groups has 1 - alpha.")


class ClearGlassReleasedTrainer(ClearGlassTrainer):
    """Trains with the losses of CLEAR GLASS's released code; `ClearGlassTrainer` has the losses of the paper.

    `alpha` weights the loss between groups. With `grouping="pairwise"`, a group's centroid is the mean of joint
    vectors normalized to length 1; in the paper it is the mean of the joint vectors themselves. The batches do not
    follow the released code, which draws hard-negative groups with replacement and only ever uses each group's first
    pairs.
    """

    config_class = ClearGlassReleasedConfig

    def group_loss_function(self, grouping: str) -> GroupLoss | None:
        """Returns the released loss that a config selects, or `None` for `grouping="none"`."""
        return {"pairwise": released_pairwise_group_loss, "centroid": _released_centroid_loss, "none": None}[grouping]


def _released_centroid_loss(
    image: torch.Tensor, text: torch.Tensor, *, alpha: float, **settings: Any
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return centroid_group_loss(image, text, alpha=1 - alpha, **settings)


declare_info_nce(ClearGlassReleasedTrainer, grouping="none")
