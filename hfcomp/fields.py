"""The single list of everything that travels from a dataset row to a loss: the fields of [`Features`].

To add a field, add one entry here and a loss that reads it. If the entry has a `column` and a `dtype`, the collator
reads it, the model passes it on and the trainer gathers it. Values that are not numbers have a reader in
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

# Ways to gather a field over processes. Row numbers become row numbers of the global batch.
WITH_GRADIENT, VALUES, ROW_NUMBERS = "with gradient", "values", "row numbers"


@dataclass(frozen=True)
class Field:
    """The origin of a field of [`Features`].

    Attributes:
        column: Dataset column that a trainer needs if it requires the field; empty for none.
        optional: Whether a dataset may lack the column, unless the trainer requires it explicitly.
        gathered: `WITH_GRADIENT`, `VALUES` or `ROW_NUMBERS`; empty for one value per process.
        in_batch: Whether it is a key of the batch that the model passes on unchanged.
        always: Whether it is passed on even if no trainer requires it.
        dtype: Type of the numbers that the collator reads from the column: one per row, or one per negative if
            `per_negative` is set.
        per_negative: Whether the column has one number per negative.
        missing: Value to use if an entry is null or the column is absent.
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
    """A field that the model computes."""
    return dataclasses.field(default=None, metadata={"field": Field(**how)})


def _batch_field(**how: Any) -> Any:
    """A field that comes with the batch."""
    return dataclasses.field(default=None, metadata={"field": Field(**{"gathered": VALUES, **how}, in_batch=True)})


@dataclass
class Features(ModelOutput):
    """Everything a loss may need from one batch. A field is `None` unless the trainer's `required_features` name it.

    `DualEncoder.forward` returns `B` rows. After `CompositionalTrainer.gather_features` the first dimension is the
    global `N`, and `rows` is this process's slice of it. Embeddings are L2-normalized; masked rows contain zeros.

    Attributes:
        image_embeds: `[N, D]`, image embeddings.
        text_embeds: `[N, D]`, caption embeddings.
        negative_image_embeds: `[N, D]`, embeddings of negative images.
        negative_text_embeds: `[N, K, D]`, embeddings of negative captions.
        concept_embeds: `[C, D]`, `max_concepts` per image, in the order of the images.
        tokens: `[B, P, D]`, patch tokens of this process's images; never gathered.
        negative_image_mask: `[N]` bool, true if the row has a negative image.
        negative_text_mask: `[N, K]` bool, true if the negative caption exists.
        negative_kind: `[N, K]` long, ids of `hfcomp.data.columns.NEGATIVE_KINDS`.
        negative_concreteness: `[N, K]` float, 1 to 5, NaN = no rating.
        concept_image_index: `[C]` long, global row of the concept's image, -1 = padding.
        concept_id: `[C]` long, equal numbers for equal phrases.
        image_id: `[N]` long, equal numbers for rows that show the same image. Always present if the dataset has the
            column `image_id` or if rows share images.
        text_id: `[N]` long, equal numbers for equal captions. Always present unless the config's `mask_equal_texts`
            is off.
        negative_text_id: `[N, K]` long, numbered together with `text_id` and present under the same condition.
        reference_text_embeds: `[N, D]`, caption embeddings from a frozen copy of the backbone; part of the batch.
        reference_negative_text_embeds: `[N, K, D]`, the same for negative captions.
        logit_scale: Scalar, the multiplier (already exponentiated).
        logit_bias: Scalar, SigLIP only.
        learned: Learned values of the objective by name.
        rows: Slice of `N` that belongs to this process.
    """

    image_embeds: torch.Tensor | None = _computed_field(column="image", gathered=WITH_GRADIENT)
    text_embeds: torch.Tensor | None = _computed_field(column="caption", gathered=WITH_GRADIENT)
    negative_image_embeds: torch.Tensor | None = _computed_field(
        column="negative_image", optional=True, gathered=WITH_GRADIENT
    )
    negative_text_embeds: torch.Tensor | None = _computed_field(column="negative_captions", gathered=WITH_GRADIENT)
    concept_embeds: torch.Tensor | None = _computed_field(column="concepts", optional=True, gathered=WITH_GRADIENT)
    tokens: torch.Tensor | None = _computed_field()
    negative_image_mask: torch.Tensor | None = _batch_field()
    negative_text_mask: torch.Tensor | None = _batch_field()
    negative_kind: torch.Tensor | None = _batch_field(
        column="negative_kinds", optional=True, dtype=torch.long, per_negative=True, missing="other"
    )
    negative_concreteness: torch.Tensor | None = _batch_field(
        column="negative_concreteness", optional=True, dtype=torch.float32, per_negative=True, missing=math.nan
    )
    concept_image_index: torch.Tensor | None = _batch_field(gathered=ROW_NUMBERS)
    concept_id: torch.Tensor | None = _batch_field()
    image_id: torch.Tensor | None = _batch_field(column="image_id", always=True, dtype=torch.long)
    text_id: torch.Tensor | None = _batch_field(column="caption", always=True, dtype=torch.long)
    negative_text_id: torch.Tensor | None = _batch_field(
        column="negative_captions", always=True, dtype=torch.long, per_negative=True, missing=""
    )
    reference_text_embeds: torch.Tensor | None = _batch_field()
    reference_negative_text_embeds: torch.Tensor | None = _batch_field()
    logit_scale: torch.Tensor | None = _computed_field()
    logit_bias: torch.Tensor | None = _computed_field()
    learned: dict[str, torch.Tensor] | None = _computed_field()
    rows: slice | None = None

    @property
    def own_negative_mask(self) -> torch.Tensor | None:
        """`negative_text_mask` without negatives that equal their row's own caption, if text ids are available."""
        if self.negative_text_mask is None or self.text_id is None or self.negative_text_id is None:
            return self.negative_text_mask
        return self.negative_text_mask & (self.negative_text_id != self.text_id.unsqueeze(1))

    @property
    def common(self) -> dict[str, Any]:
        """The keyword arguments of nearly every loss: scale, numbers of equal images and texts, and own rows."""
        return {name: getattr(self, name) for name in ("logit_scale", "image_id", "text_id", "rows")}


FIELDS: dict[str, Field] = {
    field.name: field.metadata["field"] for field in dataclasses.fields(Features) if "field" in field.metadata
}
"""Fields that a trainer may require, by name."""


def columns_of(names: Iterable[str]) -> list[str]:
    """The columns that the fields are read from, in the same order and without duplicates."""
    return [*dict.fromkeys(FIELDS[name].column for name in names if FIELDS[name].column)]
