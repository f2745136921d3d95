"""The pairwise sigmoid loss of SigLIP, computed in chunks that never hold all N x N logits."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hfcomp.losses._ops.chunks import check_first_derivative, chunk_rows, parts
from hfcomp.losses._ops.precision import full_precision
from hfcomp.losses._ops.shapes import check_pairs, check_scalar
from hfcomp.losses._ops.shared_rows import count_anchors, shared_rows


@full_precision
def sigmoid_loss(
    image: Tensor,
    text: Tensor,
    *,
    logit_scale: Tensor,
    logit_bias: Tensor,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the sigmoid loss: every image-text pair is one binary decision.

    With l_ij = logit_scale * <image_i, text_j> + logit_bias and z_ij = 1 if i = j, else -1, the loss is
    -(1 / N) sum_ij log sigmoid(z_ij l_ij): the sum over all N * N pairs, divided by N.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        logit_bias: [] or [1], in logits.
        image_id: [N] long, equal for rows with the same image; None = all rows differ. If two rows have the same
            image, the pairs of one row's image with the other row's text are excluded from the sum; the divisor stays
            N.
        text_id: [N] long, equal for equal texts; None = all rows differ. Such pairs are excluded in the same way.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only the pairs of its images with
            all N texts are summed, over the global count N, so the slices of a partition add up to the whole in value
            and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does: `loss_positive` and
        `loss_negative` (nats, the parts of the loss from the N own pairs and from all others),
        `accuracy_image_to_text` (0 to 1: the own pair scores strictly above every other text, NaN if no image has
        one) and `positive_accuracy` (0 to 1: the own pair's logit is above 0). With image_id also `same_image_pairs`
        (number of excluded pairs), with text_id `same_text_pairs` (number of further ones).

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        Zhai et al. 2023 (SigLIP), Eq. 1 and Algorithm 1, which divides by N too.
    """
    size, _ = check_pairs(image, text)
    scale, bias = check_scalar("logit_scale", logit_scale), check_scalar("logit_bias", logit_bias)
    anchors = torch.arange(size, device=image.device)
    query = image
    if rows is not None:
        anchors, query = anchors[rows], image[anchors[rows]]
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (image, text, scale, bias))
    chunk = chunk_rows(query, len(text))
    shared, ones = shared_rows(image_id, text_id, size), torch.ones(size, dtype=torch.long, device=image.device)
    numbers = anchors.unsqueeze(1), shared.groups(anchors), shared.groups()
    total, own, top = _AllPairs.apply(query, text, scale, bias, *numbers, chunk, wanted)
    loss = total / size
    positive = F.softplus(-own, threshold=40).sum() / size
    hits = (own > top) & (top > -torch.inf)
    return loss, {
        "loss_positive": positive,
        "loss_negative": (loss.detach() - positive).clamp(min=0),
        "accuracy_image_to_text": hits.sum().to(image.dtype) / count_anchors(shared, image),
        "positive_accuracy": (own > 0).sum().to(image.dtype) / size,
        **shared.count_pairs(ones, rows, "pairs"),
    }


class _AllPairs(torch.autograd.Function):
    """Sum over all pairs. The output is a scalar, so the gradient is accumulated in the same pass."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor,
        scale: Tensor,
        bias: Tensor,
        own: Tensor,
        query_groups: Tensor | None,
        key_groups: Tensor | None,
        chunk: int,
        wanted: bool,
    ) -> tuple[Tensor, ...]:
        # One buffer for all chunks, which holds first the logits, then their gradient
        logits = query.new_empty((min(chunk, len(query)), len(keys)))
        total, grad_scale, grad_bias = (query.new_zeros(()) for _ in range(3))
        grad_query, grad_keys = (torch.zeros_like(x) if wanted else x.new_empty(0) for x in (query, keys))
        own_logit, top = query.new_empty(len(query)), query.new_empty(len(query))
        for part in parts(len(query), chunk):
            s, at = logits[: part.stop - part.start], own[part]
            torch.mm(query[part] * scale, keys.T, out=s).add_(bias)
            positive = s.gather(1, at)
            if query_groups is not None and key_groups is not None:
                for query_group, key_group in zip(query_groups, key_groups, strict=True):
                    s.masked_fill_(query_group[part, None] == key_group, -torch.inf)
            # Remove the own pair for now: `top` is the highest other logit, and the own term has a different sign.
            s.scatter_(1, at, -torch.inf)
            own_logit[part], top[part] = positive.squeeze(1), s.amax(1)
            total += F.softplus(s, threshold=40).sum() + F.softplus(-positive, threshold=40).sum()
            if wanted:
                # Subnormal numbers become 0, because the products would take many times as long with them.
                F.threshold(s.sigmoid_(), torch.finfo(s.dtype).tiny * 2**26, 0.0, inplace=True)
                # The gradient of softplus(l) is sigmoid(l), and that of softplus(-l), the own pairs' term, is
                # -sigmoid(-l).
                s.scatter_(1, at, -torch.sigmoid(-positive))
                weighted = s @ keys
                grad_bias += s.sum()
                grad_scale += (weighted * query[part]).sum()
                grad_query[part] = weighted.mul_(scale)
                grad_keys.addmm_(s.T, query[part] * scale)
        ctx.save_for_backward(grad_query, grad_keys, grad_scale, grad_bias)
        ctx.mark_non_differentiable(own_logit, top)
        return total, own_logit, top

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        check_first_derivative()
        return *(gradients[0] * gradient for gradient in ctx.saved_tensors), *(None,) * 5
