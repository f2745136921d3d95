"""CLEAR GLASS, pairwise: contrasts images with the texts of their group, and joint vectors with its centroid."""

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
def pairwise_group_loss(
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
    """Computes alpha * inner + (1 - alpha) * outer over groups of pairs that share a concept.

    Outer: an image's positives are all texts of its group, its negatives those of all other groups, and vice versa:
    -log(sum_own exp(cosine / temperature) / sum_all exp(cosine / temperature)), the mean over all valid images and
    texts. Inner: the joint vectors of a group are the elementwise products of each of its n_g images with each of its
    texts, and its centroid is their mean. Each joint vector is classified by its cosine with the G centroids:
    cross-entropy at inner_temperature, the mean over all joint vectors, sum_g n_g^2. So a large group weighs more than
    a small one in both. A group without a valid pair does not count; without any the loss is 0 with a zero gradient.

    Args:
        image: [G, N, D], L2-normalized.
        text: [G, N, D], L2-normalized; text [g, i] describes image [g, i].
        temperature: Temperature of the outer loss, in cosine, finite and above 0.
        inner_temperature: Temperature of the inner loss, in cosine, finite and above 0.
        alpha: Weight of the inner loss, 0 to 1.
        mask: [G, N] bool, True = a pair of the group; None means all are pairs.
        image_id: [G, N] long, equal for members with the same image; None = all members differ. Members of two groups
            with the same image are not contrasted: in the outer loss they are not keys of each other; in the inner
            loss, a joint vector is not compared with the centroid of another group that has its image or its text's
            image. Within a group, all texts stay positives of all images.
        text_id: [G, N] long, equal for members with the same caption; None = all members differ. Members with the same
            caption are treated like members with the same image.
        rows: This process's slice of G; None computes the whole loss. Given a slice, only the anchors of its groups
            are summed, over the global counts, so the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does: `loss_outer`,
        `loss_inner` (nats, unweighted); `accuracy_outer` (0 to 1: the texts of an image's own group together have
        strictly more of the probability than those of any other group, and vice versa), `accuracy_inner` (0 to 1: a
        joint vector is strictly nearest to its own group's centroid). With image_id also `same_image_pairs` (ordered
        pairs of members of two groups with the same image), with text_id `same_text_pairs` (further ones with the same
        caption). All are NaN without a group; accuracies also if there is no other group to compare with.

    Raises:
        ValueError: If a shape or the mask's type does not match, or a setting is out of its range.

    Source:
        CLEAR GLASS (Suissa et al.), Eqs. 1 to 4, with temperature 0.1 and alpha 0.7; the paper gives no
        inner_temperature. The released code differs; see `released_pairwise_group_loss`.
    """
    check_settings(temperature, inner_temperature, alpha)
    images, texts = check_groups(image, text, mask)
    shared = check_shared(image_id, text_id, images.mask)
    # The mean of all products is the product of the means.
    centroid, groups = images.centroid() * texts.centroid(), slice(None) if rows is None else rows
    inner = contrast_joint(images, texts, centroid, inner_temperature, groups, shared)
    return weigh(contrast_members(images, texts, temperature, groups, shared), inner, alpha, shared, groups)


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
    """Computes alpha * outer + (1 - alpha) * inner, with the mean of joint vectors of length 1 as the centroid.

    Arguments, metrics and errors are those of `pairwise_group_loss`, and so are both terms, with two exceptions: alpha
    weights the outer loss, and only the direction of a joint vector counts in its group's centroid. In the paper, a
    long one (of an image and a text that share dimensions) counts for more. In that code, inner_temperature is 0.07,
    and so is the temperature if its command line gives none; the paper's is 0.1.

    Source:
        ai-lab-conf/CLEAR_GLASS at 6a6fdf1, instead of Eqs. 1 and 4 of CLEAR GLASS. Its outer loss takes exponentials
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
    """A Function, because the backward of plain matrix products would run in half precision inside autocast."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, text: Tensor) -> Tensor:
        ctx.save_for_backward(image, text)
        return _centroid(image, text)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        check_first_derivative()
        # Recomputed with gradients instead of keeping the forward's graph, so only the embeddings are held until
        # then.
        members = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad(), torch.autocast(members[0].device.type, enabled=False):
            return torch.autograd.grad(_centroid(*members), members, gradients[0])


def _centroid(image: Tensor, text: Tensor) -> Tensor:
    """Returns the sum of the L2-normalized joint vectors of each group: [G, N, D] twice to [G, D]."""
    return (text * ((1 / joint_lengths(image, text)) @ image)).sum(1)
