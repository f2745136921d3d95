"""The C2LIP losses with InfoNCE instead of the sigmoid, for models without a bias (CLIP)."""

from __future__ import annotations

import torch
from torch import Tensor

from hfcomp.losses._ops.concept_pairs import check_concepts, image_rows, token_rows
from hfcomp.losses._ops.precision import full_precision
from hfcomp.losses._ops.row_sums import softmax_terms, sum_attended, sum_rows
from hfcomp.losses._ops.shapes import check_scalar


@full_precision
def concept_info_nce_loss(
    image: Tensor,
    concepts: Tensor,
    concept_image_index: Tensor,
    *,
    logit_scale: Tensor,
    concept_id: Tensor | None = None,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the concept loss with InfoNCE instead of the sigmoid, for models without a bias (CLIP).

    With s_ij = logit_scale * <image_i, concept_j>, image to concept is the mean over concepts j, with i their own
    image, of -log(exp(s_ij) / (exp(s_ij) + sum_k exp(s_ik))) over the concepts k of other images. So the concepts of
    an image do not compete, and the loss can reach 0. Concept to image is the mean over concepts of
    -log(exp(s_ij) / sum_n exp(s_nj)) over all images n. The loss is the mean of the two directions. A pair that
    concept_id, image_id or text_id makes neither positive nor negative is in no denominator.

    Args:
        image: [N, D], L2-normalized.
        concepts: [C, D], as in `concept_loss`.
        concept_image_index: [C] long, as in `concept_loss`.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        concept_id: [C] long or None, as in `concept_loss`.
        image_id: [N] long or None, as in `concept_loss`.
        text_id: [N] long or None, as in `concept_loss`.
        rows: This process's slice of N; None computes the whole loss. Given a slice, only the concepts of its images
            are summed, over the global count, so the slices of a partition add up to the whole in value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does: `loss_concept`,
        `loss_image_to_concept`, `loss_concept_to_image` (nats) and, among concepts, 0 to 1,
        `accuracy_image_to_concept` (the own image scores it strictly above every negative concept) and
        `accuracy_concept_to_image` (it scores its own image strictly above every negative image). With ids also
        `same_image_concepts` (number of pairs excluded by image_id) and `same_text_concepts` (number of further ones
        excluded by text_id and concept_id). NaN without a concept.

    Raises:
        ValueError: If a shape or type does not match.

    Source:
        Our choice, with the pairs of C2LIP (arXiv 2603.25722), Eq. 5: the paper has only the sigmoid.
    """
    images, size = image_rows(image, rows), len(image)
    ids = image_id, text_id
    batch = check_concepts(concepts, concept_image_index, concept_id, image.shape[1], ids=ids, images=size)
    scale = check_scalar("logit_scale", logit_scale)
    chosen = torch.zeros_like(image[:, 0], dtype=torch.bool).index_fill_(0, images, True)

    # Every process scores all concepts here, because it would wait for the number of those in its slice.
    def concept_masks(part: slice) -> tuple[Tensor, Tensor]:
        own, negative = batch.concept_masks(part, size)
        return own & chosen, negative

    to_concept, concept_hits = sum_rows(
        image[images],
        batch.embedding,
        scale,
        None,
        masks=lambda part: batch.image_masks(images[part]),
        terms=softmax_terms,
    )
    to_image, image_hits = sum_rows(batch.embedding, image, scale, None, masks=concept_masks, terms=softmax_terms)
    loss = (to_concept + to_image) / 2 / batch.valid_count
    metrics = {
        "loss_concept": loss.detach(),
        "loss_image_to_concept": to_concept.detach() / batch.valid_count,
        "loss_concept_to_image": to_image.detach() / batch.valid_count,
        "accuracy_image_to_concept": concept_hits.to(loss.dtype) / batch.valid_count,
        "accuracy_concept_to_image": image_hits.to(loss.dtype) / batch.valid_count,
    }
    return loss, {**batch.nan_without_concepts(metrics), **batch.count_left_out(images)}


@full_precision
def cross_attended_info_nce_loss(
    tokens: Tensor,
    concepts: Tensor,
    concept_image_index: Tensor,
    *,
    logit_scale: Tensor,
    attention_temperature: float = 1.0,
    concept_id: Tensor | None = None,
    image_id: Tensor | None = None,
    text_id: Tensor | None = None,
    rows: slice | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the cross-attended concept loss with InfoNCE instead of the sigmoid, for models without a bias (CLIP).

    It is the image to concept direction of `concept_info_nce_loss` with the attended vectors of
    `cross_attended_concept_loss`, not halved. Concept to image is omitted, because it needs every process's tokens.

    Args:
        tokens: [R, P, D], as in `cross_attended_concept_loss`.
        concepts: [C, D], as in `concept_loss`.
        concept_image_index: [C] long, as in `concept_loss`: rows of the global batch of N images.
        logit_scale: [] or [1], the multiplier (already exponentiated), above 0.
        attention_temperature: In cosine, above 0.
        concept_id: [C] long or None, as in `concept_loss`.
        image_id: [N] long or None, as in `concept_loss`.
        text_id: [N] long or None, as in `concept_loss`.
        rows: Slice of N that the tokens belong to; None computes the whole loss. The slices of a partition add up to
            the whole in value and gradient.

    Returns:
        The loss ([], nats) and detached metrics, which add up over a partition as the loss does:
        `loss_cross_attended` (nats) and `accuracy_cross_attended` (0 to 1: share of concepts that their own image
        scores strictly above every negative concept). NaN without a concept.

    Raises:
        ValueError: If a shape or type does not match, or the temperature is not above 0.

    Source:
        Our choice, after C2LIP (arXiv 2603.25722), Eqs. 6 and 7: the paper has only the sigmoid.
    """
    scale, images = check_scalar("logit_scale", logit_scale), token_rows(tokens, rows)
    ids = image_id, text_id
    batch = check_concepts(concepts, concept_image_index, concept_id, tokens.shape[2], ids=ids)
    total, hits = sum_attended(
        tokens,
        batch.embedding,
        scale,
        None,
        attention_temperature,
        masks=lambda part: batch.image_masks(images[part]),
        terms=softmax_terms,
    )
    loss = total / batch.valid_count
    metrics = {
        "loss_cross_attended": loss.detach(),
        "accuracy_cross_attended": hits.to(loss.dtype) / batch.valid_count,
    }
    return loss, {**batch.nan_without_concepts(metrics), **batch.count_left_out(images)}
