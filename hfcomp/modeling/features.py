"""What a loss may need of one batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers.utils import ModelOutput


@dataclass
class Features(ModelOutput):
    """What a loss may need of one batch. A field is `None` when the trainer's `uses` does not name it.

    `B` rows leave `DualEncoder.forward`; after `CompositionalTrainer.encode` the first dimension is the global `N`
    and `rows` is this process's slice of it. Embeddings are L2-normalised; rows that a mask excludes hold zeros.

    Attributes:
        image: `[N, D]`.
        text: `[N, D]`, of the captions.
        negative_image: `[N, D]`.
        negative_text: `[N, K, D]`.
        negative_image_mask: `[N]` bool, true where a row has a negative image.
        negative_text_mask: `[N, K]` bool.
        negative_kind: `[N, K]` long, ids of `hfcomp.data.columns.NEGATIVE_KINDS`.
        negative_concreteness: `[N, K]` float, 1 to 5, NaN = no rating.
        concepts: `[C, D]`, `max_concepts` for each image, in the order of images.
        owner: `[C]` long, the global row of the image, -1 = padding.
        concept_id: `[C]` long, equal numbers for equal phrases.
        image_id: `[N]` long, equal numbers for rows of one image; whatever `uses` names, it is there if the data set
            has the column `image_id`.
        tokens: `[B, P, D]`, the patches of this process's images; never gathered.
        group_mask: `[G, N]` bool.
        reference_text: `[N, D]`, of the captions by a frozen copy of the backbone; it comes with the batch.
        reference_negative_text: `[N, K, D]`, likewise.
        logit_scale: scalar, the multiplier (already exponentiated).
        logit_bias: scalar, SigLIP only.
        learned: the objective's learned values by name.
        rows: this process's slice of `N`.
    """

    image: torch.Tensor | None = None
    text: torch.Tensor | None = None
    negative_image: torch.Tensor | None = None
    negative_text: torch.Tensor | None = None
    negative_image_mask: torch.Tensor | None = None
    negative_text_mask: torch.Tensor | None = None
    negative_kind: torch.Tensor | None = None
    negative_concreteness: torch.Tensor | None = None
    concepts: torch.Tensor | None = None
    owner: torch.Tensor | None = None
    concept_id: torch.Tensor | None = None
    image_id: torch.Tensor | None = None
    tokens: torch.Tensor | None = None
    group_mask: torch.Tensor | None = None
    reference_text: torch.Tensor | None = None
    reference_negative_text: torch.Tensor | None = None
    logit_scale: torch.Tensor | None = None
    logit_bias: torch.Tensor | None = None
    learned: dict[str, torch.Tensor] | None = None
    rows: slice | None = None


WITH_GRADIENT = ("image", "text", "negative_image", "negative_text", "concepts")
WITHOUT_GRADIENT = (
    "negative_image_mask",
    "negative_text_mask",
    "negative_kind",
    "negative_concreteness",
    "owner",
    "concept_id",
    "image_id",
    "reference_text",
    "reference_negative_text",
)
SCALARS = ("logit_scale", "logit_bias", "learned")
USABLE_FIELDS = (*WITH_GRADIENT, "tokens", *WITHOUT_GRADIENT, *SCALARS)
