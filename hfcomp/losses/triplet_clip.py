"""TripletCLIP: InfoNCE with negative texts, once for the originals and once for their hard negatives."""

from __future__ import annotations

import torch
from torch import Tensor

from hfcomp.losses._ops.items import nan_without
from hfcomp.losses._ops.pairs import (
    both_directions,
    cross_entropy,
    direction_metrics,
    hard_negative_accuracy,
    own_negative_logits,
    select,
    with_all_negatives,
)
from hfcomp.losses._ops.precision import full_precision
from hfcomp.losses._ops.shapes import check_mask, check_pairs, check_scalar, check_shape
from hfcomp.losses._ops.shared_rows import SharedRows, doubled_texts, ranks
from hfcomp.losses.info_nce import info_nce_loss


@full_precision
def triplet_clip_loss(
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
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the TripletCLIP loss, L(image, text, negative_text) + L(negative_image, negative_text, text).

    L(x, y, y') averages two directions. Image to text: x_i against all texts y and y', N x 2N. Text to image: y_i
    against all images x, N x N. So images and negative images are never in the same softmax, but texts of both are.

    Masks: the first half has all N originals as anchors, and the valid negative texts as further keys. Row i of the
    second half is an anchor, in both directions, only if its negative image and its negative text are valid. The keys
    of an image are the valid negative texts and all original texts; the keys of a text are the valid negative images,
    whether or not their own counterpart is valid. The first half divides by N, the second by the number of its
    anchors; without any it is 0 with a zero gradient.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_image: [N, D], L2-normalized; hard negative of image i.
        negative_text: [N, D], L2-normalized; hard negative of text i, and describes negative image i.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        negative_image_mask: [N] bool, True = valid; None means all are valid.
        negative_text_mask: [N] bool, True = valid; None means all are valid.
        image_id: [N] long, equal for rows with the same image; None = all rows differ. Rows with the same image are
            neither positives nor negatives of each other: text j is not a key of image i, nor image j of text i. This
            applies only to the first half: negative texts are false of the image in all of its rows, and negative
            images count as distinct images, of which the original texts are false.
        text_id: [N] long, equal for equal texts; None = all rows differ. Rows with the same text are excluded from
            each other's keys too.
        negative_text_id: [N] long, comparable with text_id, which it requires. A negative text that equals text i is
            not a key of image i, nor is text i a key of the negative image that it describes. In the second half, rows
            with the same negative text are excluded from each other's keys.
        rows: This process's slice of N, which selects rows of both halves; None computes the whole loss. Given a
            slice, only its anchors are summed, over the global counts, so the slices of a partition add up to the
            whole in value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does.
        `loss_image_to_text`, `loss_text_to_image`: nats, the first half, which is the mean of the two.
        `loss_negative_image_to_text`, `loss_negative_text_to_image`: nats, the same for the second half.
        `accuracy_...` of the same four names: 0 to 1, own pair strictly above every other key; NaN without any.
        `hard_negative_accuracy`, `hard_negative_accuracy_negative_image`: 0 to 1, the own text scores strictly above
            its counterpart, among anchors with a valid counterpart; those of the second half are NaN without an
            anchor.
        With ids `same_image_pairs`, `same_text_pairs` and `same_text_negatives`, as in `info_nce_loss`; those of texts
            are sums over both halves.

    Raises:
        ValueError: If a shape or a mask's type does not match.

    Source:
        TripletCLIP (Patel et al. 2024, arXiv 2411.02545), as in its released code, which adds the two halves. Without
        masks, each half is `info_nce_loss` with one negative text per row. Masks are ours; in that code, every row has
        both a negative image and a negative text.
    """
    size, width = check_pairs(image, text)
    check_shape("negative_image", negative_image, N=size, D=width)
    check_shape("negative_text", negative_text, N=size, D=width)
    image_valid = _valid("negative_image_mask", negative_image_mask, image)
    text_valid = _valid("negative_text_mask", negative_text_mask, image)
    scale = check_scalar("logit_scale", logit_scale)
    originals, metrics = info_nce_loss(
        image,
        text,
        logit_scale=scale,
        negative_text=negative_text.unsqueeze(1),
        negative_mask=text_valid.unsqueeze(1),
        image_id=image_id,
        text_id=text_id,
        negative_text_id=None if negative_text_id is None else negative_text_id.unsqueeze(1),
        rows=rows,
    )
    doubled = None
    if negative_text_id is not None:
        doubled = doubled_texts(text_id, negative_text_id, torch.cat([torch.ones_like(text_valid), text_valid]))
    negatives, negative_metrics, left_out = _negative_half(
        negative_image.masked_fill(~image_valid.unsqueeze(1), 0),
        negative_text.masked_fill(~text_valid.unsqueeze(1), 0),
        text,
        scale,
        image_valid,
        text_valid,
        doubled,
        select(size, rows, image.device),
    )
    metrics |= {name: metrics[name] + number for name, number in left_out.items()}
    return originals + negatives, metrics | negative_metrics


def _negative_half(
    image: Tensor,
    text: Tensor,
    other_text: Tensor,
    scale: Tensor,
    image_valid: Tensor,
    text_valid: Tensor,
    doubled: Tensor | None,
    anchors: Tensor | None,
) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """Returns L(negative image, negative text, text), its metrics and the number of keys it excludes.

    Masked rows of image and text hold zeros. `doubled` holds the numbers of [other texts; texts], [2N].
    """
    size, part = len(image), slice(None) if anchors is None else anchors
    own = torch.arange(size, device=image.device).unsqueeze(1)
    other_number, number = (None, None) if doubled is None else doubled.split(size)
    shared = SharedRows(None, None if number is None else ranks(number))
    to_text, to_image = both_directions(
        image,
        text,
        scale,
        positions=own,
        additions=image.new_full(own.shape, -torch.inf),
        anchors=anchors,
        image_mask=image_valid,
        text_mask=text_valid,
        shared=shared,
    )
    other, everyone = other_text.unsqueeze(1), torch.ones_like(own, dtype=torch.bool)
    numbers = None if number is None else number[part], other_number
    to_text = with_all_negatives(to_text, image[part], other, everyone, scale, *numbers)
    both, ones = image_valid & text_valid, own.new_ones(size)
    counted, count = both[part], both.sum().clamp(min=1)
    loss_to_text, loss_to_image = (cross_entropy(way, counted) / count for way in (to_text, to_image))
    # Accuracies cover anchors that have another key. `equal`: number of other texts that each image excludes.
    equal = SharedRows(None, doubled).count_left_out(torch.cat([ones, torch.zeros_like(ones)]))[size:]
    meets_text = shared.count_left_out(text_valid.long()) + equal < text_valid.sum() + size
    meets_image = shared.count_left_out(image_valid.long()) < image_valid.sum()
    of_text, of_image = (both & meets_text).sum(), (both & meets_image).sum()
    compared = both if number is None else both & (number != other_number)
    hard = own_negative_logits(image[part].detach(), other[part].detach(), compared[part].unsqueeze(1), scale.detach())
    metrics = {
        **direction_metrics("negative_image_to_text", loss_to_text, to_text, to_text.top, counted, of_text),
        **direction_metrics("negative_text_to_image", loss_to_image, to_image, to_image.top, counted, of_image),
        "hard_negative_accuracy_negative_image": hard_negative_accuracy(to_text.entries[:, 0], hard, compared.sum()),
    }
    left_out = {} if number is None else {"same_text_negatives": equal[part].sum().float()}
    left_out |= shared.count_pairs(ones, anchors, "pairs")
    return (loss_to_text + loss_to_image) / 2, nan_without(both, metrics), left_out


def _valid(name: str, mask: Tensor | None, image: Tensor) -> Tensor:
    """Returns the mask [N]. Without one, all are valid."""
    if mask is None:
        return torch.ones(len(image), dtype=torch.bool, device=image.device)
    check_mask(name, mask, N=len(image))
    return mask
