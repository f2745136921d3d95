"""CLEAR GLASS with centroids: contrasts a group's mean image with its mean text, and members with their means."""

from __future__ import annotations

from torch import Tensor

from hfcomp.losses._ops.group_contrast import contrast_both, contrast_groups, mean_term, weigh
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
    """Computes alpha * inner + (1 - alpha) * outer over the centroids of groups of pairs that share a concept.

    A group has two centroids, the mean of its images and the mean of its texts, and all similarities are cosines.
    Outer: InfoNCE with `temperature` between the image centroids and the text centroids, averaged over groups and both
    directions. Inner: each image is classified by its cosines with the image centroids of all groups, and each text by
    its cosines with the text centroids; the cross-entropy with `inner_temperature` is averaged over all valid images
    and texts. A group without a valid pair does not count. Without any group the loss is 0 with a zero gradient.

    Args:
        image: [G, N, D], L2-normalized.
        text: [G, N, D], L2-normalized; text [g, i] describes image [g, i].
        temperature: Temperature of the outer loss, in cosine, finite and above 0.
        inner_temperature: Temperature of the inner loss, in cosine, finite and above 0.
        alpha: Weight of the inner loss, 0 to 1.
        mask: [G, N] bool, True = a pair of the group; None means all are pairs.
        image_id: [G, N] long, equal for members with the same image; None = all members differ. In the inner loss, a
            member is not compared with the centroid of another group that contains its image. In the outer loss, two
            groups that share an image are not compared; with only two groups, the outer loss is then 0.
        text_id: [G, N] long, equal for members with the same caption; None = all members differ. Members with the same
            caption are treated like members with the same image.
        rows: See `pairwise_group_loss`.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does: `loss_outer`,
        `loss_inner` (nats, unweighted); `accuracy_outer` (0 to 1: a group's image centroid is strictly nearest to
        its own text centroid, and vice versa), `accuracy_inner` (0 to 1: an image is strictly nearest to its own
        group's image centroid, a text to its text centroid). With ids also `same_image_pairs` and `same_text_pairs`,
        as in `pairwise_group_loss`. All are NaN without a group; accuracies also if there is no other group to compare
        with.

    Raises:
        ValueError: If a shape or the mask's type does not match, or a setting is out of its range.

    Source:
        CLEAR GLASS (Suissa et al.), Eqs. 5 to 8, with temperature 0.1 and alpha 0.7; the paper gives no
        inner_temperature. In the released code, alpha weights the outer loss instead (pass 1 - alpha here), and
        inner_temperature is 0.07.
    """
    check_settings(temperature, inner_temperature, alpha)
    images, texts = check_groups(image, text, mask)
    image_centroid, text_centroid = _centroids(images), _centroids(texts)
    groups, shared = slice(None) if rows is None else rows, check_shared(image_id, text_id, images.mask)
    between, within = (None, None) if shared is None else (shared.between_centroids, shared.centroid_overlap)
    outer = contrast_both(image_centroid, text_centroid, temperature, groups, between)
    image_term = contrast_groups(images, image_centroid, inner_temperature, groups, within)
    text_term = contrast_groups(texts, text_centroid, inner_temperature, groups, within)
    return weigh(outer, mean_term(image_term, text_term), alpha, shared, groups)


def _centroids(members: Members) -> Members:
    """Returns the L2-normalized centroids of all groups, as groups with one member."""
    return Members(unit(members.centroid()).unsqueeze(1), members.mask.any(1, keepdim=True))
