"""InfoNCE in which an image's own hard negative texts replace other texts in its row (HN1 to HN3)."""

from __future__ import annotations

import torch
from torch import Tensor

from hfcomp.losses._ops.contrast import contrast, log_sum_exp
from hfcomp.losses._ops.pairs import (
    Direction,
    cross_entropy,
    direction_metrics,
    hard_negative_accuracy,
    own_negative_logits,
)
from hfcomp.losses._ops.precision import full_precision
from hfcomp.losses._ops.shapes import check_negatives, check_pairs, check_scalar, check_shape
from hfcomp.losses._ops.shared_rows import SharedRows, count_anchors, shared_rows


@full_precision
def replaced_negative_loss(
    image: Tensor,
    text: Tensor,
    negative_text: Tensor,
    *,
    logit_scale: Tensor,
    slots: Tensor,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes symmetric InfoNCE whose image-to-text rows have own hard negatives instead of some other rows' texts.

    Image row i keeps its width N: column slots[i, k] contains <image_i, negative_text_ik> instead of
    <image_i, text_slots[i,k]>, and no other image is compared with that negative. Text to image is plain InfoNCE. The
    loss is the mean of the two directions, each the mean cross-entropy over its N anchors.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_text: [N, K, D], L2-normalized, K at least 1.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        slots: [N, K] long, global columns from 0 to N - 1, -1 = masked. Distinct within a row and never i itself;
            values live on the device and are not validated.
        image_id: [N] long, equal for rows with the same image; None = all rows differ. Rows with the same image are
            neither positives nor negatives of each other: text j is not a key of image i, nor image j of text i. An
            own negative stays, even in the column of such a text, where it then replaces nothing.
        text_id: [N] long, equal for equal texts; None = all rows differ. Rows with the same text are excluded from
            each other's keys too. An own negative that equals the own text must be masked in slots.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only its anchors are summed, over
            the global count N, so the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does:
        `loss_image_to_text`, `loss_text_to_image` (nats); `accuracy_image_to_text`, `accuracy_text_to_image` (0 to 1:
        the own pair scores strictly above every other key); `hard_negative_accuracy` (0 to 1: the own text scores
        strictly above the image's own negatives, among images that have one). With image_id also `same_image_pairs`
        (number of texts of other rows excluded as keys of an image), with text_id `same_text_pairs` (further ones).

    Raises:
        ValueError: If a shape does not match, or slots or ids are not of type long.

    Source:
        Roesch et al. 2024, Enhancing Conceptual Understanding in Multimodal Contrastive Learning through Hard Negative
        Samples, Sec. 3 (HN1, HN2, HN3 = one, two, three slots per row).
    """
    size, width = check_pairs(image, text)
    check_negatives(negative_text, None, size, width)
    check_shape("slots", slots, N=size, K=negative_text.shape[1])
    if slots.dtype is not torch.long:
        raise ValueError(f"slots has type {slots.dtype}, expected torch.long")
    scale, anchors = check_scalar("logit_scale", logit_scale), torch.arange(size, device=image.device)
    part = anchors if rows is None else anchors[rows]
    own, replaced = part.unsqueeze(1), slots >= 0
    negatives = own_negative_logits(image[part], negative_text[part], replaced[part], scale)
    # A masked slot refers to the own column, which is removed anyway, so no column needs a mask.
    out = torch.cat([own, torch.where(replaced[part], slots[part], own)], 1)
    shared = shared_rows(image_id, text_id, size)
    to_text = _contrast_without(image[part], text, scale, out, negatives, part, shared)
    to_image = _contrast_without(text[part], image, scale, own, negatives[:, :0], part, shared)

    loss_to_text, loss_to_image = cross_entropy(to_text) / size, cross_entropy(to_image) / size
    # An image with its own negatives in slots always has a further key. The keys of a text are only other images.
    has_negative, count_to_image = replaced.any(1), count_anchors(shared, image)
    count_to_text = count_anchors(shared, image, has_negative)
    hard = hard_negative_accuracy(to_text.entries[:, 0], negatives, has_negative.sum())
    metrics = {
        **direction_metrics("image_to_text", loss_to_text, to_text, to_text.top, True, count_to_text),
        **direction_metrics("text_to_image", loss_to_image, to_image, to_image.top, True, count_to_image),
        "hard_negative_accuracy": hard,
        **shared.count_pairs(torch.ones_like(anchors), rows, "pairs"),
    }
    return (loss_to_text + loss_to_image) / 2, metrics


def _contrast_without(
    query: Tensor,
    keys: Tensor,
    scale: Tensor,
    positions: Tensor,
    more: Tensor,
    part: Tensor,
    shared: SharedRows,
) -> Direction:
    """Contrasts rows `part` [R] without the entries at `positions` [R, A] and shared ones, plus `more` [R, K]."""
    out = query.new_full(positions.shape, -torch.inf)
    rest = contrast(
        query,
        keys,
        scale,
        positions=positions,
        additions=out,
        query_groups=shared.groups(part),
        key_groups=shared.groups(),
        columns=False,
    )
    others = log_sum_exp(torch.cat([rest.row.unsqueeze(1), more], 1))
    top = torch.cat([rest.row_top.unsqueeze(1), more.detach()], 1).amax(1)
    return Direction(others, top, rest.entries)
