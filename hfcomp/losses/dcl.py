"""Decoupled contrastive learning: InfoNCE with the positive left out of the denominator."""

from __future__ import annotations

import torch
from torch import Tensor

from hfcomp.losses._ops.items import nan_without
from hfcomp.losses._ops.pairs import Direction, contrast_pairs, direction_metrics
from hfcomp.losses._ops.precision import full_precision


@full_precision
def dcl_loss(
    image: Tensor,
    text: Tensor,
    *,
    logit_scale: Tensor,
    negative_text: Tensor | None = None,
    negative_mask: Tensor | None = None,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    negative_text_id: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the decoupled contrastive loss, with the negative texts of all rows as further keys of every image.

    With s_ij = logit_scale * <image_i, text_j>, image to text is the mean over i of
    -s_ii + log(sum_{j != i} exp(s_ij) + sum over all unmasked negatives of exp(s_i,negative)). Text to image has only
    the N - 1 other images. The loss is the mean of the two directions and is not bounded below by 0.

    An anchor without a key other than its own (all other rows share its image or its text, no valid negative) is not
    counted. A direction without counted anchors is 0 with a zero gradient.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        negative_text: [N, K, D], L2-normalized, K at least 1.
        negative_mask: [N, K] bool, True = valid; None means all are valid.
        image_id: [N] long, equal for rows with the same image; None = all rows differ. Rows with the same image are
            neither positives nor negatives of each other: text j is not a key of image i, nor image j of text i.
            Negative texts stay keys of every image, because they are false of their row's image in all of its rows.
        text_id: [N] long, equal for equal texts; None = all rows differ. Rows with the same text are excluded from
            each other's keys too, because the text is true of both images.
        negative_text_id: [N, K] long, comparable with text_id, which it requires. A negative text that equals text i
            is not a key of image i.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only its anchors are summed, over
            the global count of anchors, so the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does:
        `loss_image_to_text`, `loss_text_to_image` (nats); `accuracy_image_to_text`, `accuracy_text_to_image` (0 to 1:
        the own pair scores strictly above every other key). With negative_text also `hard_negative_accuracy` (0 to 1:
        the own text scores strictly above the image's own negatives, among images that have one). With ids also
        `same_image_pairs`, `same_text_pairs` and `same_text_negatives`, as in `info_nce_loss`. NaN if no anchor is
        counted.

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        Yeh et al. 2022, Decoupled Contrastive Learning, without its optional weighting of the positive. The paper
        contrasts two views of an image; here the two are an image and its text.
    """
    batch = image, text, logit_scale, negative_text, negative_mask, rows, (image_id, text_id, negative_text_id)
    to_text, to_image, counts, metrics = contrast_pairs(*batch)
    loss_to_text = _decouple(to_text) / counts[0].clamp(min=1)
    loss_to_image = _decouple(to_image) / counts[1].clamp(min=1)
    of_text = direction_metrics("image_to_text", loss_to_text, to_text, to_text.top, True, counts[0])
    of_image = direction_metrics("text_to_image", loss_to_image, to_image, to_image.top, True, counts[1])
    metrics |= nan_without(counts[0] > 0, of_text) | nan_without(counts[1] > 0, of_image)
    return (loss_to_text + loss_to_image) / 2, metrics


def _decouple(direction: Direction) -> Tensor:
    # -inf marks an anchor without keys. It is replaced first, so no infinity enters the sum or its gradient.
    counted = direction.others > -torch.inf
    others = direction.others.masked_fill(~counted, 0)
    return torch.where(counted, others - direction.entries[:, 0], 0).sum()
