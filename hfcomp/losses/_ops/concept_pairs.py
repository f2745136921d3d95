"""Pairs of images and concepts: an image's own concepts and its negatives."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hfcomp.losses._ops.items import nan_without
from hfcomp.losses._ops.shapes import check_shape
from hfcomp.losses._ops.shared_rows import SharedRows, joint_numbers, ranks, shared_rows, sum_alike


class Concepts(NamedTuple):
    """All concepts of a batch. Padding takes no part in any pair."""

    embedding: Tensor  # [C, D], zeros for padding
    image_index: Tensor  # [C] long, image row, -1 = padding
    alike: Tensor | None  # [C] long, 0 to C - 1, the same for equal phrases; None: no two phrases are equal
    shared: SharedRows  # which image rows share an image or a caption

    @property
    def valid_count(self) -> Tensor:
        return (self.image_index >= 0).sum().clamp(min=1)

    def nan_without_concepts(self, metrics: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the metrics, all NaN if there is no concept."""
        return nan_without(self.image_index >= 0, metrics)

    def image_masks(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns two masks [r, C] for image rows [r]: the image's own concepts and its negatives."""
        own = images.unsqueeze(1) == self.image_index
        negative = (self.image_index >= 0) & ~own
        if self.alike is not None:
            # Count each phrase per image: a concept is a negative only of images that do not have its phrase.
            phrases = torch.zeros_like(own, dtype=torch.int32).index_add_(1, self.alike, own.int())
            negative &= phrases[:, self.alike] == 0
        for numbers in self.shared:
            if numbers is not None:
                negative &= numbers[images].unsqueeze(1) != numbers[self.image_index.clamp(min=0)]
        return own, negative

    def count_left_out(self, images: Tensor) -> dict[str, Tensor]:
        """Returns the metrics on concepts of other rows that image rows [r] exclude, for the ids that exist.

        `same_image_concepts` counts concepts of rows with the same image, `same_text_concepts` the others: concepts of
        rows with the same caption, and equal phrases.
        """
        metrics: dict[str, Tensor] = {}
        relations = [numbers for numbers in self.shared if numbers is not None]
        if relations:
            entries = torch.zeros_like(relations[0], dtype=torch.long)
            entries.index_add_(0, self.image_index.clamp(min=0), (self.image_index >= 0).long())
            metrics = self.shared.count_pairs(entries, images, "concepts")
        if self.alike is not None:
            other = metrics.get("same_text_concepts", 0.0)
            metrics["same_text_concepts"] = self._count_equal_phrases(images) + other
        return metrics

    def _count_equal_phrases(self, images: Tensor) -> Tensor:
        """Returns the number of concepts that image rows exclude only because of equal phrases, [] float32."""
        owner, valid = self.image_index.clamp(min=0), (self.image_index >= 0).long()
        if self.alike is None or not len(images):
            return torch.zeros((), device=owner.device)
        phrase = self.alike
        # For each concept, count those with its phrase, except those of rows that share something with its own row.
        rows = ranks(owner)
        image, text = (rows if numbers is None else ranks(numbers[owner]) for numbers in self.shared)
        shared = SharedRows(joint_numbers(phrase, image), joint_numbers(phrase, text))
        others = sum_alike(phrase, valid) - shared.count_left_out(valid)
        # If an image has a phrase twice, it counts once.
        twin = joint_numbers(phrase, rows).long()
        places = torch.arange(len(twin), device=twin.device)
        first = places.new_full((len(twin),), len(twin)).scatter_reduce_(
            0, twin, torch.where(valid > 0, places, len(twin)), "amin"
        )
        chosen = images[torch.searchsorted(images, owner).clamp(max=len(images) - 1)] == owner
        wanted = (first[twin] == places) & chosen
        return torch.where(wanted, others, 0).sum().float()

    def concept_masks(self, part: slice, images: int) -> tuple[Tensor, Tensor]:
        """Returns two masks [c, N] for some concepts: the concept's own image and its negatives."""
        index = self.image_index[part].unsqueeze(1)
        own = index == torch.arange(images, device=index.device)
        negative = (index >= 0) & ~own
        if self.alike is not None:
            equal = (self.alike[part].unsqueeze(1) == self.alike) & (self.image_index >= 0)
            phrases = torch.zeros_like(own, dtype=torch.int32)
            negative &= phrases.index_add_(1, self.image_index.clamp(min=0), equal.int()) == 0
        for numbers in self.shared:
            if numbers is not None:
                # Padding's -1 would index the last row; `negative` is already False there.
                negative &= numbers[index.clamp(min=0)] != numbers
        return own, negative


def check_concepts(
    concepts: Tensor,
    concept_image_index: Tensor,
    concept_id: Tensor | None,
    width: int,
    *,
    ids: tuple[Tensor | None, Tensor | None] = (None, None),
    images: int | None = None,
) -> Concepts:
    """Checks and returns the concepts of a batch, with padding set to zeros.

    Args:
        concepts: [C, D].
        concept_image_index: [C] long, -1 = padding.
        concept_id: [C] long or None.
        width: D of the images.
        ids: image_id and text_id, [N] long or None each.
        images: N, or None if it is not known.
    """
    check_shape("concepts", concepts, C=None, D=width)
    for name, numbers in (("concept_image_index", concept_image_index), ("concept_id", concept_id)):
        if numbers is None:
            continue
        check_shape(name, numbers, C=len(concepts))
        if numbers.dtype is not torch.long:
            raise ValueError(f"{name} has type {numbers.dtype}, expected torch.long")
    # Numbers come from sorting and searching, because the host would wait for the size of `unique`'s output.
    alike = None if concept_id is None else torch.searchsorted(concept_id.sort().values, concept_id)
    shared = shared_rows(*ids, images)
    # A NaN in padding would reach every gradient through the matrix products despite masks: 0 * NaN is NaN.
    embedding = concepts.masked_fill((concept_image_index < 0).unsqueeze(1), 0)
    return Concepts(embedding, concept_image_index, alike, shared)


def image_rows(image: Tensor, rows: slice | None) -> Tensor:
    """Checks image [N, D] and returns the row indices [R] that `rows` selects."""
    check_shape("image", image, N=None, D=None)
    index = torch.arange(len(image), device=image.device)
    return index if rows is None else index[rows]


def token_rows(tokens: Tensor, rows: slice | None) -> Tensor:
    """Returns the global image rows [R] of tokens [R, P, D]. N itself is not known here."""
    check_shape("tokens", tokens, R=None, P=None, D=None)
    start = 0 if rows is None else rows.start or 0
    stop = start + len(tokens)
    if rows is not None and (start < 0 or rows.stop not in (None, stop) or rows.step not in (None, 1)):
        raise ValueError(f"tokens has {len(tokens)} rows, expected the tokens of exactly the images {rows}")
    return torch.arange(start, stop, device=tokens.device)
