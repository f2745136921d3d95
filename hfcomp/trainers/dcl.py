"""Decoupled contrastive learning: InfoNCE without the positive in its denominator (Yeh et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from hfcomp.losses import dcl_loss
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.config import NEGCLIP, CompositionalConfig, setting
from hfcomp.trainers.hooks import declare_info_nce
from hfcomp.trainers.info_nce import InfoNCETrainer


@dataclass
class DCLConfig(CompositionalConfig):
    """Arguments of [`DCLTrainer`]. With `num_negatives` the negative captions join the image-to-text rows."""

    weight_decay: float = setting(0.2, NEGCLIP)


class DCLTrainer(CompositionalTrainer):
    """Trains with the decoupled contrastive loss on image-caption pairs, with or without negative captions.

    The positive is left out of the denominator, so its gradient does not fade when it scores high. With
    `num_negatives`, every image is also scored against all negative captions of the global batch, which the paper
    does not do.
    """

    config_class = DCLConfig

    def setup(self, args: DCLConfig, backbone: nn.Module) -> None:
        """Requires the negatives if there are any."""
        if args.num_negatives:
            self.required_features = (*type(self).required_features, "negative_text_embeds", "negative_text_mask")

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes the decoupled contrastive loss of the global batch."""
        f = self.gather_features(model, inputs)
        loss, metrics = dcl_loss(
            f.image_embeds,
            f.text_embeds,
            negative_text=f.negative_text_embeds,
            negative_mask=f.negative_text_mask,
            negative_text_id=f.negative_text_id,
            **f.common,
        )
        return self.reduce_loss(loss, metrics, f, return_outputs)


declare_info_nce(DCLTrainer, by=InfoNCETrainer, sigmoid=False)
