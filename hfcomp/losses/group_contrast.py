"""Which group an anchor belongs to: the one primitive under the group losses, and how their two terms are weighed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hfcomp.losses.chunks import chunk_rows, parts
from hfcomp.losses.derivatives import check_first_derivative
from hfcomp.losses.group_members import Members

Terms = Callable[..., tuple[Tensor, Tensor]]


class Term(NamedTuple):
    """Sums over own anchors divided by the global number of anchors."""

    loss: Tensor  # [] nats
    accuracy: Tensor  # [] 0 to 1: the own group scores strictly above every other; without gradient


def group_terms(scores: Tensor, group: Tensor, valid: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Return sums over anchors: -log p of the own group, and how many score it strictly above every other group.

    Args:
        scores: [r, G, ...] logits of the anchors of r groups, finite.
        group: [r] long, which of the G groups each of the r is.
        valid: [G] bool, whether a group is one.
        counted: [r, ...] bool, whether an anchor is one.
    """
    one = torch.arange(len(group), device=group.device)
    # added, because filling by a mask takes many times as long; finite, because a row of -inf has no gradient
    out = absent(valid, scores.dtype).repeat(len(group), 1)
    out[one, group] = torch.finfo(scores.dtype).min
    right, others = scores[one, group], scores + out.reshape(*out.shape, *(1,) * (scores.ndim - 2))
    # exact also where the own group takes nearly all of the probability
    terms = F.softplus(others.logsumexp(1) - right, threshold=40)
    return torch.where(counted, terms, 0).sum(), (counted & (right > others.detach().amax(1))).sum()


def absent(valid: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what to add to logits: 0 where valid, else the lowest finite number."""
    return torch.zeros(valid.shape, dtype=dtype, device=valid.device).masked_fill(~valid, torch.finfo(dtype).min)


def mean_over_groups(terms: Terms, keys: Tensor, *members: Tensor, count: Tensor, work: int) -> Term:
    """Compute a term over the anchors of R groups, a chunk of groups at a time.

    Args:
        terms: from a slice of R, keys and the members of these groups to two scalar sums, as `group_terms` returns
            them; gradient flows from the first to keys and members.
        keys: what the anchors of every group meet.
        members: [R, ...] each.
        count: [] long, the number of anchors of all groups; none gives 0.
        work: elements of the largest tensor that terms makes for one group. A group is never cut.
    """
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (keys, *members))
    # about eight tensors are held
    chunk = chunk_rows(members[0], 8 * work)
    total, hits = _GroupSums.apply(terms, chunk, wanted, keys, *members)
    count = count.clamp(min=1)
    return Term(total / count, hits.to(total.dtype) / count)


def contrast_groups(query: Members, keys: Members, temperature: float, rows: slice) -> Term:
    """Compute the mean over anchors of -log of the share that the own group's keys have among all groups' keys.

    An anchor a of group g adds -log(sum_j exp(<a, key_gj> / temperature) / sum_hj exp(<a, key_hj> / temperature)).
    The score of a group is the log of its sum, so that a group of more keys scores higher.

    Args:
        query: the anchors, of the same G groups as keys.
        keys: what they are scored against.
        temperature: in cosine, above 0.
        rows: the groups whose anchors are summed, over the number of anchors of all groups.
    """
    anchors, counted = query.embedding[rows], query.mask[rows]
    group, valid = torch.arange(len(keys.mask), device=anchors.device)[rows], keys.mask.any(1)
    out = absent(keys.mask, anchors.dtype)

    def terms(part: slice, to: Tensor, some: Tensor) -> tuple[Tensor, Tensor]:
        logits = torch.mm(some.flatten(0, 1) / temperature, to.flatten(0, 1).mT)
        scores = (logits.view(*some.shape[:2], *out.shape) + out).logsumexp(3)  # [r, A, G]
        return group_terms(scores.mT, group[part], valid, counted[part])

    work = anchors.shape[1] * out.numel()
    return mean_over_groups(terms, keys.embedding, anchors, count=query.mask.sum(), work=work)


def both(first: Term, second: Term) -> Term:
    """Return the mean of two terms of equally many anchors."""
    return Term((first.loss + second.loss) / 2, (first.accuracy + second.accuracy) / 2)


def weigh(outer: Term, inner: Term, alpha: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Return alpha * inner + (1 - alpha) * outer, and both terms unweighted as detached metrics."""
    metrics = {
        "loss_outer": outer.loss.detach(),
        "loss_inner": inner.loss.detach(),
        "accuracy_outer": outer.accuracy,
        "accuracy_inner": inner.accuracy,
    }
    return alpha * inner.loss + (1 - alpha) * outer.loss, metrics


class _GroupSums(torch.autograd.Function):
    """Its first output is a scalar, so the gradient is gathered in the same pass, nothing twice."""

    @staticmethod
    def forward(
        ctx: Any, terms: Terms, chunk: int, wanted: bool, keys: Tensor, *members: Tensor
    ) -> tuple[Tensor, ...]:
        gradients = [torch.zeros_like(x) if wanted else x.new_empty(0) for x in (keys, *members)]
        sums = []
        for part in list(parts(len(members[0]), chunk)) or [slice(0, 0)]:
            inputs = [x.detach().requires_grad_(wanted) for x in (keys, *(x[part] for x in members))]
            with torch.set_grad_enabled(wanted):
                sums.append(terms(part, *inputs))
            if wanted:
                of_keys, *of_members = torch.autograd.grad(sums[-1][0], inputs)
                gradients[0] += of_keys
                for gathered, found in zip(gradients[1:], of_members, strict=True):
                    gathered[part] = found
        ctx.save_for_backward(*gradients)
        total, hits = (torch.stack(values).sum(0).detach() for values in zip(*sums, strict=True))
        ctx.mark_non_differentiable(hits)
        return total, hits

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        check_first_derivative()
        return None, None, None, *(gradients[0] * gradient for gradient in ctx.saved_tensors)
