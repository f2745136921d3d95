"""The split of Cement's gradient between the hard negative and the easy ones, in closed form and for any margin."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hfcomp.losses._ops.doubled import double_batch
from hfcomp.losses._ops.precision import full_precision
from hfcomp.losses._ops.shapes import check_scalar


class NegativeLogits(NamedTuple):
    """Logits of the negatives of 2N anchors relative to their own pair, for image to text and text to image."""

    hard: Tensor  # [2, 2N] s_ii' - s_ii at counted anchors
    easy: Tensor  # [2, 2N] log sum_j exp(s_ij - s_ii) over the easy keys j, -inf without any
    counted: Tensor  # [2, 2N] bool, whether the anchor has a hard negative

    def magnitudes(self, margin: Tensor | float) -> Tensor:
        """Computes the gradient's magnitude on the hard negative and on all easy ones together.

        With h and e the two logits, they are exp(h + m) / Z and exp(e) / Z, where Z = 1 + exp(h + m) + exp(e). Their
        sum is the magnitude on the own pair, 1 - p_ii. The hard negative's share of it is sigmoid(h + m - e).

        Args:
            margin: [N], margin of each pair in logits, or a single margin for all.

        Returns:
            [2 (hard, easy), 2 (image to text, text to image), 2N], 0 for anchors that are not counted.
        """
        margin = margin.repeat(2) if isinstance(margin, Tensor) else margin
        hard = self.hard + margin
        # Logits are relative to the own pair, so the own logit is 0. All easy negatives together form one entry.
        p = torch.stack([torch.zeros_like(hard), hard, self.easy]).softmax(0)
        return torch.where(self.counted, p[1:], 0)


@full_precision
@torch.no_grad()
def negative_logits(
    image: Tensor,
    text: Tensor,
    negative_image: Tensor,
    negative_text: Tensor,
    *,
    logit_scale: Tensor,
    negative_image_mask: Tensor | None = None,
    negative_text_mask: Tensor | None = None,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    negative_text_id: Tensor | None = None,
) -> NegativeLogits:
    """Computes the logits that determine the gradient of every anchor of `cement_loss`. Same arguments as there.

    Anchors and keys are those of the loss. An anchor without a hard negative in a direction (because it is masked, or
    its text is equal) is not counted in that direction.

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        Concrete Jungle (arXiv 2604.13313), Eqs. 2 and 3.
    """
    doubled = double_batch(
        *(image, text, negative_image, negative_text),
        *(negative_image_mask, negative_text_mask),
        *(image_id, text_id, negative_text_id),
    )
    without_hard = image.new_full((2 * len(image),), -torch.inf)
    directions = doubled.directions(check_scalar("logit_scale", logit_scale), without_hard, None)
    own, hard = torch.stack([direction.entries for direction in directions]).unbind(2)
    anchors = doubled.image_valid & doubled.text_valid & doubled.counterpart_differs()
    keys = torch.stack([doubled.text_valid, doubled.image_valid])
    easy = torch.stack([direction.others for direction in directions])
    return NegativeLogits(hard - own, easy - own, anchors & keys[:, doubled.counterpart])
