"""One direction of a contrast, and what a loss makes of it: the cross-entropy of its anchors and their metrics."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Direction(NamedTuple):
    """One direction's view from R anchors; -inf stands for "no such entry"."""

    others: Tensor  # [R] log-sum-exp over every key but the anchor's own, additions included
    top: Tensor  # [R] highest logit at no given position, without gradient
    entries: Tensor  # [R, A] plain logits at the given positions


def cross_entropy(direction: Direction, counted: Tensor | None = None) -> Tensor:
    """Return the sum over counted anchors of -log p(own pair) [nats], the own pair at position 0.

    It is softplus(others - own), exact also where the own pair takes nearly all of the probability.
    """
    terms = F.softplus(direction.others - direction.entries[:, 0], threshold=40)
    return terms.sum() if counted is None else torch.where(counted, terms, 0).sum()


def direction_metrics(
    name: str, loss: Tensor, direction: Direction, highest: Tensor, counted: Tensor | bool, count: Tensor | int
) -> dict[str, Tensor]:
    """Return one direction's `loss_<name>` and `accuracy_<name>` as sums over own anchors divided by `count`.

    Args:
        name: image_to_text or text_to_image.
        loss: [] this direction's loss.
        direction: its logits; the anchor's own pair is at position 0.
        highest: [R] highest logit of any other key, -inf for none, which is no hit; a tie is a miss.
        counted: [R] bool, or True for all anchors.
        count: number of counted anchors with another key over all processes; 0 gives an accuracy of NaN.
    """
    hit = (direction.entries[:, 0] > highest) & (highest > -torch.inf) & counted
    return {f"loss_{name}": loss.detach(), f"accuracy_{name}": hit.sum().to(loss.dtype) / count}


def hard_negative_accuracy(positive: Tensor, negatives: Tensor, count: Tensor) -> Tensor:
    """Return the share of anchors whose own pair scores above all their own negatives (a tie is a miss).

    Args:
        positive: [R] logits.
        negatives: [R, K] logits, -inf = masked; an anchor with none is not counted.
        count: [] number of anchors with a negative over all processes; 0 gives NaN.
    """
    hardest = negatives.amax(1)
    hit = (positive > hardest) & (hardest > -torch.inf)
    return hit.sum().to(positive.dtype) / count
