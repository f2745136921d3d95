"""C2LIP: images contrasted with the noun phrases of all captions, whole and as seen through each phrase."""

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
    """Compute C2LIP's concept loss: every image with every concept is one binary decision.

    With l_ij = logit_scale * <image_i, concept_j> + logit_bias and z_ij = 1 for concept_image_index[j] = i, else -1,
    the loss is -(1 / K) sum_ij log sigmoid(z_ij l_ij), K the number of concepts. An image without concepts is a
    negative of all. No concept at all gives 0 with a zero gradient.

    Args:
        image: [N, D], L2-normalized.
        concepts: [C, D], L2-normalized, in any order; also those of other processes.
        concept_image_index: [C] long, the row of image whose caption has the concept; -1 = padding, without any part.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        logit_bias: [] or [1], in logits.
        concept_id: [C] long, equal numbers for equal phrases; a phrase of another image that equals one of the image's
            own is then neither positive nor negative for it. None: it is a negative, as in the paper.
        image_id: [N] long, equal for rows of one image; None = no two rows are. A concept of another row of the same
            image is neither positive nor negative for it.
        text_id: [N] long, equal for rows of one caption; None = no two rows are. A concept of another row of the same
            caption is neither positive nor negative for it.
        rows: this process's slice of N; None is the whole loss. Given a slice, only the pairs of its images with all C
            concepts are summed, over the global count K, so that the slices of a partition add up to the whole in
            value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does: `loss_concept` and
        its parts `loss_concept_positive` (own pairs) and `loss_concept_negative` (all others), all in nats, and
        `concept_positive_accuracy` (0 to 1: share of concepts whose own image has a logit above 0); with ids also
        `same_image_concepts` (how many pairs image_id leaves out) and `same_text_concepts` (how many further ones
        text_id and concept_id do). NaN without a concept.

    Raises:
        ValueError: if a shape or a type does not fit.

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
        masks=lambda part: batch.of_images(images[part]),
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
    """Compute C2LIP's cross-attended concept loss: `concept_loss` of images as seen through each concept.

    In place of the image's embedding, l_ij has v_ij = sum_p softmax_p(<token_ip, concept_j> / attention_temperature)
    token_ip, L2-normalized. Time and memory: see `attended_cosines`.

    Args:
        tokens: [R, P, D], L2-normalized, the tokens of this process's images only: R is the length of rows, or N.
        concepts: [C, D], as in `concept_loss`.
        concept_image_index: [C] long, as in `concept_loss`: rows of the global batch of N images.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        logit_bias: [] or [1], in logits.
        attention_temperature: in cosine, above 0. At 1 the largest weight is at most e^2 times the smallest.
        concept_id: [C] long or None, as in `concept_loss`.
        image_id: [N] long or None, as in `concept_loss`: of all N rows, not of those of tokens alone.
        text_id: [N] long or None, likewise.
        rows: the slice of N that tokens are of; None is the whole loss. Slices of a partition add up to the whole in
            value and gradient.

    Returns:
        The loss ([], nats) and the metrics of `concept_loss`, named `loss_cross_attended`,
        `loss_cross_attended_positive`, `loss_cross_attended_negative` and `cross_attended_positive_accuracy`.

    Raises:
        ValueError: if a shape or a type does not fit, or the temperature is not above 0.

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
        masks=lambda part: batch.of_images(images[part]),
        terms=sigmoid_terms,
    )
    return _binary("cross_attended", sums, batch, images)


def _binary(name: str, sums: tuple[Tensor, ...], batch: Concepts, images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the mean over concepts, and its metrics, from the sums of `sigmoid_terms`."""
    (total, positive, hits), count = sums, batch.valid_count
    loss = total / count
    metrics = {
        f"loss_{name}": loss.detach(),
        f"loss_{name}_positive": positive / count,
        # A difference of two sums: rounding may leave it just below 0.
        f"loss_{name}_negative": ((total.detach() - positive) / count).clamp(min=0),
        f"{name}_positive_accuracy": hits.to(loss.dtype) / count,
    }
    return loss, {**batch.counted(metrics), **batch.count_left_out(images)}
