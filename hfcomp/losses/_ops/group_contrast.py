"""Contrasts an anchor's group with the others, and weights the two terms of the group losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hfcomp.losses._ops.chunks import ChunkSums, check_first_derivative, chunk_rows, exp_difference, parts
from hfcomp.losses._ops.group_members import Members, SharedMembers
from hfcomp.losses._ops.items import nan_without

Terms = Callable[..., tuple[Tensor, ...]]
# Maps groups [r] to a mask of the entries that their anchors exclude, which broadcasts to [r, A, G, K].
LeftOut = Callable[[Tensor], Tensor]


class Term(NamedTuple):
    """Sums over this process's anchors, divided by the global number of anchors."""

    loss: Tensor  # [] nats
    # [] 0 to 1: the own group scores strictly highest, among anchors with another group to compare. NaN without.
    accuracy: Tensor
    anchors: Tensor  # [] long, the global number of anchors


class GroupTerms(NamedTuple):
    """Contribution of some groups' anchors to a term."""

    loss: Tensor  # [] sum over anchors of -log p(own group)
    hits: Tensor  # [] long, number of anchors with another group that score their own group strictly highest
    gradient: Tensor  # [r, G, ...] of loss with respect to the scores


def group_terms(scores: Tensor, group: Tensor, valid: Tensor, counted: Tensor) -> GroupTerms:
    """Sums the cross-entropy of their own group over anchors.

    Args:
        scores: [r, G, ...] finite logits of the anchors of r groups.
        group: [r] long, the number (0 to G - 1) of each of the r groups.
        valid: [G] bool, whether a group exists.
        counted: [r, ...] bool, whether an anchor exists.
    """
    index = torch.arange(len(group), device=group.device)
    keep = valid.repeat(len(group), 1)
    keep[index, group] = False
    keep = keep.reshape(*keep.shape, *(1,) * (scores.ndim - 2))
    # Added because filling by a mask takes many times as long
    right, best = scores[index, group], (scores + absent(keep, scores.dtype)).amax(1)
    others = exp_difference(scores, best.unsqueeze(1)).clamp_(max=1).mul_(keep)
    # The sum is at least 1 unless there is no other group.
    weight = others.sum(1).clamp_(min=1)
    # Stays exact if the own group has nearly all of the probability
    behind = best + weight.log() - right
    loss = torch.where(counted, F.softplus(behind, threshold=40), 0).sum()
    wrong = torch.where(counted, behind.sigmoid(), 0)
    gradient = others.mul_((wrong / weight).unsqueeze(1))
    gradient[index, group] = -wrong
    # Half of the lowest number, because a score was added to it: only entries marked by `absent` lie below.
    met = best > torch.finfo(best.dtype).min / 2
    return GroupTerms(loss, (counted & met & (right > best)).sum(), gradient)


def absent(valid: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the values to add to logits: 0 where valid, else the lowest finite number."""
    # Not -inf, because if every group is absent, so is the highest, and -inf minus -inf would be NaN.
    return torch.zeros(valid.shape, dtype=dtype, device=valid.device).masked_fill(~valid, torch.finfo(dtype).min)


def mean_over_groups(terms: Terms, keys: Tensor, *members: Tensor, count: Tensor, compared: Tensor, work: int) -> Term:
    """Computes a term over the anchors of R groups, a chunk of groups at a time.

    Args:
        terms: Function from a slice of R, keys and the members of these groups to `loss` and `hits` of `group_terms`
            and the gradients of `loss` with respect to keys and each of members.
        keys: Keys that the anchors of every group are compared with.
        members: [R, ...] each.
        count: [] long, number of anchors of all groups. 0 gives a loss of 0.
        compared: [] long, number of anchors that are compared with another group.
        work: Number of elements of the largest tensor that terms creates per group. A group is never split.
    """
    total, hits = _GroupSums.apply(terms, _groups_at_once(members[0], work), keys, *members)
    # An accuracy without anchors is 0 / 0 = NaN on purpose: such a metric is missing, not 0.
    return Term(total / count.clamp(min=1), hits.to(total.dtype) / compared, count)


def count_compared(query: Members, keys: Members, left_out: LeftOut | None) -> Tensor:
    """Returns the number of anchors that are compared with another group, [] long. Args as in `contrast_groups`."""
    groups = torch.arange(len(keys.mask), device=keys.mask.device)
    count = groups.new_zeros(())
    for part in parts(len(groups), _groups_at_once(query.embedding, query.mask.shape[1] * keys.mask.numel())):
        compared = keys.mask & (groups[part, None, None, None] != groups[:, None])
        if left_out is not None:
            compared = compared & ~left_out(groups[part])
        count += (query.mask[part] & compared.flatten(2).any(2)).sum()
    return count


def _groups_at_once(members: Tensor, work: int) -> int:
    """Returns how many groups fit into a chunk, if about eight tensors are held."""
    return chunk_rows(members, 8 * work)


def contrast_groups(
    query: Members, keys: Members, temperature: float, rows: slice, left_out: LeftOut | None = None
) -> Term:
    """Computes the mean over anchors of -log of the share of the own group's keys among all groups' keys.

    An anchor a of group g adds -log(sum_j exp(<a, key_gj> / temperature) / sum_hj exp(<a, key_hj> / temperature)).
    The score of a group is the log of its sum, so a group with more keys scores higher. A group whose keys are all
    excluded does not count for the anchor.

    Args:
        query: Anchors, of the same G groups as keys.
        keys: Keys to score them against.
        temperature: In cosine, above 0.
        rows: Groups whose anchors are summed, divided by the number of anchors of all groups.
        left_out: Keys of other groups that an anchor is not compared with; None for none.
    """
    anchors, counted = query.embedding[rows], query.mask[rows]
    group, valid = torch.arange(len(keys.mask), device=anchors.device)[rows], keys.mask.any(1)
    out = absent(keys.mask, anchors.dtype)

    def terms(part: slice, to: Tensor, some: Tensor) -> tuple[Tensor, ...]:
        logits = _mask_left_out(_logits(some, to, temperature).add_(out), left_out, group[part])
        loss, hits, of_logits = _direction(logits, group[part], valid, counted[part])
        return loss, hits, *_member_gradients(of_logits, to, some, temperature)

    work = anchors.shape[1] * out.numel()
    compared = count_compared(query, keys, left_out)
    return mean_over_groups(terms, keys.embedding, anchors, count=query.mask.sum(), compared=compared, work=work)


def contrast_both(
    first: Members, second: Members, temperature: float, rows: slice, left_out: LeftOut | None = None
) -> Term:
    """Computes the mean of `contrast_groups` from first to second and back. Both have the same mask.

    The excluded entries must be the same seen from both.

    If the anchors are all groups and a matrix of logits is small enough, one matrix serves both directions.
    """
    groups, members = first.mask.shape
    work = members * first.mask.numel()
    # The mirror needs the logits of all groups' anchors at once, because it is a view of the same matrix with rows and
    # keys swapped.
    if range(groups)[rows] != range(groups) or _groups_at_once(first.embedding, work) < groups:
        forth = contrast_groups(first, second, temperature, rows, left_out)
        return mean_term(forth, contrast_groups(second, first, temperature, rows, left_out))
    group, valid = torch.arange(groups, device=first.mask.device), first.mask.any(1)
    out = absent(first.mask, first.embedding.dtype)

    def terms(_: slice, to: Tensor, some: Tensor) -> tuple[Tensor, ...]:
        logits = _logits(some, to, temperature)
        forth, hits, of_logits = _direction(_mask_left_out(logits + out, left_out, group), group, valid, first.mask)
        mirror = _mask_left_out(logits.permute(2, 3, 0, 1) + out, left_out, group)
        back, more, of_mirror = _direction(mirror, group, valid, first.mask)
        of_logits.add_(of_mirror.permute(2, 3, 0, 1))
        return forth + back, hits + more, *_member_gradients(of_logits, to, some, temperature)

    counts = {"count": 2 * first.mask.sum(), "compared": 2 * count_compared(first, second, left_out)}
    return mean_over_groups(terms, second.embedding, first.embedding, **counts, work=work)


def _logits(query: Tensor, keys: Tensor, temperature: float) -> Tensor:
    """Returns [r, A, G, K] from [r, A, D] and [G, K, D]."""
    return torch.mm(query.flatten(0, 1) / temperature, keys.flatten(0, 1).mT).view(*query.shape[:2], *keys.shape[:2])


def _mask_left_out(logits: Tensor, left_out: LeftOut | None, group: Tensor) -> Tensor:
    """Fills the entries of logits [r, A, G, K] that groups [r] exclude with the lowest finite number, in place."""
    return logits if left_out is None else logits.masked_fill_(left_out(group), torch.finfo(logits.dtype).min)


def _direction(logits: Tensor, group: Tensor, valid: Tensor, counted: Tensor) -> tuple[Tensor, ...]:
    """Returns loss and hits of anchors with logits [r, A, G, K], and the gradient of these, in their memory."""
    best = logits.amax(3)
    shares = exp_difference(logits, best.unsqueeze(3), logits)
    sums = shares.sum(3)
    loss, hits, gradient = group_terms((best + sums.log()).mT, group, valid, counted)
    # By the chain rule, a logit has its group's gradient times its share of the group's sum.
    return loss, hits, shares.mul_((gradient.mT / sums).unsqueeze(3))


def _member_gradients(of_logits: Tensor, keys: Tensor, query: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Returns the gradients of keys and query, given the gradient of their `_logits`."""
    flat = of_logits.flatten(2).flatten(0, 1) / temperature
    of_keys, of_query = torch.mm(flat.mT, query.flatten(0, 1)), torch.mm(flat, keys.flatten(0, 1))
    return of_keys.view_as(keys), of_query.view_as(query)


def mean_term(first: Term, second: Term) -> Term:
    """Returns the mean of two terms with the same number of anchors."""
    return Term((first.loss + second.loss) / 2, (first.accuracy + second.accuracy) / 2, first.anchors + second.anchors)


def contrast_members(
    images: Members, texts: Members, temperature: float, rows: slice, shared: SharedMembers | None
) -> Term:
    """Computes `contrast_both` of images and texts, excluding pairs in two groups that share an image or caption."""
    return contrast_both(images, texts, temperature, rows, None if shared is None else shared.member_overlap)


def weigh(
    outer: Term, inner: Term, alpha: float, shared: SharedMembers | None, rows: slice
) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns alpha * inner + (1 - alpha) * outer, and both terms unweighted as detached metrics."""
    metrics = {
        **nan_without(outer.anchors > 0, {"loss_outer": outer.loss.detach()}),
        **nan_without(inner.anchors > 0, {"loss_inner": inner.loss.detach()}),
        "accuracy_outer": outer.accuracy,
        "accuracy_inner": inner.accuracy,
        **({} if shared is None else shared.pairs(rows)),
    }
    return alpha * inner.loss + (1 - alpha) * outer.loss, metrics


class _GroupSums(torch.autograd.Function):
    """The first output is a scalar, so the gradient is accumulated in the same pass and nothing is computed twice."""

    @staticmethod
    def forward(ctx: Any, terms: Terms, chunk: int, keys: Tensor, *members: Tensor) -> tuple[Tensor, ...]:
        gradients = [torch.zeros_like(keys), *map(torch.empty_like, members)]
        chunks = list(parts(len(members[0]), chunk)) or [slice(0, 0)]
        sums = ChunkSums(len(chunks))
        for part in chunks:
            loss, hits, of_keys, *of_members = terms(part, keys, *(x[part] for x in members))
            sums.add(loss, hits)
            gradients[0] += of_keys
            for gathered, gradient in zip(gradients[1:], of_members, strict=True):
                gathered[part] = gradient
        ctx.save_for_backward(*gradients)
        total, hits = sums.totals()
        ctx.mark_non_differentiable(hits)
        return total, hits

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        check_first_derivative()
        return None, None, *(gradients[0] * gradient for gradient in ctx.saved_tensors)
