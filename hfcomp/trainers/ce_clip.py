"""CE-CLIP: InfoNCE with negative captions, an intra-modal contrast, and a rank loss with model-adaptive thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from hfcomp.data.columns import NEGATIVE_KINDS
from hfcomp.losses import RunningThreshold, ce_clip_loss
from hfcomp.trainers.config import WEIGHT, CompositionalConfig, Limits, option, setting
from hfcomp.trainers.hooks import declare_info_nce
from hfcomp.trainers.thresholds import ThresholdTrainer

SCRIPT = "the released script"


@dataclass
class CEClipConfig(CompositionalConfig):
    """Arguments of [`CEClipTrainer`]. Weights and bound are the released run's, in the units of our losses."""

    num_train_epochs: float = setting(10.0, SCRIPT)
    learning_rate: float = setting(5.0e-6, SCRIPT)
    weight_decay: float = setting(0.1, SCRIPT)
    num_negatives: int = option(4, "Negative captions read per row.")
    rank_weight: float = option(5.0, "Weight of the rank loss, which is in cosine.", SCRIPT, WEIGHT)
    intra_modal_weight: float = option(0.3, "Weight of the intra-modal contrast, in nats.", SCRIPT, WEIGHT)
    threshold_maximum: float = option(
        0.1,
        "Upper bound of the rank loss's thresholds, in cosine; 0.1 is 10 logits at a scale of 100.",
        limits=Limits(gt=0, advice=" (cosine), or inf"),
    )


class CEClipTrainer(ThresholdTrainer):
    """Trains with the CE-CLIP loss (Zhang et al. 2024).

    Needs `negative_captions` and `negative_kinds`: each kind of negative has its own threshold. It starts at 0, and
    each batch sets it for the next one from the similarities of the global batch. It is saved next to the model,
    resumed and, unlike in the released code, not reset between epochs. Evaluation does not change it. The log holds
    `threshold_<kind>`, in cosine, for the kinds of the line's last batch.
    """

    config_class = CEClipConfig

    def objective_state(self, args: CEClipConfig) -> dict[str, nn.Module]:
        """Returns the thresholds, one per kind of negative."""
        return {"threshold": RunningThreshold(len(NEGATIVE_KINDS), maximum=args.threshold_maximum)}

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes the CE-CLIP loss of the global batch."""
        f = self.gather_features(model, inputs)
        loss, metrics = ce_clip_loss(
            f.image_embeds,
            f.text_embeds,
            f.negative_text_embeds,
            threshold=f.learned["threshold"],
            negative_kind=f.negative_kind,
            negative_mask=f.negative_text_mask,
            negative_text_id=f.negative_text_id,
            rank_weight=self.args.rank_weight,
            intra_modal_weight=self.args.intra_modal_weight,
            **f.common,
        )
        return self.reduce_loss(loss, metrics, f, return_outputs)


declare_info_nce(CEClipTrainer, rank_weight=0.0, intra_modal_weight=0.0)
