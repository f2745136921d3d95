"""AHNPL as in its authors' code, which differs from the paper; `hfcomp.losses.ahnpl` follows the paper.

All functions follow nynu-BDAI/AHNPL at 6f35f47 on one GPU, whose branch for several GPUs does not run; here any number
of processes is exact. The losses differ from it in one point: that code lets captions that could not be made (its
"###") into denominators, columns and targets, a masked negative has no embedding here and is left out of each of them.
With all negatives valid the value and the gradient are those of that code. Its thresholds belong to the five slots of
a row, ours to the kinds of negatives: the same where each slot holds one kind; see `logit_threshold`.
"""

from __future__ import annotations

from functools import partial

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
    """Move each image as its text would have to move: image + (negative_text - text), whatever length that has.

    The shift is taken as a constant: a gradient reaches the image only, not the texts.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_text: [N, K, D], L2-normalized, K at least 1; hard negatives of text i.

    Returns:
        [N, K, D], not normalized: lengths between 0 and 3.

    Raises:
        ValueError: if a shape does not fit.

    Source:
        The released code in place of Eqs. 1-3 of AHNPL (Huang et al. 2025, arXiv 2505.15576), where a pretrained CLIP
        gives the texts and S divides by the length. Here the model being trained gives them and a product of two such
        vectors is not a cosine, so longer ones weigh more; hence the paper's form is the default.
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
    """Compute the cross-entropy of each anchor against the negatives of all samples, with one of these as the target.

    The N*K negatives stand in one list, sample by sample. The target of anchor i is entry i: negative i mod K of
    sample i // K, which is another sample for all i but 0 if K is above 1. Lowering the loss draws the anchor to that
    negative and pushes it off the others, its own among them. The loss is the mean over all N anchors; one whose
    target is masked adds 0.

    Args:
        anchor: [N, D], images or texts.
        negative: [N, K, D], K at least 1: negatives of the same kind of thing (`shifted_image`, negative texts).
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        negative_mask: [N, K] bool, True = valid; None means all are.
        text_id: [N] long, equal for equal texts, or None.
        negative_text_id: [N, K] long, of the same numbers as text_id, which it needs: a negative that equals text i is
            no key of anchor i, and adds 0 as its target.
        rows: this process's slice of N; None is the whole loss. Given a slice, only its anchors are summed, over the
            global count N, so that the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], nats) and the detached metric `loss_negative_target`, which adds up over a partition as it does;
        NaN without a valid target.

    Raises:
        ValueError: if a shape or the mask's type does not fit.

    Source:
        The released code in place of Eqs. 5 and 6 of AHNPL (arXiv 2505.15576), which have no target: a log-sum-exp of
        cosines over a sample's own negatives, lowered by pushing all of them off. Hence the paper's is the default.
    """
    check_shape("anchor", anchor, N=None, D=None)
    size, width = anchor.shape
    check_shape("negative", negative, N=size, K=None, D=width)
    if not negative.numel():
        raise ValueError(f"negative has shape {list(negative.shape)}, expected [N, K, D] with none of them 0")
    mask = check_negatives(negative, negative_mask, size, width)
    listed = negative_keys(mask, text_id, negative_text_id)
    keys = negative.masked_fill(~mask.unsqueeze(-1), 0).flatten(0, 1)
    anchors = torch.arange(size, device=anchor.device)
    targets, counted = anchors[slice(None) if rows is None else rows], mask.flatten()[:size]
    own_number, number = None, None
    if listed.caption is not None and listed.number is not None:
        own_number, number = listed.caption[targets].unsqueeze(0), listed.number.flatten().unsqueeze(0)
        counted = counted & (listed.number.flatten()[:size] != listed.caption)
    found = contrast(
        anchor[targets],
        keys,
        check_scalar("logit_scale", logit_scale),
        # The target is taken out of the sum and set against it by `cross_entropy`.
        positions=targets.unsqueeze(1),
        additions=anchor.new_full((len(targets), 1), -torch.inf),
        key_mask=mask.flatten(),
        query_groups=own_number,
        key_groups=number,
        columns=False,
    )
    direction = Direction(found.row, found.row_top, found.entries)
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
    """Compute the hinge on an image's own negatives in logits: the mean over all N*K of max(0, threshold - lead).

    The lead is logit_scale * (<image_i, text_i> - <image_i, negative_text_ik>), the threshold that of the negative's
    kind. A masked entry adds 0 and is counted in the mean. Arguments as in `ahnpl_released_loss`.

    Returns:
        The loss ([], logits) and detached metrics, which add up over a partition as it does: `loss_logit_margin`
        (logits) and `active_negative_margins` (0 to 1: the share of valid negatives with a gradient).

    Raises:
        ValueError: if a shape or a type does not fit.

    Source:
        The released code in place of Eq. 9 of AHNPL (arXiv 2505.15576), which is in cosine and sums over a sample's
        negatives: this is logit_scale / K times `negative_margin_loss` at threshold / logit_scale. Its weight grows
        with the logit scale, which alone can lower the loss. Hence the paper's form is the default.
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
    """Compute the thresholds of the next step in logits: how far images now score their texts above the negatives.

    The threshold of a kind is the mean of logit_scale * <image_i, text_i> over all N rows, less the mean of
    logit_scale * <image_i, negative_text_ik> over the valid negatives of the kind. Arguments as in
    `ahnpl_released_loss`; `previous` [kinds] are the thresholds now. Called on the global batch, it gives the same on
    all processes.

    Returns:
        [kinds], logits, without gradient and without bounds: `RunningThreshold` sets those, 0 and 10 in the release.

    Raises:
        ValueError: if a shape or a type does not fit.

    Source:
        The released code in place of Eq. 10 of AHNPL (arXiv 2505.15576), which takes both means over the same rows
        and in cosine. That code has five slots for the negatives of a row and a threshold for each; a slot that no
        row fills takes 0 for the mean of its negatives. Here a kind that is absent from the batch, or whose mean is
        not finite, keeps its previous threshold: most of our kinds are absent from most batches, and a batch that has
        one again would meet the upper bound.
    """
    scale = check_scalar("logit_scale", logit_scale)
    with torch.no_grad():
        # Against zero texts a lead is minus the negative's similarity. NaN marks an absent kind.
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
    """Compute contrastive + multimodal_weight * (textual + visual) + margin_weight * margin, as released.

    Contrastive is `info_nce_loss` with negative_text, the mean of its two directions. Textual and visual are
    `negative_target_loss` of the texts and of the images with `shifted_image`. Margin is `logit_margin_loss`.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_text: [N, K, D], L2-normalized, K at least 1; hard negatives of text i.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        threshold: [kinds], logits; `logit_threshold` of the step before, between 0 and 10 in the release.
        negative_kind: [N, K] long, positions in threshold; values live on the device and are not validated. Ignored
            where masked.
        negative_mask: [N, K] bool, True = valid; None means all are.
        image_id: [N] long or None, as in `info_nce_loss`, for the contrastive part; the keys of the others
            are negatives, which are false of an image in all of its rows.
        text_id: [N] long or None, likewise.
        negative_text_id: [N, K] long or None, as in `info_nce_loss`, for all parts: a negative that equals text i is
            neither a key of row i, nor its target, nor its own negative.
        multimodal_weight: weight of the textual and of the visual term, which are in nats.
        margin_weight: weight of the hinge, which is in logits.
        rows: this process's slice of N; None is the whole loss. Given a slice, only its anchors are summed, over the
            global counts, so that the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does: those of
        `info_nce_loss` with negatives, those of `logit_margin_loss`, `loss_textual_target` and `loss_visual_target`
        (nats). The parts are not weighted.

    Raises:
        ValueError: if a shape or a type does not fit.

    Source:
        The released code in place of Eq. 12 of AHNPL (arXiv 2505.15576), which sums all terms over the batch without
        weights. Eq. 8 and its learned margin are absent: the code has them, but the switch never reaches its training
        loop. Batches without a valid negative make it InfoNCE.
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
    target_loss = partial(
        negative_target_loss,
        logit_scale=logit_scale,
        negative_mask=negative_mask,
        text_id=text_id,
        negative_text_id=negative_text_id,
        rows=rows,
    )
    mask = check_negatives(negative_text, negative_mask, *check_pairs(image, text))
    textual, of_textual = target_loss(text, negative_text)
    visual, of_visual = target_loss(image, shifted_image(image, text, negative_text))
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
    targets = {name: found["loss_negative_target"] for name, found in terms.items()}
    return loss, {**metrics, **margin_metrics, **targets}
