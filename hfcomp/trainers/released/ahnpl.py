"""AHNPL as in its authors' code: contrasts with all negatives, and thresholds in logits that are reset each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback

from hfcomp.data.columns import NEGATIVE_KINDS
from hfcomp.losses import RunningThreshold
from hfcomp.losses.ahnpl_released import ahnpl_released_loss, logit_threshold
from hfcomp.modeling import Features
from hfcomp.trainers.config import WEIGHT, CompositionalConfig, Limits, option, setting
from hfcomp.trainers.hooks import declare_info_nce
from hfcomp.trainers.thresholds import ThresholdTrainer

SCRIPT = "the released script"


@dataclass
class AHNPLReleasedConfig(CompositionalConfig):
    """Arguments of [`AHNPLReleasedTrainer`]; the defaults are the released script's."""

    num_train_epochs: float = setting(10.0, SCRIPT)
    learning_rate: float = setting(2.0e-5, SCRIPT)
    weight_decay: float = setting(0.1, SCRIPT)
    num_negatives: int = option(5, "Negative captions read per row.")
    multimodal_weight: float = option(
        0.2, "Weight of the textual and the visual contrast with negatives, in nats.", None, WEIGHT
    )
    margin_weight: float = option(0.2, "Weight of the hinge on own negatives, which is in logits.", None, WEIGHT)
    threshold_maximum: float = option(
        10.0,
        "Upper bound of the hinge's thresholds, in logits; the lower bound is 0.",
        limits=Limits(gt=0, advice=" (logits), or inf"),
    )


class AHNPLReleasedTrainer(ThresholdTrainer):
    """Trains with the loss of AHNPL's released code (Huang et al. 2025); `AHNPLTrainer` has the loss of the paper.

    Needs `negative_captions` and `negative_kinds`: each kind of negative has its own threshold. All thresholds are 0
    in the first batch of every epoch, as released; each batch sets those of the next one from the similarities of the
    global batch. They are saved next to the model, and a run resumed in the middle of an epoch keeps them. Evaluation
    does not change them. The log holds `threshold_<kind>`, in logits, for the kinds of the line's last batch.
    """

    config_class = AHNPLReleasedConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_callback(ThresholdReset(self.model.objective_state["threshold"]))

    def objective_state(self, args: AHNPLReleasedConfig) -> dict[str, nn.Module]:
        """Returns the thresholds, one per kind of negative."""
        return {"threshold": RunningThreshold(len(NEGATIVE_KINDS), minimum=0.0, maximum=args.threshold_maximum)}

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes the released loss of the global batch."""
        f = self.gather_features(model, inputs)
        loss, metrics = ahnpl_released_loss(
            f.image_embeds,
            f.text_embeds,
            f.negative_text_embeds,
            threshold=f.learned["threshold"],
            negative_kind=f.negative_kind,
            negative_mask=f.negative_text_mask,
            negative_text_id=f.negative_text_id,
            multimodal_weight=self.args.multimodal_weight,
            margin_weight=self.args.margin_weight,
            **f.common,
        )
        return self.reduce_loss(loss, metrics, f, return_outputs)

    def next_threshold(self, features: Features) -> torch.Tensor:
        """Computes the threshold in logits, with the mean over all rows for the own texts, as released."""
        return logit_threshold(
            features.image_embeds,
            features.text_embeds,
            features.negative_text_embeds,
            logit_scale=features.logit_scale,
            previous=features.learned["threshold"],
            negative_kind=features.negative_kind,
            negative_mask=features.own_negative_mask,
        )


class ThresholdReset(TrainerCallback):
    """Sets thresholds to 0 at the beginning of every epoch, except when resuming within one."""

    def __init__(self, threshold: RunningThreshold) -> None:
        self.threshold = threshold
        self.midway = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # The Trainer begins a resumed run's epoch a second time.
        self.midway = state.epoch is not None and state.epoch % 1 != 0

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.midway:
            self.threshold.update(torch.zeros_like(self.threshold()))
        self.midway = False


declare_info_nce(AHNPLReleasedTrainer, multimodal_weight=0.0, margin_weight=0.0)
