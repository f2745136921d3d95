"""C2LIP: images contrasted with the noun phrases of all captions, whole and as attended to by each phrase."""

from __future__ import annotations

from torch import Tensor

from hfcomp.losses._ops.concept_pairs import Concepts, check_concepts, image_rows, token_rows
from hfcomp.losses._ops.precision import full_precision
from hfcomp.losses._ops.row_sums import sigmoid_terms, sum_attended, sum_rows
from hfcomp.losses._ops.shapes import check_scalar


@full_precision
def concept_loss(
    image: Tensor,
    concepts: Tensor,
    concept_image_index: Tensor,
    *,
    logit_scale: Tensor,
    logit_bias: Tensor,
    concept_id: Tensor | None = None,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes C2LIP's concept loss: every image and every concept form one binary decision.

    With l_ij = logit_scale * <image_i, concept_j> + logit_bias and z_ij = 1 if concept_image_index[j] = i, else -1,
    the loss is -(1 / K) sum_ij log sigmoid(z_ij l_ij), where K is the number of concepts. An image without concepts is
    a negative of all of them. Without any concept the loss is 0 with a zero gradient.

    Args:
        image: [N, D], L2-normalized.
        concepts: [C, D], L2-normalized, in any order; including those of other processes.
        concept_image_index: [C] long, the image row whose caption has the concept; -1 = padding, which takes no part.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        logit_bias: [] or [1], in logits.
        concept_id: [C] long, equal for equal phrases. A phrase of another image that equals one of the image's own is
            then neither positive nor negative for it. None: it is a negative, as in the paper.
        image_id: [N] long, equal for rows with the same image; None = all rows differ. A concept of another row with
            the same image is neither positive nor negative for it.
        text_id: [N] long, equal for rows with the same caption; None = all rows differ. A concept of another row with
            the same caption is neither positive nor negative for it.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only the pairs of its images with
            all C concepts are summed, over the global count K, so the slices of a partition add up to the whole in
            value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does: `loss_concept` and
        its parts `loss_concept_positive` (own pairs) and `loss_concept_negative` (all others), all in nats, and
        `concept_positive_accuracy` (0 to 1: share of concepts whose own image has a logit above 0). With ids also
        `same_image_concepts` (number of pairs excluded by image_id) and `same_text_concepts` (number of further ones
        excluded by text_id and concept_id). NaN without a concept.

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        C2LIP (arXiv 2603.25722), Eq. 5; equal phrases of different images are negatives there.
    """
    images = image_rows(image, rows)
    ids = image_id, text_id
    batch = check_concepts(concepts, concept_image_index, concept_id, image.shape[1], ids=ids, images=len(image))
    sums = sum_rows(
        image[images],
        batch.embedding,
        check_scalar("logit_scale", logit_scale),
        check_scalar("logit_bias", logit_bias),
        masks=lambda part: batch.image_masks(images[part]),
        terms=sigmoid_terms,
    )
    return _binary("concept", sums, batch, images)


@full_precision
def cross_attended_concept_loss(
    tokens: Tensor,
    concepts: Tensor,
    concept_image_index: Tensor,
    *,
    logit_scale: Tensor,
    logit_bias: Tensor,
    attention_temperature: float = 1.0,
    concept_id: Tensor | None = None,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes C2LIP's cross-attended concept loss: `concept_loss` with each image as seen through each concept.

    Instead of the image's embedding, l_ij uses v_ij = sum_p softmax_p(<token_ip, concept_j> / attention_temperature)
    token_ip, L2-normalized. For time and memory see `attended_cosines`.

    Args:
        tokens: [R, P, D], L2-normalized, tokens of this process's images only. R is the length of rows, or N.
        concepts: [C, D], as in `concept_loss`.
        concept_image_index: [C] long, as in `concept_loss`: rows of the global batch of N images.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        logit_bias: [] or [1], in logits.
        attention_temperature: In cosine, above 0. At 1 the largest weight is at most e^2 times the smallest.
        concept_id: [C] long or None, as in `concept_loss`.
        image_id: [N] long or None, as in `concept_loss`, for all N rows and not only those of tokens.
        text_id: [N] long or None, as in `concept_loss`, for all N rows.
        rows: Slice of N that the tokens belong to; None computes the whole loss. The slices of a partition add up to
            the whole in value and gradient.

    Returns:
        The loss ([], nats) and the metrics of `concept_loss`, named `loss_cross_attended`,
        `loss_cross_attended_positive`, `loss_cross_attended_negative` and `cross_attended_positive_accuracy`.

    Raises:
        ValueError: If a shape or type does not match, or the temperature is not above 0.

    Source:
        C2LIP (arXiv 2603.25722), Eqs. 6 and 7, with the L2 norms and the temperature of 1 of its released code.
    """
    scale, bias = check_scalar("logit_scale", logit_scale), check_scalar("logit_bias", logit_bias)
    images = token_rows(tokens, rows)
    ids = image_id, text_id
    batch = check_concepts(concepts, concept_image_index, concept_id, tokens.shape[2], ids=ids)
    sums = sum_attended(
        tokens,
        batch.embedding,
        scale,
        bias,
        attention_temperature,
        masks=lambda part: batch.image_masks(images[part]),
        terms=sigmoid_terms,
    )
    return _binary("cross_attended", sums, batch, images)


def _binary(name: str, sums: tuple[Tensor, ...], batch: Concepts, images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns the mean over concepts and its metrics, from the sums of `sigmoid_terms`."""
    (total, positive, hits), count = sums, batch.valid_count
    loss = total / count
    metrics = {
        f"loss_{name}": loss.detach(),
        f"loss_{name}_positive": positive / count,
        # Rounding may leave this difference of two sums just below 0.
        f"loss_{name}_negative": ((total.detach() - positive) / count).clamp(min=0),
        f"{name}_positive_accuracy": hits.to(loss.dtype) / count,
    }
    return loss, {**batch.nan_without_concepts(metrics), **batch.count_left_out(images)}
