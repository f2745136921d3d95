"""Shared code of the losses over image-text pairs: contrast in both directions, cross-entropy and metrics."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hfcomp.losses._ops.contrast import contrast, log_sum_exp
from hfcomp.losses._ops.shapes import check_negatives, check_pairs, check_scalar
from hfcomp.losses._ops.shared_rows import NegativeKeys, SharedRows, count_anchors, negative_keys, shared_rows


class Direction(NamedTuple):
    """Result of one direction for R anchors. -inf stands for "no such entry"."""

    others: Tensor  # [R] log-sum-exp over all keys except the anchor's own, including additions
    top: Tensor  # [R] highest logit outside the given positions, without gradient
    entries: Tensor  # [R, A] plain logits at the given positions


def cross_entropy(direction: Direction, counted: Tensor | None = None) -> Tensor:
    """Returns the sum over counted anchors of -log p(own pair) [nats]; the own pair is at position 0.

    It is softplus(others - own), which is exact even if the own pair has nearly all of the probability.
    """
    # The default threshold of 20 drops exp(-20) = 2e-9, which float64 would see; at 40 neither type loses anything.
    terms = F.softplus(direction.others - direction.entries[:, 0], threshold=40)
    return terms.sum() if counted is None else torch.where(counted, terms, 0).sum()


def direction_metrics(
    name: str, loss: Tensor, direction: Direction, highest: Tensor, counted: Tensor | bool, count: Tensor | int
) -> dict[str, Tensor]:
    """Returns a direction's `loss_<name>` and `accuracy_<name>`, as sums over this process's anchors over `count`.

    Args:
        name: image_to_text or text_to_image.
        loss: [] loss of this direction.
        direction: Logits of this direction; the anchor's own pair is at position 0.
        highest: [R] highest logit of any other key, or -inf without one, which does not count. A tie is a miss.
        counted: [R] bool, or True for all anchors.
        count: Number of counted anchors with another key, over all processes. 0 gives an accuracy of NaN.
    """
    hit = (direction.entries[:, 0] > highest) & (highest > -torch.inf) & counted
    return {f"loss_{name}": loss.detach(), f"accuracy_{name}": hit.sum().to(loss.dtype) / count}


def hard_negative_accuracy(positive: Tensor, negatives: Tensor, count: Tensor) -> Tensor:
    """Returns the share of anchors whose own pair scores above all their own negatives (a tie is a miss).

    Args:
        positive: [R] logits.
        negatives: [R, K] logits, -inf = masked. An anchor without negatives is not counted.
        count: [] number of anchors with a negative, over all processes. 0 gives NaN.
    """
    hardest = negatives.amax(1)
    hit = (positive > hardest) & (hardest > -torch.inf)
    return hit.sum().to(positive.dtype) / count


def select(size: int, rows: slice | None, device: torch.device) -> Tensor | None:
    """Returns the indices [R] that `rows` selects from `size` rows, or None for all rows."""
    return None if rows is None else torch.arange(size, device=device)[rows]


def both_directions(
    image: Tensor,
    text: Tensor,
    scale: Tensor,
    *,
    positions: Tensor,
    additions: Tensor,
    anchors: Tensor | None,
    image_mask: Tensor | None = None,
    text_mask: Tensor | None = None,
    shared: SharedRows,
) -> tuple[Direction, Direction]:
    """Contrasts images with texts and texts with images.

    All anchors take a single pass over [N, N]; a part of them takes a pass over [R, N] in each direction.

    Args:
        image: [N, D].
        text: [N, D].
        scale: [].
        positions: [N, A] long. Each column must be its own inverse (positions[positions[i]] = i), so the pattern of
            additions is the same seen from images and from texts.
        additions: [N, A] logits, the same at i and at positions[i].
        anchors: [R] long, or None for all N.
        image_mask: [N] bool.
        text_mask: [N] bool.
        shared: Rows that share an image or caption, which are not contrasted. A row shares with itself, so additions
            at own pairs must be -inf.
    """
    groups = shared.groups()
    if anchors is None:
        whole = contrast(
            image,
            text,
            scale,
            positions=positions,
            additions=additions,
            query_mask=image_mask,
            key_mask=text_mask,
            query_groups=groups,
            key_groups=groups,
        )
        # A single pass has entries for images only. Text i at position p has the entry of image positions[i, p].
        mirrored = whole.entries.gather(0, positions)
        return (
            Direction(whole.row, whole.row_top, whole.entries),
            Direction(whole.column, whole.column_top, mirrored),
        )
    to_text, to_image = (
        contrast(
            query[anchors],
            keys,
            scale,
            positions=positions[anchors],
            additions=additions[anchors],
            key_mask=key_mask,
            query_groups=shared.groups(anchors),
            key_groups=groups,
            columns=False,
        )
        for query, keys, key_mask in ((image, text, text_mask), (text, image, image_mask))
    )
    return (
        Direction(to_text.row, to_text.row_top, to_text.entries),
        Direction(to_image.row, to_image.row_top, to_image.entries),
    )


def plain_directions(
    image: Tensor, text: Tensor, scale: Tensor, anchors: Tensor | None, shared: SharedRows
) -> tuple[Direction, Direction]:
    """Contrasts N images with N texts. The only position is the own pair ([N, D], [N, D], [], [R] or None)."""
    own = torch.arange(len(image), device=image.device).unsqueeze(1)
    out = image.new_full(own.shape, -torch.inf)
    return both_directions(image, text, scale, positions=own, additions=out, anchors=anchors, shared=shared)


def with_all_negatives(
    direction: Direction,
    image: Tensor,
    negative_text: Tensor,
    mask: Tensor,
    scale: Tensor,
    image_number: Tensor | None = None,
    text_number: Tensor | None = None,
) -> Direction:
    """Adds the unmasked negative texts of all rows as keys ([R, D] anchors, [N, K, D], [N, K] bool).

    An image is not compared with a text whose number ([N, K]) equals its own ([R]); without numbers, with all texts.
    """
    negative_text = negative_text.masked_fill(~mask.unsqueeze(-1), 0)
    more = contrast(
        image,
        negative_text.flatten(0, 1),
        scale,
        key_mask=mask.flatten(),
        # A group is a caption here, so an image excludes negatives that repeat its own caption.
        query_groups=None if image_number is None else image_number.unsqueeze(0),
        key_groups=None if text_number is None else text_number.flatten().unsqueeze(0),
        columns=False,
    )
    others = log_sum_exp(torch.stack((direction.others, more.row), -1))
    return Direction(others, torch.maximum(direction.top, more.row_top), direction.entries)


def own_negative_logits(image: Tensor, negative_text: Tensor, mask: Tensor, scale: Tensor) -> Tensor:
    """Returns each image's logits [R, K] with its own K negatives, -inf where masked."""
    negative_text = negative_text.masked_fill(~mask.unsqueeze(-1), 0)
    # A product and a sum, because the backward of a matrix product would run in half precision inside autocast.
    return (scale * (image.unsqueeze(1) * negative_text).sum(-1)).masked_fill(~mask, -torch.inf)


def contrast_pairs(
    image: Tensor,
    text: Tensor,
    logit_scale: Tensor,
    negative_text: Tensor | None,
    negative_mask: Tensor | None,
    rows: slice | None,
    ids: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> tuple[Direction, Direction, tuple[Tensor, Tensor], dict[str, Tensor]]:
    """Checks and contrasts a batch; images also have all N*K negative texts as keys. Arguments as in `info_nce_loss`.

    The ids are image_id, text_id and negative_text_id.

    Returns:
        Image to text, text to image, the number of the N anchors that have another key in each ([] long), and the
        metrics: `hard_negative_accuracy` if there are negatives, and the excluded pairs if there are ids.
    """
    size, width = check_pairs(image, text)
    scale, anchors = check_scalar("logit_scale", logit_scale), select(size, rows, image.device)
    image_id, text_id, negative_text_id = ids
    shared = shared_rows(image_id, text_id, size)
    to_text, to_image = plain_directions(image, text, scale, anchors, shared)
    ones = torch.ones(size, dtype=torch.long, device=image.device)
    metrics = shared.count_pairs(ones, rows, "pairs")
    if negative_text is None:
        for name, value in (("negative_mask", negative_mask), ("negative_text_id", negative_text_id)):
            if value is not None:
                raise ValueError(f"{name} is given without negative_text")
        return to_text, to_image, (count_anchors(shared, image),) * 2, metrics
    mask = check_negatives(negative_text, negative_mask, size, width)
    keys, part = negative_keys(mask, text_id, negative_text_id), slice(None) if anchors is None else anchors
    numbers = None if keys.caption is None else keys.caption[part], keys.number
    to_text = with_all_negatives(to_text, image[part], negative_text, mask, scale, *numbers)
    metrics |= _own_negatives_metric(to_text, image[part].detach(), negative_text[part].detach(), keys, part, scale)
    counts = count_anchors(shared, image, keys.has_negative()), count_anchors(shared, image)
    return to_text, to_image, counts, {**metrics, **keys.metrics(rows)}


def _own_negatives_metric(
    to_text: Direction, image: Tensor, negative_text: Tensor, keys: NegativeKeys, part: slice | Tensor, scale: Tensor
) -> dict[str, Tensor]:
    """Returns `hard_negative_accuracy` of the anchors `part` ([R, D], [R, K, D])."""
    own = keys.own_mask()
    hardest = own_negative_logits(image, negative_text, own[part], scale.detach())
    return {"hard_negative_accuracy": hard_negative_accuracy(to_text.entries[:, 0], hardest, own.any(1).sum())}
