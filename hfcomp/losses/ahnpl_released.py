"""AHNPL as in its authors' code, which differs from the paper; `hfcomp.losses.ahnpl` follows the paper.

All functions follow nynu-BDAI/AHNPL at 6f35f47 on one GPU, because its branch for several GPUs does not run. Here any
number of processes is exact. The losses differ from that code in one point: it lets captions that could not be
generated (its "###") into denominators, columns and targets, while here a masked negative has no embedding and is left
out of all three. With all negatives valid, value and gradient equal that code's. Its thresholds belong to the five
slots of a row, ours to the kinds of negatives; they agree if each slot holds one kind (see `logit_threshold`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hfcomp.losses._ops.contrast import contrast
from hfcomp.losses._ops.items import nan_without
from hfcomp.losses._ops.pairs import Direction, cross_entropy
from hfcomp.losses._ops.precision import full_precision
from hfcomp.losses._ops.shapes import check_negatives, check_pairs, check_scalar, check_shape
from hfcomp.losses._ops.shared_rows import negative_keys
from hfcomp.losses.info_nce import info_nce_loss
from hfcomp.losses.ranking import adaptive_threshold, negative_margin_loss


@full_precision
def shifted_image(image: Tensor, text: Tensor, negative_text: Tensor) -> Tensor:
    """Moves each image as its text would have to move: image + (negative_text - text), without normalizing the result.

    The shift counts as a constant: a gradient reaches only the image, not the texts.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_text: [N, K, D], L2-normalized, K at least 1; hard negatives of text i.

    Returns:
        [N, K, D], not normalized: lengths between 0 and 3.

    Raises:
        ValueError: If a shape does not match.

    Source:
        The released code instead of Eqs. 1-3 of AHNPL (Huang et al. 2025, arXiv 2505.15576). In the paper, a
        pretrained CLIP provides the texts and S divides by the length. Here the model in training provides them, and a
        product of two such vectors is not a cosine, so longer ones weigh more. The default is therefore the paper's
        form.
    """
    check_negatives(negative_text, None, *check_pairs(image, text))
    return image.unsqueeze(1) + (negative_text - text.unsqueeze(1)).detach()


@full_precision
def negative_target_loss(
    anchor: Tensor,
    negative: Tensor,
    *,
    logit_scale: Tensor,
    negative_mask: Tensor | None = None,
    text_id: Tensor | None = None,
    negative_text_id: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the cross-entropy of each anchor against the negatives of all samples, one of which is the target.

    The N*K negatives form a single list, sample by sample. The target of anchor i is entry i: negative i mod K of
    sample i // K, which is another sample for all i except 0 if K is above 1. Lowering the loss pulls the anchor
    towards that negative and pushes it away from the others, including its own. The loss is the mean over all N
    anchors; an anchor whose target is masked adds 0.

    Args:
        anchor: [N, D], images or texts.
        negative: [N, K, D], K at least 1: negatives of the same modality (`shifted_image`, negative texts).
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        negative_mask: [N, K] bool, True = valid; None means all are valid.
        text_id: [N] long, equal for equal texts, or None.
        negative_text_id: [N, K] long, comparable with text_id, which it requires. A negative that equals text i is not
            a key of anchor i, and adds 0 as its target.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only its anchors are summed, over
            the global count N, so the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], nats) and the detached metric `loss_negative_target`, which adds up over a partition as it does;
        NaN without a valid target.

    Raises:
        ValueError: If a shape or the mask's type does not match.

    Source:
        The released code instead of Eqs. 5 and 6 of AHNPL (arXiv 2505.15576), which have no target: they lower a
        log-sum-exp of cosines over a sample's own negatives by pushing all of them away. The default is therefore the
        paper's form.
    """
    check_shape("anchor", anchor, N=None, D=None)
    size, width = anchor.shape
    check_shape("negative", negative, N=size, K=None, D=width)
    if not negative.numel():
        raise ValueError(f"negative has shape {list(negative.shape)}, expected [N, K, D] with no dimension 0")
    mask = check_negatives(negative, negative_mask, size, width)
    listed = negative_keys(mask, text_id, negative_text_id)
    keys = negative.masked_fill(~mask.unsqueeze(-1), 0).flatten(0, 1)
    anchors = torch.arange(size, device=anchor.device)
    targets, counted = anchors[slice(None) if rows is None else rows], mask.flatten()[:size]
    own_number, number = None, None
    if listed.caption is not None and listed.number is not None:
        own_number, number = listed.caption[targets].unsqueeze(0), listed.number.flatten().unsqueeze(0)
        counted = counted & (listed.number.flatten()[:size] != listed.caption)
    result = contrast(
        anchor[targets],
        keys,
        check_scalar("logit_scale", logit_scale),
        # The target is removed from the sum; `cross_entropy` compares the two.
        positions=targets.unsqueeze(1),
        additions=anchor.new_full((len(targets), 1), -torch.inf),
        key_mask=mask.flatten(),
        query_groups=own_number,
        key_groups=number,
        columns=False,
    )
    direction = Direction(result.row, result.row_top, result.entries)
    loss = cross_entropy(direction, counted=counted[targets]) / size
    return loss, nan_without(counted, {"loss_negative_target": loss.detach()})


@full_precision
def logit_margin_loss(
    image: Tensor,
    text: Tensor,
    negative_text: Tensor,
    *,
    logit_scale: Tensor,
    threshold: Tensor,
    negative_kind: Tensor,
    negative_mask: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the hinge on an image's own negatives in logits: the mean over all N*K of max(0, threshold - lead).

    The lead is logit_scale * (<image_i, text_i> - <image_i, negative_text_ik>), and the threshold is that of the
    negative's kind. A masked entry adds 0 but is counted in the mean. Arguments as in `ahnpl_released_loss`.

    Returns:
        The loss ([], logits) and detached metrics, which add up over a partition as it does: `loss_logit_margin`
        (logits) and `active_negative_margins` (0 to 1: the share of valid negatives with a gradient).

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        The released code instead of Eq. 9 of AHNPL (arXiv 2505.15576), which is in cosine and sums over a sample's
        negatives: this is logit_scale / K times `negative_margin_loss` at threshold / logit_scale. Its weight grows
        with the logit scale, so the scale by itself can lower the loss. The default is therefore the paper's form.
    """
    scale = check_scalar("logit_scale", logit_scale)
    margin, metrics = negative_margin_loss(
        image,
        text,
        negative_text,
        threshold=threshold / scale,
        negative_kind=negative_kind,
        negative_mask=negative_mask,
        rows=rows,
    )
    factor = scale / negative_text.shape[1]
    return factor * margin, {
        "loss_logit_margin": factor.detach() * metrics["loss_negative_margin"],
        "active_negative_margins": metrics["active_negative_margins"],
    }


@full_precision
def logit_threshold(
    image: Tensor,
    text: Tensor,
    negative_text: Tensor,
    *,
    logit_scale: Tensor,
    previous: Tensor,
    negative_kind: Tensor,
    negative_mask: Tensor | None = None,
) -> Tensor:
    """Computes the next step's thresholds in logits: how far images now score their texts above the negatives.

    The threshold of a kind is the mean of logit_scale * <image_i, text_i> over all N rows, minus the mean of
    logit_scale * <image_i, negative_text_ik> over the valid negatives of the kind. Arguments as in
    `ahnpl_released_loss`; `previous` [kinds] holds the current thresholds. On the global batch, the result is the same
    on all processes.

    Returns:
        [kinds], logits, without gradient and bounds: `RunningThreshold` applies bounds (0 and 10 in the release).

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        The released code instead of Eq. 10 of AHNPL (arXiv 2505.15576), which takes both means over the same rows and
        in cosine. That code has five slots for a row's negatives and a threshold for each; for a slot that no row
        fills, it takes 0 as the mean of the negatives. Here a kind that is missing from the batch, or whose mean is
        not finite, keeps its previous threshold: most of our kinds are missing from most batches, and the next batch
        with that kind would meet the upper bound.
    """
    scale = check_scalar("logit_scale", logit_scale)
    with torch.no_grad():
        # With zero texts, a lead is minus the negative's similarity. NaN marks a missing kind.
        opposite = adaptive_threshold(
            image,
            torch.zeros_like(text),
            negative_text,
            previous=torch.full_like(previous, torch.nan),
            negative_kind=negative_kind,
            negative_mask=negative_mask,
        )
        following = scale * ((image * text).sum(-1).mean() + opposite)
        return torch.where(following.isfinite(), following, previous)


@full_precision
def ahnpl_released_loss(
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
    multimodal_weight: float = 0.2,
    margin_weight: float = 0.2,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes contrastive + multimodal_weight * (textual + visual) + margin_weight * margin, as released.

    Contrastive is `info_nce_loss` with negative_text, the mean of its two directions. Textual and visual are
    `negative_target_loss` for the texts, and for the images with `shifted_image`. Margin is `logit_margin_loss`.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_text: [N, K, D], L2-normalized, K at least 1; hard negatives of text i.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        threshold: [kinds], logits; `logit_threshold` of the previous step, between 0 and 10 in the released code.
        negative_kind: [N, K] long, positions in threshold; values live on the device and are not validated. Ignored
            where masked.
        negative_mask: [N, K] bool, True = valid; None means all are valid.
        image_id: [N] long or None, as in `info_nce_loss`, for the contrastive part. The keys of the other parts are
            negatives, which are false of an image in all of its rows.
        text_id: [N] long or None, used in the same way.
        negative_text_id: [N, K] long or None, as in `info_nce_loss`, for all parts: a negative that equals text i is
            neither a key of row i, nor its target, nor its own negative.
        multimodal_weight: Weight of the textual and the visual term, which are in nats.
        margin_weight: Weight of the hinge, which is in logits.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only its anchors are summed, over
            the global counts, so the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does: those of
        `info_nce_loss` with negatives, those of `logit_margin_loss`, `loss_textual_target` and `loss_visual_target`
        (nats). The parts are unweighted.

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        The released code instead of Eq. 12 of AHNPL (arXiv 2505.15576), which sums all terms over the batch without
        weights. Eq. 8 and its learned margin are missing: the code has them, but the switch never reaches its training
        loop. Batches without a valid negative turn it into InfoNCE.
    """
    shared: dict[str, Any] = {"logit_scale": logit_scale, "negative_mask": negative_mask, "text_id": text_id}
    shared |= {"negative_text_id": negative_text_id, "rows": rows}
    contrastive, metrics = info_nce_loss(image, text, negative_text=negative_text, image_id=image_id, **shared)
    mask = check_negatives(negative_text, negative_mask, *check_pairs(image, text))
    textual, of_textual = negative_target_loss(text, negative_text, **shared)
    visual, of_visual = negative_target_loss(image, shifted_image(image, text, negative_text), **shared)
    margin, margin_metrics = logit_margin_loss(
        image,
        text,
        negative_text,
        logit_scale=logit_scale,
        threshold=threshold,
        negative_kind=negative_kind,
        negative_mask=negative_keys(mask, text_id, negative_text_id).own_mask(),
        rows=rows,
    )
    loss = contrastive + multimodal_weight * (textual + visual) + margin_weight * margin
    terms = {"loss_textual_target": of_textual, "loss_visual_target": of_visual}
    targets = {name: term["loss_negative_target"] for name, term in terms.items()}
    return loss, {**metrics, **margin_metrics, **targets}
