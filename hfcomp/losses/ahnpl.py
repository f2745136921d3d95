"""AHNPL: image negatives from the shift between texts, hard negatives in both modalities, and two margins."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hfcomp.losses._ops.contrast import log_sum_exp
from hfcomp.losses._ops.items import nan_without
from hfcomp.losses._ops.pairs import own_negative_logits
from hfcomp.losses._ops.precision import full_precision
from hfcomp.losses._ops.shapes import check_negatives, check_pairs, check_scalar, check_shape
from hfcomp.losses._ops.shared_rows import negative_keys
from hfcomp.losses.info_nce import info_nce_loss
from hfcomp.losses.ranking import negative_margin_loss


@full_precision
def perturb_image(image: Tensor, text: Tensor, negative_text: Tensor) -> Tensor:
    """Moves each image as its text would have to move to become a negative: image_i + (negative_text_ik - text_i).

    Gradients reach all three. Both texts come from the same encoder, which may be frozen, detached or live.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_text: [N, K, D], L2-normalized, K at least 1; hard negatives of text i. Masked ones must be finite,
            for example zeros, and the result for them must be masked again.

    Returns:
        [N, K, D], L2-normalized, at least float32. A zero sum stays zero.

    Raises:
        ValueError: If a shape does not match.

    Source:
        AHNPL (Huang et al. 2025, arXiv 2505.15576), Eqs. 1 and 2, normalized again because Eq. 3 takes cosines. The
        released code leaves the sum as it is, so a long shift counts for more.
    """
    size, width = check_pairs(image, text)
    check_negatives(negative_text, None, size, width)
    return F.normalize(image.unsqueeze(1) + (negative_text - text.unsqueeze(1)), dim=-1)


@full_precision
def multimodal_hard_negative_loss(
    image: Tensor,
    text: Tensor,
    negative_image: Tensor,
    negative_text: Tensor,
    *,
    negative_mask: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the multimodal hard negative loss, which pushes own negatives away from their image and their text.

    A row's term is log(sum_k exp(<image_i, negative_image_ik>)) + log(sum_k exp(<text_i, negative_text_ik>)) over its
    own unmasked negatives k. These are cosines without a temperature, so all negatives are pushed about equally hard.
    The loss is the sum of the terms over N, all rows; a row without a negative contributes 0 with a zero gradient.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_image: [N, K, D], L2-normalized; hard negatives of image i, as returned by `perturb_image`.
        negative_text: [N, K, D], L2-normalized, K at least 1; hard negatives of text i.
        negative_mask: [N, K] bool for both kinds of negatives, True = valid; None means all are valid.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only its rows are summed, over
            the global count N, so the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], a log-sum-exp of cosines: each half at least -1, at most 1 + log K) and detached metrics, which
        add up over a partition as the loss does: `loss_visual_negative`, `loss_textual_negative`, the two halves, NaN
        without a valid negative.

    Raises:
        ValueError: If a shape or the mask's type does not match.

    Source:
        AHNPL (Huang et al. 2025, arXiv 2505.15576), Eqs. 5 to 7 over N; masks are ours. The released code multiplies
        by the logit scale, scores each anchor against the negatives of all rows, and computes a cross-entropy whose
        target is itself a negative, usually of another row, so it pulls that negative closer.
    """
    size, width = check_pairs(image, text)
    mask = check_negatives(negative_text, negative_mask, size, width)
    check_shape("negative_image", negative_image, N=size, K=mask.shape[1], D=width)
    part = slice(None) if rows is None else rows
    visual = _own_log_sum_exp(image[part], negative_image[part], mask[part]) / size
    textual = _own_log_sum_exp(text[part], negative_text[part], mask[part]) / size
    metrics = {"loss_visual_negative": visual.detach(), "loss_textual_negative": textual.detach()}
    return visual + textual, nan_without(mask, metrics)


@full_precision
def positive_margin_loss(
    image: Tensor, text: Tensor, *, margin: Tensor, rows: slice | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the positive margin loss, the mean over rows of max(0, margin - <image_i, text_i>).

    Gradients reach the margin too: dL/dmargin is the share of pairs below it, which is at least 0. So descent can only
    lower the margin, until every pair is above it or it reaches the floor of `LearnedMargin`, where it stays forever.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        margin: [] or [1], cosine: the paper's learnable `a`.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only its rows are summed, over
            the global count N, so the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], cosine) and detached metrics, which add up over a partition as the loss does:
        `loss_positive_margin` (cosine) and `active_positive_margins` (0 to 1: the share of the N pairs that stay
        below the margin, the ones with a gradient).

    Raises:
        ValueError: If a shape does not match.

    Source:
        AHNPL (Huang et al. 2025, arXiv 2505.15576), Eq. 8 over N. The released code never computes this term in
        training, does not pass `a` to the optimizer, and would compare it with logits, which exceed it from the start.
    """
    size, _ = check_pairs(image, text)
    part = slice(None) if rows is None else rows
    shortfall = (check_scalar("margin", margin) - (image[part] * text[part]).sum(-1)).relu()
    loss = shortfall.sum() / size
    active = (shortfall > 0).sum().to(loss.dtype) / size
    return loss, {"loss_positive_margin": loss.detach(), "active_positive_margins": active}


@full_precision
def ahnpl_loss(
    image: Tensor,
    text: Tensor,
    negative_image: Tensor,
    negative_text: Tensor,
    *,
    logit_scale: Tensor,
    margin: Tensor,
    threshold: Tensor,
    negative_kind: Tensor,
    negative_mask: Tensor | None = None,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    negative_text_id: Tensor | None = None,
    multimodal_weight: float = 1.0,
    positive_margin_weight: float = 1.0,
    negative_margin_weight: float = 1.0,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the AHNPL loss: 2 * contrastive + multimodal + positive margin + negative margin, each weighted.

    The parts are `info_nce_loss` with negative_text, `multimodal_hard_negative_loss`, `positive_margin_loss` and
    `negative_margin_loss`. Every part sums over a row's own entries and divides by N, so no row's weight depends on
    how many other rows have negatives. Image negatives are only in the multimodal part.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_image: [N, K, D], L2-normalized; `perturb_image`.
        negative_text: [N, K, D], L2-normalized, K at least 1; hard negatives of text i.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0; used only by the contrastive part.
        margin: [] or [1], cosine; `LearnedMargin`.
        threshold: [kinds], cosine; `adaptive_threshold` of the previous step.
        negative_kind: [N, K] long, positions in threshold. Ignored where masked.
        negative_mask: [N, K] bool, True = valid; None means all are valid.
        image_id: [N] long or None, as in `info_nce_loss`, for the contrastive part; the other parts read only own
            entries.
        text_id: [N] long or None, used in the same way.
        negative_text_id: [N, K] long or None, as in `info_nce_loss`. In the other parts, own negatives that equal the
            own text are masked.
        multimodal_weight: Weight of the multimodal hard negative loss.
        positive_margin_weight: Weight of the positive margin loss.
        negative_margin_weight: Weight of the negative margin loss.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only its anchors are summed, over
            the global count N, so the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], nats and cosines) and detached metrics, which add up over a partition as the loss does: those of
        the four parts, unweighted.

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        AHNPL (Huang et al. 2025, arXiv 2505.15576), Eq. 12 over N. Its Eq. 4 adds the two directions while ours is
        their mean, hence the 2. Table 3 and the released code show that text negatives are keys of the contrastive
        part.
    """
    contrastive, metrics = info_nce_loss(
        image,
        text,
        logit_scale=logit_scale,
        negative_text=negative_text,
        negative_mask=negative_mask,
        image_id=image_id,
        text_id=text_id,
        negative_text_id=negative_text_id,
        rows=rows,
    )
    own = check_negatives(negative_text, negative_mask, *check_pairs(image, text))
    own = negative_keys(own, text_id, negative_text_id).own_mask()
    multimodal, multimodal_metrics = multimodal_hard_negative_loss(
        image, text, negative_image, negative_text, negative_mask=own, rows=rows
    )
    positive, positive_metrics = positive_margin_loss(image, text, margin=margin, rows=rows)
    negative, negative_metrics = negative_margin_loss(
        image,
        text,
        negative_text,
        threshold=threshold,
        negative_kind=negative_kind,
        negative_mask=own,
        rows=rows,
    )
    weighted = multimodal_weight * multimodal + positive_margin_weight * positive + negative_margin_weight * negative
    return 2 * contrastive + weighted, {**metrics, **multimodal_metrics, **positive_metrics, **negative_metrics}


def _own_log_sum_exp(anchor: Tensor, negatives: Tensor, mask: Tensor) -> Tensor:
    """Returns the sum over anchors of the log-sum-exp of cosines with their own negatives ([R, D], [R, K, D])."""
    terms = log_sum_exp(own_negative_logits(anchor, negatives, mask, anchor.new_ones(())))
    # `log_sum_exp` is -inf without a negative. Its gradient is 0 there, so `where` cannot turn it into NaN.
    return torch.where(mask.any(1), terms, 0).sum()
