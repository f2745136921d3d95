"""Gathers the features of one process into those of the global batch."""

from __future__ import annotations

import torch

from hfcomp.distributed import gather, gather_with_grad, rank
from hfcomp.fields import FIELDS, ROW_NUMBERS, VALUES, WITH_GRADIENT, Features


def gather_over_processes(local: Features, sizes: list[int]) -> Features:
    """Concatenates features over processes, each as defined in `hfcomp.fields`.

    Args:
        local: Return value of `DualEncoder.forward`. Tokens and scalars are left unchanged.
        sizes: Number of rows per process, in rank order.

    Returns:
        Features of all `sum(sizes)` rows; `rows` is this process's slice.
        Features of all `sum(sizes)` rows, with `rows`, this process's slice.
    """
    start = sum(sizes[: rank()])
    fields = dict(local)
    for name in _names_of_kinds(fields, ROW_NUMBERS):
        # Processes number their rows from 0; in the global batch, rows come after those of lower ranks. -1 is padding.
        fields[name] = torch.where(fields[name] >= 0, fields[name] + start, fields[name])
    # One call for all tensors with a gradient, so backward runs its collectives in the same order on every process.
    for kinds, collect in (((WITH_GRADIENT,), gather_with_grad), ((VALUES, ROW_NUMBERS), gather)):
        present = _names_of_kinds(fields, *kinds)
        fields |= zip(present, collect(*(fields[name] for name in present), sizes=sizes), strict=True)
    return Features(**fields | {"rows": slice(start, start + sizes[rank()])})


def first_rows(features: Features, keep: int, total: int) -> Features:
    """Returns the first `keep` of `total` rows (0: all), with `rows` and this process's tokens cut accordingly."""
    if keep <= 0:
        return features
    fields = dict(features)
    for name in _names_of_kinds(fields, WITH_GRADIENT, VALUES, ROW_NUMBERS):
        # Some tensors have several entries per row
        fields[name] = fields[name][: keep * (fields[name].shape[0] // total)]
    rows = slice(min(features.rows.start, keep), min(features.rows.stop, keep))
    if "tokens" in fields:
        fields["tokens"] = fields["tokens"][: rows.stop - rows.start]
    return Features(**fields | {"rows": rows})


def _names_of_kinds(present: dict[str, torch.Tensor], *kinds: str) -> list[str]:
    return [name for name, field in FIELDS.items() if name in present and field.gathered in kinds]
