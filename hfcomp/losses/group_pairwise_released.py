"""CLEAR GLASS's pairwise loss as its authors' code computes it; `hfcomp.losses.group_pairwise` is the paper's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hfcomp.losses._ops.chunks import check_first_derivative
from hfcomp.losses._ops.group_contrast import contrast_members, weigh
from hfcomp.losses._ops.group_joint import contrast_joint, joint_lengths
from hfcomp.losses._ops.group_members import check_groups, check_settings, check_shared
from hfcomp.losses._ops.precision import full_precision


@full_precision
def released_pairwise_group_loss(
    image: Tensor,
    text: Tensor,
    *,
    temperature: float,
    inner_temperature: float,
    alpha: float,
    mask: Tensor | None = None,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute alpha * outer + (1 - alpha) * inner, the centroid being the mean of joint vectors of length 1.

    Arguments, metrics and errors are those of `pairwise_group_loss`, and so are both terms but for two points: alpha
    weighs the other one, and a joint vector counts in its group's centroid by its direction alone, where in the paper
    a long one, of an image and a text that share dimensions, counts for more. In that code inner_temperature is 0.07,
    and so is the temperature where its command line gives none; the paper's is 0.1.

    Returns:
        The loss ([], nats) and the metrics of `pairwise_group_loss`.

    Raises:
        ValueError: if a shape or the mask's type does not fit, or a setting is out of its range.

    Source:
        ai-lab-conf/CLEAR_GLASS at 6a6fdf1, in place of Eqs. 1 and 4 of CLEAR GLASS. Its outer loss takes exponentials
        that may overflow and adds 1e-8 to a share before the logarithm, so an anchor whose own group has a smaller
        share gets almost no gradient; here both are exact. Masks and several processes are ours.
    """
    check_settings(temperature, inner_temperature, alpha)
    images, texts = check_groups(image, text, mask)
    shared = check_shared(image_id, text_id, images.mask)
    groups = slice(None) if rows is None else rows
    centroid = _Centroid.apply(images.embedding, texts.embedding)
    inner = contrast_joint(images, texts, centroid, inner_temperature, groups, shared)
    return weigh(contrast_members(images, texts, temperature, groups, shared), inner, 1 - alpha, shared, groups)


class _Centroid(torch.autograd.Function):
    """A Function, because the backward of plain matrix products would run in half precision if called in autocast."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, text: Tensor) -> Tensor:
        ctx.save_for_backward(image, text)
        return _centroid(image, text)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        check_first_derivative()
        members = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad(), torch.autocast(members[0].device.type, enabled=False):
            return torch.autograd.grad(_centroid(*members), members, gradients[0])


def _centroid(image: Tensor, text: Tensor) -> Tensor:
    """Return the sum of the joint vectors of each group, each of length 1: [G, N, D] twice to [G, D]."""
    return (text * ((1 / joint_lengths(image, text)) @ image)).sum(1)
