"""CLEAR GLASS as its authors' code trains it: `alpha` weighs the other term, joint vectors count by direction."""

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
    """Arguments of [`ClearGlassReleasedTrainer`], with the numbers of the paper's Table 2."""

    alpha: float = option(0.7, "Weight of the loss between groups, 0 to 1; 1 - alpha of the one within.")


class ClearGlassReleasedTrainer(ClearGlassTrainer):
    """Trains with the losses of the released code of CLEAR GLASS; `ClearGlassTrainer` has the paper's.

    `alpha` weighs the loss between groups. With `grouping="pairwise"` a group's centroid is the mean of joint vectors
    of length 1, in the paper of the joint vectors as they are. The code's batches are not followed: it draws
    hard-negative groups with replacement and shows the first pairs of each only.
    """

    config_class = ClearGlassReleasedConfig

    def loss_of(self, grouping: str) -> GroupLoss | None:
        """The released loss that a config names; `None` for the one that knows no groups."""
        return {"pairwise": released_pairwise_group_loss, "centroid": _released_centroid_loss, "none": None}[grouping]


def _released_centroid_loss(
    image: torch.Tensor, text: torch.Tensor, *, alpha: float, **settings: Any
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return centroid_group_loss(image, text, alpha=1 - alpha, **settings)


declare_info_nce(ClearGlassReleasedTrainer, grouping="none")
