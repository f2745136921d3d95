"""AHNPL: image negatives created by shifting an image as its text shifts, and margins that adapt to the model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import torch
from torch import nn
from transformers.utils import logging

from hfcomp.data.columns import NEGATIVE_KINDS
from hfcomp.losses import LearnedMargin, RunningThreshold, ahnpl_loss, perturb_image
from hfcomp.modeling import Features
from hfcomp.trainers._support.reference_text import FrozenText, ReferenceText, WithReferenceText
from hfcomp.trainers.config import WEIGHT, CompositionalConfig, option, setting
from hfcomp.trainers.hooks import declare_info_nce
from hfcomp.trainers.thresholds import ThresholdTrainer

logger = logging.get_logger(__name__)

SHIFT_SOURCES = ("frozen", "live")
REFERENCE_FIELDS = ("reference_text_embeds", "reference_negative_text_embeds")
WEIGHTS = ("multimodal_weight", "positive_margin_weight", "negative_margin_weight")

PAPER = "Huang et al. 2025, section 4.1"


@dataclass
class AHNPLConfig(CompositionalConfig):
    """Arguments of [`AHNPLTrainer`]. Weights, initial margin and floor are the paper's (section 3.3)."""

    num_train_epochs: float = setting(10.0, PAPER)
    learning_rate: float = setting(2.0e-5, PAPER)
    weight_decay: float = setting(0.1, PAPER)
    num_negatives: int = option(2, "Negative captions read per row.", "the paper, section 3.1")
    shift_source: str = option(
        "frozen",
        "Source of the text features that shift the images: frozen (the initial model, encoded once for the whole "
        "dataset) or live (the model in training).",
    )
    shift_gradient: bool = option(
        False, "Whether the shift has a gradient if shift_source is live. The released code has none."
    )
    multimodal_weight: float = option(
        1.0, "Weight of the multimodal hard negative loss.", "the paper, Eqs. 4 to 12", WEIGHT
    )
    positive_margin_weight: float = option(
        1.0, "Weight of the positive margin loss, which is in cosine.", "the paper, Eqs. 4 to 12", WEIGHT
    )
    negative_margin_weight: float = option(
        1.0, "Weight of the negative margin loss, which is in cosine.", "the paper, Eqs. 4 to 12", WEIGHT
    )
    margin_start: float | None = option(
        None, "Initial value of the learned margin, in cosine. Unset: drawn from a standard normal distribution."
    )
    margin_seed: int | None = option(
        None, "Random seed for that draw. Unset: seed. Has no effect with margin_start, because nothing is drawn."
    )
    margin_minimum: float = option(0.2, "Floor of the learned margin, in cosine.", "the paper, section 3.3")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shift_source not in SHIFT_SOURCES:
            raise ValueError(f"shift_source: found {self.shift_source!r}, expected one of {', '.join(SHIFT_SOURCES)}.")
        if self.draw_captions and self.shift_source == "frozen":
            raise ValueError(
                "draw_captions=True: shift_source='frozen' encodes a single caption per row before training. Set "
                "shift_source='live', or remove draw_captions."
            )
        if self.shift_gradient and self.shift_source == "frozen":
            raise ValueError(
                "shift_gradient=True, but the features of a frozen source have no gradient. Set shift_source='live', "
                "or remove shift_gradient."
            )
        if not -1 <= self.margin_minimum <= 1:
            raise ValueError(f"margin_minimum: found {self.margin_minimum}, expected a cosine between -1 and 1.")
        if self.margin_start is not None and not math.isfinite(self.margin_start):
            raise ValueError(
                f"margin_start: found {self.margin_start}, expected a finite number. Omit it to sample one."
            )


class AHNPLTrainer(ThresholdTrainer):
    """Trains with the AHNPL loss as the paper writes it (Huang et al. 2025, section 3).

    Needs `negative_captions` and `negative_kinds`. An image is shifted the way its caption would have to shift to
    become a negative (Eqs. 1-2). The paper takes these text features from "a pretrained CLIP model", so our default
    is `shift_source="frozen"`: the initial model encodes all captions and negatives once, when training or an
    evaluation begins, into a file under `output_dir` (4 * D * (1 + K) bytes per row). To resume a run, pass the same
    initial model again; any other model, such as the checkpoint itself, is rejected. The released code uses the model
    in training, without gradient: `"live"`. With `multimodal_weight=0` nothing is encoded in advance, and
    `loss_visual_negative` is logged with the live shift.

    The margin of Eq. 8 is learned. By Eq. 8 it can only fall. At or below its floor it has no gradient and equals the
    floor from then on; the log's `margin` is the value after the floor. Each kind of negative has its own threshold
    (Eq. 10), in cosine and without bounds. It starts at 0 (our choice, the paper is silent), and each batch sets it
    for the next one from the similarities of the global batch, across epochs; a batch without a negative of that kind
    leaves it unchanged. The log holds `threshold_<kind>` for the kinds of the line's last batch. Margin and
    thresholds are saved next to the model and resumed; evaluation does not change them.

    Without its three weighted terms the loss is twice InfoNCE on the same batch, because Eq. 4 adds both directions.
    """

    config_class = AHNPLConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reference = None
        if "reference_text_embeds" in self.required_features:
            # Copied before the first step: the paper shifts images by the texts of a pretrained CLIP, not by those of
            # the model in training.
            self.reference = ReferenceText(FrozenText(self.model.backbone, self.processing_class), self.args)

    def setup(self, args: AHNPLConfig, backbone: nn.Module) -> None:
        """Requires features of a frozen copy if the loss uses them."""
        if args.shift_source == "frozen" and args.multimodal_weight > 0:
            self.required_features = (*type(self).required_features, *REFERENCE_FIELDS)

    def objective_state(self, args: AHNPLConfig) -> dict[str, nn.Module]:
        """Returns the learned margin and the thresholds, one per kind of negative."""
        margin = LearnedMargin(initial_margin(args), minimum=args.margin_minimum)
        if args.positive_margin_weight and margin.value <= args.margin_minimum:
            _warn_margin_at_floor(margin.value.item(), args.margin_minimum)
        return {
            "margin": margin,
            "threshold": RunningThreshold(len(NEGATIVE_KINDS), minimum=-math.inf, maximum=math.inf),
        }

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes the AHNPL loss of the global batch."""
        f = self.gather_features(model, inputs)
        loss, metrics = ahnpl_loss(
            f.image_embeds,
            f.text_embeds,
            perturb_image(f.image_embeds, *self._shift_texts(f)),
            f.negative_text_embeds,
            margin=f.learned["margin"],
            threshold=f.learned["threshold"],
            negative_kind=f.negative_kind,
            negative_mask=f.negative_text_mask,
            negative_text_id=f.negative_text_id,
            **f.common,
            **{name: getattr(self.args, name) for name in WEIGHTS},
        )
        return self.reduce_loss(loss, metrics, f, return_outputs)

    def _shift_texts(self, f: Features) -> tuple[torch.Tensor, torch.Tensor]:
        if self.reference is not None:
            if f.reference_text_embeds is None:
                raise ValueError(
                    "the batch has no 'reference_text', which shift_source='frozen' needs. Batches of "
                    "get_train_dataloader() and get_eval_dataloader() have it."
                )
            return f.reference_text_embeds, f.reference_negative_text_embeds
        if self.args.shift_gradient:
            return f.text_embeds, f.negative_text_embeds
        # The released code detaches it: the shift determines where an image would go, and is not itself trained.
        return f.text_embeds.detach(), f.negative_text_embeds.detach()

    def after_save(self, folder: Path) -> None:
        """Records the fingerprint of the initial model in the checkpoint."""
        if self.reference is not None:
            self.reference.frozen.sign(folder)

    def after_load(self, folder: Path) -> None:
        """Raises if a run is resumed with a model other than the initial one."""
        if self.reference is not None:
            self.reference.frozen.check(folder)

    def collator_of(self, rows: Any) -> Any:
        """Adds the reference features of the rows."""
        if self.reference is None:
            return self.data_collator
        return WithReferenceText(self.data_collator, self.reference.feature_file(rows))


def initial_margin(args: AHNPLConfig) -> float:
    if args.margin_start is not None:
        if args.margin_seed is not None:
            logger.warning(
                f"margin_seed={args.margin_seed} has no effect because margin_start={args.margin_start:g} is set."
            )
        return args.margin_start
    seed = args.seed if args.margin_seed is None else args.margin_seed
    # A generator of its own: the global one may be in another state on another process or in a resumed run.
    return torch.randn((), generator=torch.Generator().manual_seed(seed)).item()


def _warn_margin_at_floor(start: float, floor: float) -> None:
    share = NormalDist().cdf(floor)
    logger.warning(
        f"The learned margin starts at {start:.3f}, at or below its floor (margin_minimum={floor:g}). It has no "
        f"gradient there and stays constant at {floor:g}. This happens for {share:.0%} of samples. To train the "
        "margin, set margin_start or another margin_seed."
    )


declare_info_nce(AHNPLTrainer, multimodal_weight=0.0, positive_margin_weight=0.0, negative_margin_weight=0.0)
