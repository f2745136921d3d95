"""The Cement loss: InfoNCE over originals and hard negatives as one doubled batch, with a margin on hard pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from hfcomp.losses._ops.doubled import double_batch
from hfcomp.losses._ops.items import nan_without
from hfcomp.losses._ops.pairs import Direction, cross_entropy, direction_metrics, hard_negative_accuracy
from hfcomp.losses._ops.precision import full_precision
from hfcomp.losses._ops.shapes import check_scalar, check_shape


@full_precision
def cement_loss(
    image: Tensor,
    text: Tensor,
    negative_image: Tensor,
    negative_text: Tensor,
    *,
    logit_scale: Tensor,
    margin: Tensor,
    negative_image_mask: Tensor | None = None,
    negative_text_mask: Tensor | None = None,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    negative_text_id: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the Cement loss, which shifts gradient from easy to hard negatives by a margin on the hard logit.

    The batch is doubled to [originals; negatives], and i' = i + N (or i - N) is the counterpart of i. With
    s_ij = logit_scale * <image_i, text_j> over 2N rows, an anchor's term is -log p_ii, where
    p_ij = exp(s~_ij) / sum_j exp(s~_ij), and s~ is s with margin[i] added at (i, i') and (i', i). Text to image is the
    same on the transposed logits. The loss is the mean over anchors and over the two directions.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        negative_image: [N, D], L2-normalized; hard negative of image i.
        negative_text: [N, D], L2-normalized; hard negative of text i, and describes negative image i.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        margin: [N], in logits; may carry gradient. Ignored if both negatives are masked.
        negative_image_mask: [N] bool, True = valid; None means all are valid.
        negative_text_mask: [N] bool, True = valid; None means all are valid. Row i' is an anchor only if both its
            image and its text are valid; if only one of them is, it stays a key.
        image_id: [N] long, equal for rows with the same image; None = all rows differ. Text j is then not a key of
            image i, nor image j of text i. This applies only to originals: negative texts are false of the image in
            all of its rows, and negative images are separate pictures.
        text_id: [N] long, equal for equal texts; None = all rows differ.
        negative_text_id: [N] long, comparable with text_id, which it requires. Rows of the doubled batch with equal
            texts, even i and i', are not keys of each other, because a negative image shows what its text says.
        rows: This process's slice of N, which selects i and i' together; None computes the whole loss. Given a slice,
            only its anchors are summed, over the global count of anchors, N + count(both valid), so the slices of a
            partition add up to the whole in value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does. Accuracies use the
        plain logits, without margins, and a tie is a miss.
        `loss_image_to_text`, `loss_text_to_image`: nats.
        `accuracy_image_to_text`, `accuracy_text_to_image`: 0 to 1, own pair above every other of the 2N keys; NaN
            without another key.
        `hard_negative_accuracy_image_to_text`, `hard_negative_accuracy_text_to_image`: 0 to 1, own pair above its
            counterpart, among anchors with a valid counterpart; NaN without such an anchor.
        `gradient_hard_negative`, `gradient_easy_negatives`: 0 to 1, magnitude of the gradient on the counterpart's
            logit, p_ii', and on those of all other keys, sum_j p_ij (Eq. 3), including margins, as a mean over anchors
            and directions. Together they are the magnitude on the positive, 1 - p_ii. The first is NaN without a
            valid negative image or text.
        `margin`: logits, mean over rows with a valid negative image or text; NaN without any.
        `same_image_pairs`, `same_text_pairs`: with ids, number of texts of other rows excluded as keys of an image,
            and of further ones excluded because of equal texts.

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        Concrete Jungle (arXiv 2604.13313), Eqs. 1, 3 and 5. Eq. 5 sums the two directions; here they are averaged, as
        in all contrastive losses of hfcomp, giving half the paper's value. The paper writes the margin for image
        to text and for i in 1..2N; here it belongs to the pair, m_i' = m_i, and applies to both directions. Eq. 1
        calls the rows texts and the direction vision to text; the loss is the same. The paper masks nothing.
    """
    doubled = double_batch(
        *(image, text, negative_image, negative_text),
        *(negative_image_mask, negative_text_mask),
        *(image_id, text_id, negative_text_id),
    )
    size, counterpart = len(image), doubled.counterpart
    check_shape("margin", margin, N=size)
    index = torch.arange(2 * size, device=image.device)
    image_valid, text_valid, shared = doubled.image_valid, doubled.text_valid, doubled.shared
    either, both = image_valid | text_valid, image_valid & text_valid
    # A margin without a negative is ignored, whatever its value: NaN added to a masked key's -inf stays NaN.
    raised = torch.where(either[size:], margin, 0).repeat(2)
    anchors = None if rows is None else torch.cat([index[:size][rows], index[size:][rows]])
    part = index if anchors is None else anchors
    differs = doubled.counterpart_differs()
    directions = doubled.directions(check_scalar("logit_scale", logit_scale), raised, anchors)

    ways = []
    for name, direction, keys in zip(
        ("image_to_text", "text_to_image"), directions, (text_valid, image_valid), strict=True
    ):
        compared = shared.count_left_out(keys.long()) < keys.sum()
        has_hard = both & keys[counterpart] & differs
        ways.append(_one_way(name, direction, raised[part], both, has_hard, part, both & compared))
    to_text, to_image = ways
    hard_share, easy_share = ((to_text[1] + to_image[1]) / 2).unbind()
    margins = raised[part].detach()[: len(part) // 2]  # originals come first, and i' repeats the margin of i
    return (to_text[0] + to_image[0]) / 2, {
        **to_text[2],
        **to_image[2],
        "gradient_easy_negatives": easy_share,
        **nan_without(
            either[size:],
            {"gradient_hard_negative": hard_share, "margin": margins.sum() / either[size:].sum()},
        ),
        **shared.count_pairs(torch.ones_like(index), part, "pairs"),
    }


def _one_way(
    name: str,
    direction: Direction,
    raised: Tensor,
    both: Tensor,
    has_hard: Tensor,
    part: Tensor,
    compared: Tensor,
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Returns a direction's loss, shares of Eq. 3 and metrics. Masks are [2N], everything else is for the R anchors.

    `compared` marks anchors that have a key other than their own.
    """
    counted, count = both[part], both.sum()
    hard = direction.entries[:, 1].detach().masked_fill(~has_hard[part], -torch.inf)
    loss = cross_entropy(direction, counted) / count
    shares = _allocation(direction, hard + raised.detach(), counted) / count
    metrics = direction_metrics(name, loss, direction, torch.maximum(direction.top, hard), counted, compared.sum())
    accuracy = hard_negative_accuracy(direction.entries[:, 0], hard.unsqueeze(1), has_hard.sum())
    return loss, shares, metrics | {f"hard_negative_accuracy_{name}": accuracy}


def _allocation(direction: Direction, raised_hard: Tensor, counted: Tensor) -> Tensor:
    """Returns [2]: p of the counterpart and p of all easy keys (Eq. 3), summed over counted anchors."""
    others, own = direction.others.detach(), direction.entries[:, 0].detach()
    hard = torch.exp(raised_hard - torch.logaddexp(others, own))
    easy = (torch.sigmoid(others - own) - hard).clamp(min=0)
    return torch.where(counted, torch.stack([hard, easy]), 0).sum(1)
