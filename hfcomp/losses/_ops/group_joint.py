"""Contrasts the joint vectors of a group, all products of its images with its texts, with one centroid per group.

No joint vector is formed. With I_i * T_j their elementwise product and mu a centroid, <I_i * T_j, mu> =
<T_j * mu, I_i> and |I_i * T_j|^2 = <T_j * T_j, I_i * I_i>. Both are matrix products of a group's texts, weighted by
each centroid, with its images.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hfcomp.losses._ops.chunks import chunk_rows, parts
from hfcomp.losses._ops.group_contrast import Term, group_terms, mean_over_groups
from hfcomp.losses._ops.group_members import Members, SharedMembers, length, unit


def joint_lengths(image: Tensor, text: Tensor) -> Tensor:
    """Returns |I_i * T_j| as [..., N texts, N images], from [..., N, D] each. Infinite if there is no direction."""
    return length(text.square() @ image.square().mT)


def contrast_joint(
    image: Members,
    text: Members,
    centroid: Tensor,
    temperature: float,
    rows: slice,
    shared: SharedMembers | None = None,
) -> Term:
    """Computes the mean over joint vectors of -log p(own group). The logits are the cosines with all centroids.

    A joint vector without a direction, such as that of an image and a text that share no dimension, has cosine 0 with
    every centroid, and a zero gradient.

    Args:
        image: Images of G groups.
        text: Texts of these groups, with the same mask.
        centroid: [G, D], of any length.
        temperature: In cosine, above 0.
        rows: Groups to sum over, divided by the number of joint vectors of all groups.
        shared: Members that share something with other groups, whose centroids are excluded for their joint vectors.
    """
    groups, size, width = image.embedding.shape
    group, valid = torch.arange(groups, device=centroid.device)[rows], image.mask.any(1)
    counted = image.mask[rows].unsqueeze(2) & image.mask[rows].unsqueeze(1)

    def terms(part: slice, keys: Tensor, some: Tensor, texts: Tensor) -> tuple[Tensor, ...]:
        by_centroid = texts.unsqueeze(1) * keys.unsqueeze(1)  # [r, G, N, D]
        weighted = by_centroid.flatten(1, 2)
        inverse = 1 / joint_lengths(some, texts)
        scores = torch.bmm(weighted, some.mT).unflatten(1, (groups, size)) * inverse.unsqueeze(1)
        if shared is not None:
            out = shared.group_overlap(group[part]).mT  # [r, G, N]
            scores.masked_fill_(out.unsqueeze(3) | out.unsqueeze(2), torch.finfo(scores.dtype).min)
        loss, hits, gradient = group_terms(scores, group[part], valid, counted[part])
        # A cosine is product / length. Its derivative by the squared length is -cosine / (2 length^2), and that of the
        # squared length by an image is 2 * image * text^2, so the two factors of 2 cancel below.
        of_squares = scores.mul_(gradient).sum(1) * inverse.square()  # -2 times
        of_products = gradient.mul_(inverse.unsqueeze(1)).flatten(1, 2)
        of_images = torch.bmm(of_products.mT, weighted)
        of_images -= some * torch.bmm(of_squares.mT, texts.square())
        of_weighted = torch.bmm(of_products, some).unflatten(1, (groups, size))
        # Reuse the memory of `by_centroid`, because a new tensor of this size costs as much as the product.
        of_keys = torch.mul(of_weighted, texts.unsqueeze(1), out=by_centroid).sum((0, 2))
        of_texts = of_weighted.mul_(keys.unsqueeze(1)).sum(1)
        of_texts -= texts * torch.bmm(of_squares, some.square())
        return loss, hits, of_keys, of_images, of_texts

    return mean_over_groups(
        terms,
        unit(centroid) / temperature,
        image.embedding[rows],
        text.embedding[rows],
        count=image.mask.sum(1).square().sum(),
        compared=_count_compared(image.mask, shared),
        work=groups * size * max(size, width),
    )


def _count_compared(mask: Tensor, shared: SharedMembers | None) -> Tensor:
    """Returns the number of joint vectors of all groups [G, N] compared with another centroid, [] long."""
    groups, exists = torch.arange(len(mask), device=mask.device), mask.any(1)
    size, count = mask.shape[1], groups.new_zeros(())
    for part in parts(len(mask), chunk_rows(mask, 8 * size * max(len(mask), size))):
        compared = (exists & (groups[part, None] != groups)).unsqueeze(1).expand(-1, size, -1)
        if shared is not None:
            compared = compared & ~shared.group_overlap(groups[part])
        # A joint vector has the centroids that its image and its text have in common. Their number is a product of the
        # two masks, which avoids a tensor of images by texts by groups.
        members = (compared & mask[part].unsqueeze(2)).float()
        count += (members @ members.mT > 0).sum()
    return count
