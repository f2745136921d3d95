"""Plain fine-tuning: InfoNCE for CLIP, the sigmoid loss for SigLIP. The control of every other objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from hfcomp.losses import info_nce_loss, sigmoid_loss
from hfcomp.trainers.config import NEGCLIP, option, setting
from hfcomp.trainers.drawn_batch import DrawnBatchConfig, DrawnBatchTrainer
from hfcomp.trainers.hooks import declare_info_nce


@dataclass
class InfoNCEConfig(DrawnBatchConfig):
    """Arguments of [`InfoNCETrainer`]. With `num_negatives`, the negative captions join the image-to-text rows.

    NegCLIP (Yuksekgonul et al. 2022) is `num_negatives=1, draw_negatives=True, num_neighbors=1`.
    """

    weight_decay: float = setting(0.2, NEGCLIP)
    sigmoid: bool | None = option(
        None, "Use the sigmoid loss instead of InfoNCE. Unset: the loss the model was pretrained with."
    )


class InfoNCETrainer(DrawnBatchTrainer):
    """Contrastive fine-tuning on image-caption pairs, with or without negative captions.

    CLIP: InfoNCE (Radford et al. 2021), the mean of both directions. With `num_negatives`, every image is also scored
    against all negative captions of the global batch. SigLIP: the sigmoid loss (Zhai et al. 2023).
    """

    config_class = InfoNCEConfig

    def setup(self, args: InfoNCEConfig, backbone: nn.Module) -> None:
        """Selects the loss. The sigmoid loss also requires `logit_bias`, InfoNCE the negatives if there are any.

        Raises:
            ValueError: For the sigmoid loss on a model without a bias, or with negative captions.
        """
        self.sigmoid = has_sigmoid_loss(args.sigmoid, backbone)
        further: tuple[str, ...] = ("negative_text_embeds", "negative_text_mask") if args.num_negatives else ()
        if self.sigmoid:
            if args.num_negatives:
                raise ValueError(
                    f"num_negatives={args.num_negatives}: the sigmoid loss does not use negative captions. For "
                    "InfoNCE with negatives on this model set sigmoid=False, or remove num_negatives (and "
                    "draw_negatives)."
                )
            further = ("logit_bias",)
        self.required_features = (*type(self).required_features, *further)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes the loss of the global batch."""
        f = self.gather_features(model, inputs)
        if self.sigmoid:
            loss, metrics = sigmoid_loss(f.image_embeds, f.text_embeds, logit_bias=f.logit_bias, **f.common)
        else:
            loss, metrics = info_nce_loss(
                f.image_embeds,
                f.text_embeds,
                negative_text=f.negative_text_embeds,
                negative_mask=f.negative_text_mask,
                negative_text_id=f.negative_text_id,
                **f.common,
            )
        return self.reduce_loss(loss, metrics, f, return_outputs)


def has_sigmoid_loss(choice: bool | None, backbone: nn.Module) -> bool:
    """Whether to train with sigmoid losses: the user's choice, by default as the model was pretrained (SigLIP)."""
    if choice and not hasattr(backbone, "logit_bias"):
        raise ValueError("sigmoid=True needs a model with a logit_bias, such as SigLIP. Remove it to train a CLIP.")
    return hasattr(backbone, "logit_bias") if choice is None else choice


declare_info_nce(InfoNCETrainer)
