"""The one table of what travels from a row of a dataset to a loss: the fields of [`Features`], an entry for each.

A further field of a row is one entry here and the loss that reads it. With a `column` and a `dtype` the collator reads
it, the model passes it on and the trainer gathers it; a value that is not a number has a reader in
`hfcomp.data.row_values`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from transformers.utils import ModelOutput

# Ways to gather a field over processes. Row numbers become those of the global batch.
WITH_GRADIENT, VALUES, ROW_NUMBERS = "with gradient", "values", "row numbers"


@dataclass(frozen=True)
class Field:
    """How a field of [`Features`] comes about.

    Attributes:
        column: of the dataset, which a trainer that requires the field reads; empty for none.
        optional: whether a dataset may lack the column, as long as the trainer does not say otherwise.
        gathered: `WITH_GRADIENT`, `VALUES` or `ROW_NUMBERS`; empty for what is one value per process.
        in_batch: whether it is a key of the batch, which the model passes on as it is.
        always: whether it is passed on though no trainer requires it.
        dtype: of the numbers that the collator reads from the column: one for each row, or for each negative where
            `per_negative` is set.
        per_negative: see `dtype`.
        missing: what stands in the column's place where an entry is null or the column is absent.
    """

    column: str = ""
    optional: bool = False
    gathered: str = ""
    in_batch: bool = False
    always: bool = False
    dtype: torch.dtype | None = None
    per_negative: bool = False
    missing: Any = None


def _computed_field(**how: Any) -> Any:
    """A field that the model makes."""
    return dataclasses.field(default=None, metadata={"field": Field(**how)})


def _read(**how: Any) -> Any:
    """A field that comes with the batch."""
    return dataclasses.field(default=None, metadata={"field": Field(**{"gathered": VALUES, **how}, in_batch=True)})


@dataclass
class Features(ModelOutput):
    """What a loss may need of one batch. A field is `None` when the trainer's `required_features` do not name it.

    `B` rows leave `DualEncoder.forward`; after `CompositionalTrainer.gather_features` the first dimension is the
    global `N` and `rows` is this process's slice of it. Embeddings are L2-normalized; rows that a mask excludes hold
    zeros.

    Attributes:
        image_embeds: `[N, D]`.
        text_embeds: `[N, D]`, of the captions.
        negative_image_embeds: `[N, D]`.
        negative_text_embeds: `[N, K, D]`.
        concept_embeds: `[C, D]`, `max_concepts` for each image, in the order of images.
        tokens: `[B, P, D]`, the patches of this process's images; never gathered.
        negative_image_mask: `[N]` bool, true where a row has a negative image.
        negative_text_mask: `[N, K]` bool.
        negative_kind: `[N, K]` long, ids of `hfcomp.data.columns.NEGATIVE_KINDS`.
        negative_concreteness: `[N, K]` float, 1 to 5, NaN = no rating.
        concept_image_index: `[C]` long, the global row of the concept's image, -1 = padding.
        concept_id: `[C]` long, equal numbers for equal phrases.
        image_id: `[N]` long, equal numbers for rows of one image; whatever is required, it is there if the dataset
            has the column `image_id`, or if rows share images.
        text_id: `[N]` long, equal numbers for equal captions; whatever is required, it is there unless the config's
            `mask_equal_texts` is off.
        negative_text_id: `[N, K]` long, of the same numbers, likewise.
        reference_text_embeds: `[N, D]`, of the captions by a frozen copy of the backbone; it comes with the batch.
        reference_negative_text_embeds: `[N, K, D]`, likewise.
        logit_scale: scalar, the multiplier (already exponentiated).
        logit_bias: scalar, SigLIP only.
        learned: the objective's learned values by name.
        rows: this process's slice of `N`.
    """

    image_embeds: torch.Tensor | None = _computed_field(column="image", gathered=WITH_GRADIENT)
    text_embeds: torch.Tensor | None = _computed_field(column="caption", gathered=WITH_GRADIENT)
    negative_image_embeds: torch.Tensor | None = _computed_field(
        column="negative_image", optional=True, gathered=WITH_GRADIENT
    )
    negative_text_embeds: torch.Tensor | None = _computed_field(column="negative_captions", gathered=WITH_GRADIENT)
    concept_embeds: torch.Tensor | None = _computed_field(column="concepts", optional=True, gathered=WITH_GRADIENT)
    tokens: torch.Tensor | None = _computed_field()
    negative_image_mask: torch.Tensor | None = _read()
    negative_text_mask: torch.Tensor | None = _read()
    negative_kind: torch.Tensor | None = _read(
        column="negative_kinds", optional=True, dtype=torch.long, per_negative=True, missing="other"
    )
    negative_concreteness: torch.Tensor | None = _read(
        column="negative_concreteness", optional=True, dtype=torch.float32, per_negative=True, missing=math.nan
    )
    concept_image_index: torch.Tensor | None = _read(gathered=ROW_NUMBERS)
    concept_id: torch.Tensor | None = _read()
    image_id: torch.Tensor | None = _read(column="image_id", always=True, dtype=torch.long)
    text_id: torch.Tensor | None = _read(column="caption", always=True, dtype=torch.long)
    negative_text_id: torch.Tensor | None = _read(
        column="negative_captions", always=True, dtype=torch.long, per_negative=True, missing=""
    )
    reference_text_embeds: torch.Tensor | None = _read()
    reference_negative_text_embeds: torch.Tensor | None = _read()
    logit_scale: torch.Tensor | None = _computed_field()
    logit_bias: torch.Tensor | None = _computed_field()
    learned: dict[str, torch.Tensor] | None = _computed_field()
    rows: slice | None = None

    @property
    def own_negative_mask(self) -> torch.Tensor | None:
        """`negative_text_mask` without negatives that equal their row's own caption, as far as there are ids."""
        if self.negative_text_mask is None or self.text_id is None or self.negative_text_id is None:
            return self.negative_text_mask
        return self.negative_text_mask & (self.negative_text_id != self.text_id.unsqueeze(1))


FIELDS: dict[str, Field] = {
    field.name: field.metadata["field"] for field in dataclasses.fields(Features) if "field" in field.metadata
}
"""By name, what a trainer may require."""


def columns_of(names: Iterable[str]) -> list[str]:
    """The columns that fields are made of, in their order, each once."""
    return [*dict.fromkeys(FIELDS[name].column for name in names if FIELDS[name].column)]
