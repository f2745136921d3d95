"""One table of names for a layout of weights, read in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch

Change = Callable[[torch.Tensor], torch.Tensor]
# The change to the other layout, and back.
FORMS: dict[str, tuple[Change, Change]] = {
    "same": (lambda value: value, lambda value: value),
    "transposed": (lambda value: value.T, lambda value: value.T),
    "of a batch": (lambda value: value.squeeze(0), lambda value: value.unsqueeze(0)),
    "scalar": (lambda value: value.reshape(()), lambda value: value.reshape(())),
    "list of one": (lambda value: value.reshape(1), lambda value: value.reshape(())),
}


class Weight(NamedTuple):
    """The tensors of a layout and of transformers' model that hold the same numbers.

    Attributes:
        sources: Names in the layout. Several are joined along their first dimension.
        targets: Names in transformers. Several are equal parts of one tensor, such as query, key and value.
        form: Key of `FORMS`.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    form: str = "same"


def pair(source: str, target: str) -> list[Weight]:
    """Weight and bias of a layer that both layouts have."""
    return [Weight((f"{source}.{part}",), (f"{target}.{part}",)) for part in ("weight", "bias")]


def source_names(table: Iterable[Weight]) -> list[str]:
    return [name for weight in table for name in weight.sources]


def to_transformers(table: Iterable[Weight], tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of a layout under transformers' names; all of `source_names` are there."""
    found = {}
    for weight in table:
        joined = FORMS[weight.form][0](_joined(tensors, weight.sources))
        found |= _parts(joined, weight.targets)
    return found


def from_transformers(table: Iterable[Weight], tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The reverse of `to_transformers`, for tables whose weights have one source each."""
    found = {}
    for weight in table:
        joined = FORMS[weight.form][1](_joined(tensors, weight.targets))
        found |= _parts(joined, weight.sources)
    return found


def _joined(tensors: Mapping[str, torch.Tensor], names: tuple[str, ...]) -> torch.Tensor:
    return tensors[names[0]] if len(names) == 1 else torch.cat([tensors[name] for name in names])


def _parts(value: torch.Tensor, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    # Copies: safetensors does not write two tensors that share memory, as the parts of a chunk do.
    return {
        name: part.clone(memory_format=torch.contiguous_format)
        for name, part in zip(names, value.chunk(len(names)) if len(names) > 1 else [value], strict=True)
    }
