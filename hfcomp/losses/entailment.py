"""HierarCaps: chains of texts from general to specific, each to lie straight behind the previous one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hfcomp.losses._ops.items import nan_without
from hfcomp.losses._ops.precision import full_precision
from hfcomp.losses._ops.shapes import check_mask, check_shape


class Triplets(NamedTuple):
    """Exterior angles at every text of N chains except the last; L is the length of a chain."""

    entailed: Tensor  # [N, L - 1], 0 to pi: at a text, towards the next text of its chain; 0 if not valid
    contradicted: Tensor  # [N, L - 1], 0 to pi: at the same text, towards its negative; 0 if not valid
    valid: Tensor  # [N, L - 1] bool: all three texts exist, and both angles are defined


@full_precision
def radial_entailment_loss(
    text: Tensor,
    negative_text: Tensor,
    root: Tensor,
    start_text: Tensor,
    start_negative_text: Tensor,
    *,
    entailment_weight: float,
    hardest_weight: float,
    pullback_weight: float,
    mask: Tensor | None = None,
    negative_mask: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the weighted sum of three terms over chains of texts, each more specific than the one before it.

    The exterior angle at a text e towards another text is the angle between e - root and the line from e to the other
    text: 0 if the other text continues straight behind e as seen from the root. A triplet is a text of a chain, the
    next text, which entails it, and its negative, which contradicts it. Its term is the angle towards the next text
    minus the angle towards the negative.

    Entailment: the mean of all triplets' terms. Hardest: the term of the triplet with the largest angle towards the
    next text, plus the term of the triplet with the smallest angle towards the negative, in the global batch; among
    angles that are equal up to rounding, the first. Pullback: the mean over all texts of (1 - cosine) / 2, with the
    cosine between the text's embeddings now and before training.

    A triplet is not counted if one of its texts is masked, or if one of its angles is undefined because a text
    coincides with the root, its next text or its negative. Without triplets both terms are 0 with a zero gradient; so
    is the pullback without texts.

    Args:
        text: [N, L, D], L2-normalized; chains, the most general text first, L at least 2.
        negative_text: [N, L, D], L2-normalized; for each text of a chain, a text of the same level that contradicts
            it. The last one is in no triplet, only in the pullback.
        root: [D], L2-normalized; the empty text, which everything entails. It has a gradient like all others.
        start_text: [N, L, D], L2-normalized; the same texts, encoded by the model before training.
        start_negative_text: [N, L, D], L2-normalized; the negatives, encoded by the model before training.
        entailment_weight: Weight of the mean over all triplets, 1 in the released code.
        hardest_weight: Weight of the hardest triplets, 1 in the released code.
        pullback_weight: Weight of the pullback, 10 in the released code.
        mask: [N, L] bool, True = a text; None means all are texts. A shorter chain has its texts first.
        negative_mask: [N, L] bool, True = a negative; None means all are negatives.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only its chains are summed, over
            the global counts, so the slices of a partition add up to the whole in value and gradient. The hardest
            triplets are those of all chains, counted on the process that holds them.

    Returns:
        The loss ([], radians, the pullback without unit) and detached metrics, which add up over a partition as the
        loss does: `loss_entailment`, `loss_hardest` (radians), `loss_pullback` (0 to 1), unweighted; `angle_entailed`,
        `angle_contradicted` (radians, means over triplets); `accuracy_entailment` (0 to 1: the angle towards the next
        text is strictly smaller than the angle towards the negative). NaN without a triplet, or a text.

    Raises:
        ValueError: If a shape or a mask's type does not match.

    Source:
        Alper and Averbuch-Elor 2024 (arXiv 2407.08521). The paper's text was not available: the difference of two
        angles is the loss shown on the authors' project page. The terms of the hardest triplets and of the pullback,
        the weights, the assignment of negatives and the gradient of the root follow the released code
        (TAU-VAILab/hierarcaps at ba22b89, code/train.py). Masks are ours; in that code, equal texts give NaN.
    """
    mask, negative_mask = _check(text, negative_text, root, start_text, start_negative_text, mask, negative_mask)
    triplets = angles(text, negative_text, root, mask=mask, negative_mask=negative_mask)
    part = slice(None) if rows is None else rows
    terms, count = triplets.entailed - triplets.contradicted, triplets.valid.sum().clamp(min=1)
    entailment = terms[part].sum() / count
    # The hardest triplets of the global batch: each process searches all chains and counts the two triplets only if
    # they are its own, so the sum over processes includes each once.
    hardest = _hardest(terms, triplets, part)
    pairs = ((text, start_text, mask), (negative_text, start_negative_text, negative_mask))
    texts = (mask.sum() + negative_mask.sum()).clamp(min=1)
    distances = [_distance(now[part], start[part], exists[part]) for now, start, exists in pairs]
    pullback = sum(distances, text.new_zeros(()))
    pullback = pullback / texts
    loss = entailment_weight * entailment + hardest_weight * hardest + pullback_weight * pullback
    metrics = {
        "loss_entailment": entailment.detach(),
        "loss_hardest": hardest.detach(),
        "angle_entailed": triplets.entailed[part].detach().sum() / count,
        "angle_contradicted": triplets.contradicted[part].detach().sum() / count,
        "accuracy_entailment": (terms[part].detach() < 0).sum().to(loss.dtype) / count,
    }
    of_texts = nan_without(torch.cat([mask, negative_mask]), {"loss_pullback": pullback.detach()})
    return loss, {**nan_without(triplets.valid, metrics), **of_texts}


@full_precision
def angles(text: Tensor, negative_text: Tensor, root: Tensor, *, mask: Tensor, negative_mask: Tensor) -> Triplets:
    """Computes the exterior angles of all triplets; see `radial_entailment_loss`.

    Args:
        text: [N, L, D], L2-normalized; chains, the most general text first.
        negative_text: [N, L, D], L2-normalized; the negatives of the chains.
        root: [D], L2-normalized.
        mask: [N, L] bool, True = a text.
        negative_mask: [N, L] bool, True = a negative.
    """
    exists = mask[:, :-1] & mask[:, 1:] & negative_mask[:, :-1]
    parent = text.masked_fill(~mask.unsqueeze(-1), 0)
    negative = negative_text.masked_fill(~negative_mask.unsqueeze(-1), 0)[:, :-1]
    parent, child = parent[:, :-1], parent[:, 1:]
    outward, onward, aside = parent - root, child - parent, negative - parent
    valid = exists & _has_direction(outward) & _has_direction(onward) & _has_direction(aside)
    outward, onward, aside = (_unit(vectors, valid) for vectors in (outward, onward, aside))
    return Triplets(
        _angle(outward, onward).masked_fill(~valid, 0), _angle(outward, aside).masked_fill(~valid, 0), valid
    )


def _has_direction(vectors: Tensor) -> Tensor:
    """Returns which differences of unit vectors [..., D] keep at least half of their type's digits."""
    return vectors.detach().square().sum(-1) > torch.finfo(vectors.dtype).eps


def _unit(vectors: Tensor, valid: Tensor) -> Tensor:
    """Returns vectors [..., D] with length 1; a constant without a gradient if not valid."""
    # Replaced before the root, whose gradient at 0 is infinite; a mask after it would leave NaN.
    vectors = torch.where(valid.unsqueeze(-1), vectors, 1)
    return vectors / vectors.square().sum(-1, keepdim=True).sqrt()


def _angle(first: Tensor, second: Tensor) -> Tensor:
    """Returns the angle between unit vectors [..., D]. Unlike the arc cosine's, its gradient is finite at 0 and pi."""
    return 2 * torch.atan2(
        torch.linalg.vector_norm(first - second, dim=-1), torch.linalg.vector_norm(first + second, dim=-1)
    )


def _hardest(terms: Tensor, triplets: Triplets, part: slice) -> Tensor:
    """Returns the sum of the terms of the two hardest triplets, if they belong to `part`."""
    out, own = ~triplets.valid, torch.zeros_like(triplets.valid)
    own[part] = True
    widest = triplets.entailed.detach().masked_fill(out, -torch.inf)
    narrowest = -triplets.contradicted.detach().masked_fill(out, torch.inf)
    picked = torch.stack([_first_highest(widest), _first_highest(narrowest)])
    return torch.where(own, terms, 0).flatten()[picked].sum()


def _first_highest(angles: Tensor) -> Tensor:
    """Returns the flat index of the highest angle; among angles that share half of their type's digits, the first.

    Chains often share texts, such as a general text and its negative, so angles are equal except for rounding.
    Rounding must not choose, because the triplets differ in their other angle.
    """
    near = angles >= angles.amax() - torch.finfo(angles.dtype).eps ** 0.5
    return near.flatten().to(torch.uint8).argmax()


def _distance(now: Tensor, start: Tensor, exists: Tensor) -> Tensor:
    """Returns the sum over texts [R, L, D] of (1 - cosine of now and start) / 2."""
    out = ~exists.unsqueeze(-1)
    cosine = (now.masked_fill(out, 0) * start.masked_fill(out, 0)).sum(-1)
    return torch.where(exists, 1 - cosine, 0).sum() / 2


def _check(
    text: Tensor,
    negative_text: Tensor,
    root: Tensor,
    start_text: Tensor,
    start_negative_text: Tensor,
    mask: Tensor | None,
    negative_mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Checks the shapes and returns both masks [N, L], all True if not given."""
    check_shape("text", text, N=None, L=None, D=None)
    size, levels, width = text.shape
    if not size or levels < 2 or not width:
        raise ValueError(
            f"text has shape {list(text.shape)}, expected [N, L, D] with L at least 2 and neither N nor D 0"
        )
    others = {"negative_text": negative_text, "start_text": start_text, "start_negative_text": start_negative_text}
    for name, tensor in others.items():
        check_shape(name, tensor, N=size, L=levels, D=width)
    check_shape("root", root, D=width)
    everything = torch.ones((size, levels), dtype=torch.bool, device=text.device)
    for name, value in (("mask", mask), ("negative_mask", negative_mask)):
        if value is not None:
            check_mask(name, value, N=size, L=levels)
    return everything if mask is None else mask, everything if negative_mask is None else negative_mask
