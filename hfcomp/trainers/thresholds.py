"""Shared code of trainers whose hinge has adaptive thresholds, one per kind of negative."""

from __future__ import annotations

from typing import Any

import torch

from hfcomp.data.columns import NEGATIVE_KINDS
from hfcomp.losses import adaptive_threshold
from hfcomp.modeling import Features
from hfcomp.trainers._support.step_log import StepLog
from hfcomp.trainers.base import CompositionalTrainer


class ThresholdTrainer(CompositionalTrainer):
    """Base of trainers whose objective state holds a `RunningThreshold` for all kinds of negatives as `threshold`.

    In training, each batch sets the thresholds of the next one; evaluation does not change them. The log holds
    `threshold_<kind>`, as used by the loss, for the kinds of the line's last batch.
    """

    required_features = (
        "image_embeds",
        "text_embeds",
        "negative_text_embeds",
        "negative_text_mask",
        "negative_kind",
        "logit_scale",
        "learned",
    )
    # Not optional: without kinds all negatives would silently share one threshold.
    optional_columns = tuple(name for name in CompositionalTrainer.optional_columns if name != "negative_kinds")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.step_log = StepLog(entries={"threshold": NEGATIVE_KINDS})

    def next_threshold(self, features: Features) -> torch.Tensor:
        """Computes the thresholds [kinds] for the next batch from the global batch."""
        return adaptive_threshold(
            features.image_embeds,
            features.text_embeds,
            features.negative_text_embeds,
            previous=features.learned["threshold"],
            negative_kind=features.negative_kind,
            negative_mask=features.own_negative_mask,
        )

    def reduce_loss(
        self,
        loss: torch.Tensor,
        metrics: dict[str, torch.Tensor],
        features: Features,
        return_outputs: bool = False,
    ) -> Any:
        """Reduces as [`CompositionalTrainer`] does. In training, also sets the thresholds of the next batch."""
        if self.model.training:
            # The loss of this batch used the previous thresholds, of which `features` holds a copy. All processes
            # have the global batch, so they set the same thresholds without a collective.
            self.model.objective_state["threshold"].update(self.next_threshold(features))
        return super().reduce_loss(loss, metrics, _with_present_kinds(features), return_outputs)


def _with_present_kinds(features: Features) -> Features:
    """Sets the learned `threshold` to NaN, which the log omits, for kinds without negatives."""
    threshold = features.learned["threshold"]
    kinds = torch.arange(len(threshold), device=threshold.device)
    member = features.negative_kind.unsqueeze(-1) == kinds
    present = (member & features.own_negative_mask.unsqueeze(-1)).any(1).any(0)
    learned = {**features.learned, "threshold": threshold.masked_fill(~present, torch.nan)}
    return Features(**dict(features) | {"learned": learned})
