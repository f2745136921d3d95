"""CE-CLIP: InfoNCE with negative texts, an intra-modal contrast and a cross-modal rank loss."""

from __future__ import annotations

from torch import Tensor

from hfcomp.losses._ops.contrast import log_sum_exp
from hfcomp.losses._ops.items import nan_without
from hfcomp.losses._ops.pairs import Direction, cross_entropy, own_negative_logits
from hfcomp.losses._ops.precision import full_precision
from hfcomp.losses._ops.shapes import check_negatives, check_pairs, check_scalar
from hfcomp.losses._ops.shared_rows import negative_keys
from hfcomp.losses.info_nce import info_nce_loss
from hfcomp.losses.ranking import negative_margin_loss


@full_precision
def ce_clip_loss(
    image: Tensor,
    text: Tensor,
    negative_text: Tensor,
    *,
    logit_scale: Tensor,
    threshold: Tensor,
    negative_kind: Tensor,
    negative_mask: Tensor | None = None,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    negative_text_id: Tensor | None = None,
    rank_weight: float = 5.0,
    intra_modal_weight: float = 0.3,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the CE-CLIP loss: contrastive + rank_weight * rank + intra_modal_weight * intra-modal.

    Contrastive is `info_nce_loss` with negative_text, rank is `negative_margin_loss`. Intra-modal is the mean over all
    N texts of log(1 + sum_k exp(logit_scale * (<text_i, negative_text_ik> - <image_i, text_i>))) over the text's own
    unmasked negatives: the cross-entropy of the own image-text pair against texts that the text encoder alone finds
    similar. A text without a negative contributes log(1) = 0 with a zero gradient. All three divide by N, so no row's
    weight depends on how many other rows have negatives.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_text: [N, K, D], L2-normalized, K at least 1; hard negatives of text i.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        threshold: [kinds], cosine; `adaptive_threshold` of the previous step.
        negative_kind: [N, K] long, positions in threshold. Ignored where masked.
        negative_mask: [N, K] bool, True = valid; None means all are valid.
        image_id: [N] long or None, as in `info_nce_loss`, for the contrastive part; the other parts read only own
            negatives.
        text_id: [N] long or None, used in the same way.
        negative_text_id: [N, K] long or None, as in `info_nce_loss`. In the other parts, own negatives that equal the
            own text are masked.
        rank_weight: Weight of the rank loss, which is in cosine.
        intra_modal_weight: Weight of the intra-modal contrast, which is in nats.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only its anchors are summed, over
            the global count N, so the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does: those of
        `info_nce_loss` with negatives, those of `negative_margin_loss`, and `loss_intra_modal` (nats). The parts are
        unweighted; those of negatives are NaN without a valid negative.

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        CE-CLIP (Zhang et al. 2024, arXiv 2306.08832) and its code, whose commits differ in the intra-modal term. Here
        the positive is the own image-text pair (2d07821); other commits have a negative as target. That code compares
        each text with the negatives of all samples, including masked ones; here they are the text's own, as in AHNPL's
        Eq. 6. Both divide by all N. The default weights are the released run's, 0.2 for ranking and 0.3. Its hinge is
        in logits and a mean over four negatives, including masked ones, so its 0.2 is 0.2 * 100 / 4 = 5 here, at a
        logit scale of 100.
    """
    size, width = check_pairs(image, text)
    mask = check_negatives(negative_text, negative_mask, size, width)
    scale = check_scalar("logit_scale", logit_scale)
    contrastive, metrics = info_nce_loss(
        image,
        text,
        logit_scale=scale,
        negative_text=negative_text,
        negative_mask=mask,
        image_id=image_id,
        text_id=text_id,
        negative_text_id=negative_text_id,
        rows=rows,
    )
    mask = negative_keys(mask, text_id, negative_text_id).own_mask()
    rank, rank_metrics = negative_margin_loss(
        image, text, negative_text, threshold=threshold, negative_kind=negative_kind, negative_mask=mask, rows=rows
    )
    part = slice(None) if rows is None else rows
    intra_modal = _intra_modal(image[part], text[part], negative_text[part], mask[part], scale) / size
    loss = contrastive + rank_weight * rank + intra_modal_weight * intra_modal
    intra_modal_metrics = nan_without(mask, {"loss_intra_modal": intra_modal.detach()})
    return loss, {**metrics, **rank_metrics, **intra_modal_metrics}


def _intra_modal(image: Tensor, text: Tensor, negative_text: Tensor, mask: Tensor, scale: Tensor) -> Tensor:
    """Returns the sum over texts of the cross-entropy of their own pair ([R, D], [R, K, D], [R, K])."""
    positive = scale * (image * text).sum(-1, keepdim=True)
    negatives = own_negative_logits(text, negative_text, mask, scale)
    # A text without negatives has a log-sum-exp of -inf, which makes its term 0.
    return cross_entropy(Direction(log_sum_exp(negatives), negatives.detach().amax(1), positive))
