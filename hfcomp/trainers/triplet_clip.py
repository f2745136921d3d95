"""TripletCLIP: InfoNCE with negative captions, once for the originals and once for the hard negative pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from hfcomp.losses import triplet_clip_loss
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.config import NEGCLIP, CompositionalConfig, option, setting
from hfcomp.trainers.hooks import declare_info_nce


@dataclass
class TripletClipConfig(CompositionalConfig):
    """Arguments of [`TripletClipTrainer`]."""

    weight_decay: float = setting(0.2, NEGCLIP)
    num_negatives: int = option(1, "Must be 1: each row has one negative pair.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_negatives != 1:
            raise ValueError(
                f"num_negatives={self.num_negatives}: TripletCLIP pairs each row with exactly 1 negative."
            )


class TripletClipTrainer(CompositionalTrainer):
    """Trains with the TripletCLIP loss (Patel et al. 2024) on captions, images, and a hard negative pair for each.

    Needs `negative_captions`, of which it reads the first, and `negative_image`, which shows it. A row without a
    negative image takes part with its negative caption only; a dataset in which no row has one is rejected.
    """

    config_class = TripletClipConfig
    negative_images_advice = (
        "Without negative images the loss is InfoNCE with negative captions. Add a negative_image that matches the "
        "row's first negative caption, or use that objective: InfoNCETrainer with num_negatives=1 (recipe negclip)."
    )
    required_features = (
        "image_embeds",
        "text_embeds",
        "negative_image_embeds",
        "negative_text_embeds",
        "negative_image_mask",
        "negative_text_mask",
        "logit_scale",
    )
    # Not optional: without the column the loss would silently be InfoNCE with negative captions.
    optional_columns = tuple(name for name in CompositionalTrainer.optional_columns if name != "negative_image")

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes the TripletCLIP loss of the global batch."""
        f = self.gather_features(model, inputs)
        loss, metrics = triplet_clip_loss(
            f.image_embeds,
            f.text_embeds,
            f.negative_image_embeds,
            f.negative_text_embeds[:, 0],
            negative_image_mask=f.negative_image_mask,
            negative_text_mask=f.negative_text_mask[:, 0],
            negative_text_id=None if f.negative_text_id is None else f.negative_text_id[:, 0],
            **f.common,
        )
        return self.reduce_loss(loss, metrics, f, return_outputs)


declare_info_nce(TripletClipTrainer, by=CementTrainer, margin="none")  # InfoNCE over the doubled batch
