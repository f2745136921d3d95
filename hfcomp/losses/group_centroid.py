"""CLEAR GLASS, centroid: the mean image of a group with its mean text, and every member with its own side's mean."""

from __future__ import annotations

from torch import Tensor

from hfcomp.losses._ops.group_contrast import both, contrast_both, contrast_groups, weigh
from hfcomp.losses._ops.group_members import Members, check_groups, check_settings, check_shared, unit
from hfcomp.losses._ops.precision import full_precision


@full_precision
def centroid_group_loss(
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
    """Compute alpha * inner + (1 - alpha) * outer over the centroids of groups of pairs that share a concept.

    A group has two centroids, the mean of its images and the mean of its texts, and all similarities are cosines.
    Outer: InfoNCE at temperature between the image centroids and the text centroids, the mean over groups and over the
    two directions. Inner: each image is classified by its cosine with the image centroids of all groups, each text by
    that with the text centroids: cross-entropy at inner_temperature, the mean over all valid images and texts. A group
    without a valid pair does not count; without any the loss is 0 with a zero gradient.

    Args:
        image: [G, N, D], L2-normalized.
        text: [G, N, D], L2-normalized; text [g, i] describes image [g, i].
        temperature: of the outer loss, in cosine, finite and above 0.
        inner_temperature: of the inner loss, in cosine, finite and above 0.
        alpha: weight of the inner loss, 0 to 1.
        mask: [G, N] bool, True = a pair of the group; None means all are.
        image_id: [G, N] long, equal for members of one image; None = no two members are. In the inner loss a member
            does not meet the centroid of another group that has its image, in the outer loss two groups that share an
            image do not meet: of two groups in all, one common image leaves nothing of the outer loss.
        text_id: [G, N] long, equal for members of one caption; None = no two members are. They are treated as members
            of one image are.
        rows: as in `pairwise_group_loss`.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does: `loss_outer`,
        `loss_inner` (nats, not weighted); `accuracy_outer` (0 to 1: a group's image centroid is strictly nearest to
        its own text centroid, and the mirror), `accuracy_inner` (0 to 1: an image is strictly nearest to its own
        group's image centroid, a text to its text centroid); with ids also `same_image_pairs` and `same_text_pairs`,
        as in `pairwise_group_loss`. NaN without a group, accuracies also without another group to meet.

    Raises:
        ValueError: if a shape or the mask's type does not fit, or a setting is out of its range.

    Source:
        CLEAR GLASS (Suissa et al.), Eqs. 5 to 8, whose temperature is 0.1 and alpha 0.7; it gives no
        inner_temperature. In its released code alpha weighs the outer loss, which is this at 1 - alpha, and
        inner_temperature is 0.07.
    """
    check_settings(temperature, inner_temperature, alpha)
    images, texts = check_groups(image, text, mask)
    image_centroid, text_centroid = _centroids(images), _centroids(texts)
    groups, shared = slice(None) if rows is None else rows, check_shared(image_id, text_id, images.mask)
    between, within = (None, None) if shared is None else (shared.between_centroids, shared.of_centroids)
    outer = contrast_both(image_centroid, text_centroid, temperature, groups, between)
    of_images = contrast_groups(images, image_centroid, inner_temperature, groups, within)
    of_texts = contrast_groups(texts, text_centroid, inner_temperature, groups, within)
    return weigh(outer, both(of_images, of_texts), alpha, shared, groups)


def _centroids(members: Members) -> Members:
    """Return the centroids of all groups, each of length 1, as groups of one."""
    return Members(unit(members.centroid()).unsqueeze(1), members.mask.any(1, keepdim=True))
