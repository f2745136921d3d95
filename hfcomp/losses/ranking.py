"""Ranks an image's own text above its own hard negatives, by a threshold that adapts to the model."""

from __future__ import annotations

import torch
from torch import Tensor

from hfcomp.losses._ops.items import nan_without
from hfcomp.losses._ops.pairs import own_negative_logits
from hfcomp.losses._ops.precision import full_precision
from hfcomp.losses._ops.shapes import check_negatives, check_pairs, check_shape


@full_precision
def negative_margin_loss(
    image: Tensor,
    text: Tensor,
    negative_text: Tensor,
    *,
    threshold: Tensor,
    negative_kind: Tensor,
    negative_mask: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the cross-modal rank loss: an image's own text must lead each of its own negatives by a threshold.

    An image's term is the sum over its own unmasked negatives k of
    max(0, threshold[kind_k] + <image_i, negative_text_ik> - <image_i, text_i>). The loss is the sum of the terms over
    N, all images. An image without a negative contributes 0 with a zero gradient, and a row's weight does not depend
    on how many other rows have negatives.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_text: [N, K, D], L2-normalized, K at least 1; hard negatives of text i.
        threshold: [kinds], cosine; one per kind of negative.
        negative_kind: [N, K] long, positions in threshold; values live on the device and are not validated. Ignored
            where masked.
        negative_mask: [N, K] bool, True = valid; None means all are valid.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only its images are summed, over
            the global count N, so the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], cosine) and detached metrics, which add up over a partition as the loss does:
        `loss_negative_margin` (cosine) and `active_negative_margins` (0 to 1: the share of valid negatives that do not
        trail by their threshold, and so have a gradient). NaN without a valid negative.

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        AHNPL (Huang et al. 2025, arXiv 2505.15576), Eq. 9, which uses the cross-modal rank loss of CE-CLIP (Zhang et
        al. 2024, arXiv 2306.08832). Eq. 9 sums over the batch; here that sum is divided by N. The released code of
        both multiplies the cosines by the logit scale and takes the mean over all N * K entries, masked entries
        included: at scale s, its weight w is a weight of w * s / K here, and its threshold is s times ours.
    """
    kinds, mask = _check(image, text, negative_text, negative_kind, negative_mask, threshold=threshold)
    part = slice(None) if rows is None else rows
    lead = _lead(image[part], text[part], negative_text[part], mask[part])
    # A masked lead is infinite, so its shortfall is 0 without a gradient.
    shortfall = (threshold[kinds[part]] - lead).relu()
    loss = shortfall.sum() / len(image)
    active = (shortfall > 0).sum().to(loss.dtype) / mask.sum()
    return loss, {**nan_without(mask, {"loss_negative_margin": loss.detach()}), "active_negative_margins": active}


@full_precision
def adaptive_threshold(
    image: Tensor,
    text: Tensor,
    negative_text: Tensor,
    *,
    previous: Tensor,
    negative_kind: Tensor,
    negative_mask: Tensor | None = None,
) -> Tensor:
    """Computes the next step's thresholds: how far, per kind, images now score their own text above the negatives.

    The threshold of a kind is the mean over its unmasked negatives of <image_i, text_i> - <image_i, negative_text_ik>.
    A kind that is missing from the batch, or whose mean is not finite, keeps its previous threshold. On the global
    batch, the result is the same on all processes.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_text: [N, K, D], L2-normalized, K at least 1; hard negatives of text i.
        previous: [kinds], cosine.
        negative_kind: [N, K] long, positions in previous. Ignored where masked.
        negative_mask: [N, K] bool, True = valid; None means all are valid.

    Returns:
        [kinds], cosine, without gradient and without bounds: `RunningThreshold` applies them.

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        AHNPL (Huang et al. 2025, arXiv 2505.15576), Eq. 10, after CE-CLIP (Zhang et al. 2024): the thresholds of step
        t come from the similarities of step t - 1. Masks are ours. CE-CLIP's code averages logits (cosines times the
        logit scale), own texts over all images and negatives over the valid ones of a kind, which gives NaN for a kind
        without any.
    """
    kinds, mask = _check(image, text, negative_text, negative_kind, negative_mask, previous=previous)
    with torch.no_grad():
        lead = _lead(image, text, negative_text, mask).unsqueeze(-1)
        member = mask.unsqueeze(-1) & (kinds.unsqueeze(-1) == torch.arange(len(previous), device=kinds.device))
        count = member.sum((0, 1))
        mean = torch.where(member, lead, 0).sum((0, 1)) / count.clamp(min=1)
        return torch.where((count > 0) & mean.isfinite(), mean, previous)


def _lead(image: Tensor, text: Tensor, negative_text: Tensor, mask: Tensor) -> Tensor:
    """Returns the margin by which each image prefers its text to each own negative [R, K], cosine, inf if masked."""
    own = (image * text).sum(-1, keepdim=True)
    return own - own_negative_logits(image, negative_text, mask, image.new_ones(()))


def _check(
    image: Tensor,
    text: Tensor,
    negative_text: Tensor,
    negative_kind: Tensor,
    negative_mask: Tensor | None,
    **by_kind: Tensor,
) -> tuple[Tensor, Tensor]:
    """Returns the kinds [N, K], 0 if masked, and the mask [N, K]. `by_kind` is one named tensor [kinds]."""
    size, width = check_pairs(image, text)
    mask = check_negatives(negative_text, negative_mask, size, width)
    for name, values in by_kind.items():
        check_shape(name, values, kinds=None)
        if not len(values):
            raise ValueError(f"{name} has shape [0], expected [kinds] with at least one kind")
    check_shape("negative_kind", negative_kind, N=size, K=mask.shape[1])
    if negative_kind.dtype is not torch.long:
        raise ValueError(f"negative_kind has type {negative_kind.dtype}, expected torch.long")
    return negative_kind.masked_fill(~mask, 0), mask
