"""InfoNCE with hard negative texts that replace other texts of the batch (Rösch et al. 2024, HN1 to HN3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import TrainerCallback

from hfcomp.losses import replaced_negative_loss
from hfcomp.modeling import Features
from hfcomp.trainers._support.transformers_internals import train_batch_size
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.config import CompositionalConfig, option, setting
from hfcomp.trainers.hooks import declare_info_nce
from hfcomp.trainers.info_nce import InfoNCETrainer

TRAINING, EVALUATION = 0, 1

PAPER = "Rösch et al. 2024, section 3.2"


@dataclass
class ReplacedNegativesConfig(CompositionalConfig):
    """Arguments of [`ReplacedNegativesTrainer`]. The paper's Adam is `decoupled_weight_decay=False`."""

    num_train_epochs: float = setting(3.0, PAPER)
    learning_rate: float = setting(5.0e-6, PAPER)
    lr_scheduler_type: str = setting("constant", PAPER)
    warmup_steps: float = setting(0, f"no schedule, {PAPER}")
    weight_decay: float = setting(0.1, PAPER)
    decoupled_weight_decay: bool = setting(False, f"Adam, {PAPER}")
    adam_beta2: float = setting(0.999, "Adam's own; the paper gives none")
    adam_epsilon: float = setting(1.0e-8, "Adam's own; the paper gives none")
    max_grad_norm: float = setting(1.0, "ours, the same as transformers'; the paper gives none")
    num_negatives: int = option(
        1, "Number of texts in an image's row that its own negatives replace: 1 to 3 are HN1 to HN3.", PAPER
    )


class ReplacedNegativesTrainer(CompositionalTrainer):
    """Trains with InfoNCE in which images see their own hard negatives instead of some random other texts (section 3).

    Needs `negative_captions`. The replaced texts are sampled for every batch from the seed, the step and the batch
    within the step, identically on all processes. The paper does not say which texts are replaced, or how images are
    chosen for a text. Here every other text has the same probability, and the text-to-image direction stays plain. If
    a row lacks negatives, they replace nothing. Evaluation uses one draw for all batches, so `eval_loss` is
    reproducible.
    """

    config_class = ReplacedNegativesConfig
    required_features = ("image_embeds", "text_embeds", "negative_text_embeds", "negative_text_mask", "logit_scale")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.batch_in_step = BatchInStep()
        self.add_callback(self.batch_in_step)

    def get_train_dataloader(self) -> Any:
        """Returns the training batches. Raises if there are more negatives than a row has other texts."""
        batch = train_batch_size(self) * self.args.world_size
        if self.args.num_negatives >= batch:
            raise ValueError(
                f"num_negatives={self.args.num_negatives}, but in a batch of {batch} rows an image has only "
                f"{batch - 1} other texts that negatives can replace. Lower num_negatives or raise "
                "per_device_train_batch_size."
            )
        return super().get_train_dataloader()

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes the loss of the global batch."""
        f = self.gather_features(model, inputs)
        loss, metrics = replaced_negative_loss(
            f.image_embeds, f.text_embeds, f.negative_text_embeds, slots=self.slots(f), **f.common
        )
        return self.reduce_loss(loss, metrics, f, return_outputs)

    def slots(self, features: Features) -> torch.Tensor:
        """Returns this batch's slots `[N, K]`, -1 for a missing negative; the same on every process."""
        mask = features.own_negative_mask
        batch_key = (EVALUATION, 0, 0)
        if self.model.training:
            # The seed is the position in training instead of a running generator, so every process draws the same
            # slots, and a resumed run draws what it would have drawn.
            batch_key = (TRAINING, self.state.global_step, self.batch_in_step.number)
        slots = draw_slots(*mask.shape, seed=(self.args.seed, *batch_key))
        return to_device(slots, mask.device).masked_fill(~mask, -1)


def draw_slots(size: int, number: int, *, seed: Sequence[int]) -> torch.Tensor:
    """Samples the columns of each row's negatives, for `replaced_negative_loss`.

    Rows are sampled independently. A row's columns are distinct and never its own, and all ordered choices of such
    columns are equally likely, so rows with masked negatives are sampled uniformly too.

    Args:
        size: Number of rows of the global batch, N.
        number: Negatives per row, K. If there are more than N - 1, only the first N - 1 get a column.
        seed: Non-negative integers. Equal seeds give equal slots on every machine.

    Returns:
        `[N, K]` long, columns from 0 to N - 1, or -1 if none was left.
        `[N, K]` long, columns from 0 to N - 1, -1 where none was left.
    """
    generator = np.random.default_rng(list(seed))
    slots = np.full((size, number), -1)
    taken = np.arange(size)[:, None]
    for place in range(min(number, size - 1)):
        # Position of the new column among the free ones. Each taken column at or before it shifts it by one.
        column = generator.integers(size - 1 - place, size=size)
        for other in np.sort(taken, axis=1).T:
            column += column >= other
        slots[:, place] = column
        taken = np.column_stack([taken, column])
    return torch.from_numpy(slots)


def to_device(slots: torch.Tensor, device: torch.device) -> torch.Tensor:
    # A copy from page-locked memory is queued on the GPU; from other memory, the host would wait for it.
    return slots.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else slots.to(device)


class BatchInStep(TrainerCallback):
    """Counts the batches of an optimizer step under gradient accumulation.

    Attributes:
        number: 0 for the first batch of a step. The same in a resumed run, because checkpoints fall between steps.
    """

    def __init__(self) -> None:
        self.number = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.number = 0

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.number += 1


declare_info_nce(ReplacedNegativesTrainer, by=InfoNCETrainer, sigmoid=False)
