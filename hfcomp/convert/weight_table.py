"""Table of weight names for a layout, which works in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch

Change = Callable[[torch.Tensor], torch.Tensor]
# Conversion to the transformers layout, and back.
FORMS: dict[str, tuple[Change, Change]] = {
    "same": (lambda value: value, lambda value: value),
    "transposed": (lambda value: value.T, lambda value: value.T),
    "without batch dimension": (lambda value: value.squeeze(0), lambda value: value.unsqueeze(0)),
    "scalar": (lambda value: value.reshape(()), lambda value: value.reshape(())),
    "squeezed scalar": (lambda value: value.reshape(1), lambda value: value.reshape(())),
}


class Weight(NamedTuple):
    """Tensors of a layout and of the transformers model that contain the same numbers.

    Attributes:
        sources: Names in the layout. Several tensors are joined along their first dimension.
        targets: Names in transformers. Several tensors are equal parts of one, such as query, key and value.
        form: Key of `FORMS`.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    form: str = "same"


def pair(source: str, target: str) -> list[Weight]:
    """Returns the weight and bias of a layer that both layouts have."""
    return [Weight((f"{source}.{part}",), (f"{target}.{part}",)) for part in ("weight", "bias")]


def source_names(table: Iterable[Weight]) -> list[str]:
    return [name for weight in table for name in weight.sources]


def to_transformers(table: Iterable[Weight], tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Converts the tensors of a layout to transformers names; all `source_names` must exist."""
    converted = {}
    for weight in table:
        joined = FORMS[weight.form][0](_join(tensors, weight.sources))
        converted |= _parts(joined, weight.targets)
    return converted


def from_transformers(table: Iterable[Weight], tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Reverses `to_transformers`, for tables whose weights have one source each."""
    converted = {}
    for weight in table:
        joined = FORMS[weight.form][1](_join(tensors, weight.targets))
        converted |= _parts(joined, weight.sources)
    return converted


def _join(tensors: Mapping[str, torch.Tensor], names: tuple[str, ...]) -> torch.Tensor:
    return tensors[names[0]] if len(names) == 1 else torch.cat([tensors[name] for name in names])


def _parts(value: torch.Tensor, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    # Copy the parts, because safetensors does not write tensors that share memory, like the parts of a chunk.
    return {
        name: part.clone(memory_format=torch.contiguous_format)
        for name, part in zip(names, value.chunk(len(names)) if len(names) > 1 else [value], strict=True)
    }
