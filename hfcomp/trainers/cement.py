"""Slipform's objective: the Cement loss on a batch that is doubled by hard negative pairs (Im et al. 2026, Eq. 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from hfcomp.losses import cement_loss, fermi_dirac_margin, inverse_margin, static_margin
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.config import CompositionalConfig, option
from hfcomp.trainers.hooks import declare_info_nce

MARGINS = ("adaptive", "static", "inverse", "none")
RATED_MARGINS = ("adaptive", "inverse")  # depend on the rows' ratings


@dataclass
class CementConfig(CompositionalConfig):
    """Arguments of [`CementTrainer`]. The margin's defaults are the paper's (section 3, "Experimental Setups")."""

    num_negatives: int = option(1, "Must be 1: one negative pair doubles each row.")
    margin: str = option(
        "adaptive",
        "adaptive (Eq. 4), static, inverse (the paper's ablation) or none (InfoNCE on the doubled batch).",
        "the paper, Eq. 4",
    )
    margin_minimum: float = option(
        -2.0, "Minimum of the adaptive and inverse margins, in logits.", "the paper, section 3"
    )
    margin_maximum: float = option(
        2.0, "Maximum of the adaptive and inverse margins, in logits.", "the paper, section 3"
    )
    margin_threshold: float = option(
        4.0, "Concreteness at which the margin is halfway between minimum and maximum.", "the paper, section 3"
    )
    margin_temperature: float = option(
        0.15, "Width of the margin's transition, in units of concreteness.", "the paper, section 3"
    )
    static_margin: float = option(1.0, "Value of the static margin, in logits.", "the paper, section 3.3")
    allow_missing_negative_images: bool = option(
        False,
        "If no row has a negative image, train on negative captions only. The batch is then not doubled, so this "
        "is not the paper's objective. If false, such a dataset is an error.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.margin not in MARGINS:
            raise ValueError(f"margin: found {self.margin!r}, expected one of {', '.join(MARGINS)}.")
        if self.num_negatives != 1:
            raise ValueError(f"num_negatives={self.num_negatives}: Cement pairs each row with exactly 1 negative.")


class CementTrainer(CompositionalTrainer):
    """Trains with the Cement loss: each row's negative pair is raised by a margin that depends on its concreteness.

    Needs `negative_captions`, and `negative_concreteness` for the adaptive and inverse margins. A row without
    `negative_image` takes part with its negative caption only. A dataset in which no row has one is rejected unless
    `allow_missing_negative_images` is set.
    """

    config_class = CementConfig
    negative_images_advice = (
        "No negative pair would be an anchor, so only the negative captions would remain of the doubled batch. Add a "
        "negative_image that matches the row's first negative caption; or use an objective that reads only captions, "
        "such as InfoNCETrainer with num_negatives=1 or CEClipTrainer (recipes negclip, ceclip); or set "
        "allow_missing_negative_images=True (--allow_missing_negative_images true) and report it with the scores."
    )
    required_features = (
        "image_embeds",
        "text_embeds",
        "negative_image_embeds",
        "negative_text_embeds",
        "negative_image_mask",
        "negative_text_mask",
        "negative_concreteness",
        "logit_scale",
    )

    def setup(self, args: CementConfig, backbone: nn.Module) -> None:
        """Sets the margin. One that depends on ratings needs their column; without it, each would silently be 0."""
        self.margin = margin_function(args)
        if args.margin in RATED_MARGINS:
            self.optional_columns = tuple(name for name in self.optional_columns if name != "negative_concreteness")

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes the Cement loss of the global batch."""
        f = self.gather_features(model, inputs)
        margin = self.margin(f.negative_concreteness[:, 0])
        loss, metrics = cement_loss(
            f.image_embeds,
            f.text_embeds,
            f.negative_image_embeds,
            f.negative_text_embeds[:, 0],
            margin=margin,
            negative_image_mask=f.negative_image_mask,
            negative_text_mask=f.negative_text_mask[:, 0],
            negative_text_id=None if f.negative_text_id is None else f.negative_text_id[:, 0],
            **f.common,
        )
        return self.reduce_loss(loss, metrics, f, return_outputs)


def margin_function(args: CementConfig) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the margin function that a config selects, from concreteness `[N]` to logits `[N]`."""
    curve = {
        "minimum": args.margin_minimum,
        "maximum": args.margin_maximum,
        "threshold": args.margin_threshold,
        "temperature": args.margin_temperature,
    }
    return {
        "adaptive": partial(fermi_dirac_margin, **curve),
        "inverse": partial(inverse_margin, **curve),
        "static": partial(static_margin, value=args.static_margin),
        "none": partial(static_margin, value=0.0),
    }[args.margin]


declare_info_nce(CementTrainer, margin="none")
