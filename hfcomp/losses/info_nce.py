"""InfoNCE over image-text pairs, with any number of hard negative texts per image (CLIP and NegCLIP style)."""

from __future__ import annotations

from torch import Tensor

from hfcomp.losses._ops.pairs import contrast_pairs, cross_entropy, direction_metrics
from hfcomp.losses._ops.precision import full_precision


@full_precision
def info_nce_loss(
    image: Tensor,
    text: Tensor,
    *,
    logit_scale: Tensor,
    negative_text: Tensor | None = None,
    negative_mask: Tensor | None = None,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    negative_text_id: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the symmetric InfoNCE loss, with the negative texts of all rows as further keys of every image.

    With s_ij = logit_scale * <image_i, text_j>, image to text is the mean over i of
    -s_ii + log(sum_j exp(s_ij) + sum over all unmasked negatives of exp(s_i,negative)). Text to image contrasts only
    the N texts with the N images. The loss is the mean of the two directions.

    Args:
        image: [N, D], L2-normalized.
        text: [N, D], L2-normalized; row i describes image i.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        negative_text: [N, K, D], L2-normalized, K at least 1.
        negative_mask: [N, K] bool, True = valid; None means all are valid.
        image_id: [N] long, equal for rows with the same image; None = all rows differ. Rows with the same image are
            neither positives nor negatives of each other: text j is not a key of image i, nor image j of text i.
            Negative texts stay keys of every image, because they are false of their row's image in all of its rows.
        text_id: [N] long, equal for equal texts; None = all rows differ. Rows with the same text are excluded from
            each other's keys too, because the text is true of both images.
        negative_text_id: [N, K] long, comparable with text_id, which it requires. A negative text that equals text i
            is not a key of image i.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only its anchors are summed, over
            the global count N, so the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does:
        `loss_image_to_text`, `loss_text_to_image` (nats); `accuracy_image_to_text`, `accuracy_text_to_image` (0 to 1:
        the own pair scores strictly above every other key, NaN if no anchor has one). With negative_text also
        `hard_negative_accuracy` (0 to 1: the own text scores strictly above the image's own negatives, among images
        that have one). With image_id also `same_image_pairs` (number of texts of other rows excluded as keys of an
        image), with text_id `same_text_pairs` (further ones, of other images), with negative_text_id
        `same_text_negatives` (negatives excluded as keys of an image).

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        Radford et al. 2021 (CLIP), Fig. 3. Negative texts are keys of every image and never anchors, as in Yuksekgonul
        et al. 2022 (NegCLIP), whose hard images are ordinary rows here.
    """
    batch = image, text, logit_scale, negative_text, negative_mask, rows, (image_id, text_id, negative_text_id)
    to_text, to_image, counts, metrics = contrast_pairs(*batch)
    loss_to_text = cross_entropy(to_text) / len(image)
    loss_to_image = cross_entropy(to_image) / len(image)
    metrics |= direction_metrics("image_to_text", loss_to_text, to_text, to_text.top, True, counts[0])
    metrics |= direction_metrics("text_to_image", loss_to_image, to_image, to_image.top, True, counts[1])
    return (loss_to_text + loss_to_image) / 2, metrics
