"""From the features of one process to those of the global batch."""

from __future__ import annotations

import torch

from hfcomp.distributed import gather, gather_with_grad, rank
from hfcomp.fields import FIELDS, ROW_NUMBERS, VALUES, WITH_GRADIENT, Features


def over_processes(local: Features, sizes: list[int]) -> Features:
    """Concatenates features over processes, each as defined in `hfcomp.fields`.

    Args:
        local: what `DualEncoder.forward` returned; tokens and scalars stay as they are.
        sizes: rows of each process, in the order of ranks.

    Returns:
        Features of all `sum(sizes)` rows, with `rows`, this process's slice.
    """
    start = sum(sizes[: rank()])
    fields = dict(local)
    for name in _gathered_names(fields, ROW_NUMBERS):
        # Processes number their own rows from 0; in the global batch they begin behind those of lower ranks. -1 is
        # padding.
        fields[name] = torch.where(fields[name] >= 0, fields[name] + start, fields[name])
    # One call for all tensors with a gradient, so that backward has its collectives in one order on every process.
    for how, collect in (((WITH_GRADIENT,), gather_with_grad), ((VALUES, ROW_NUMBERS), gather)):
        present = _gathered_names(fields, *how)
        fields |= zip(present, collect(*(fields[name] for name in present), sizes=sizes), strict=True)
    return Features(**fields | {"rows": slice(start, start + sizes[rank()])})


def first_rows(features: Features, keep: int, total: int) -> Features:
    """The first `keep` of `total` rows (0: all), with what of `rows` and of this process's tokens is in them."""
    if keep <= 0:
        return features
    fields = dict(features)
    for name in _gathered_names(fields, WITH_GRADIENT, VALUES, ROW_NUMBERS):
        # Some tensors have several entries per row.
        fields[name] = fields[name][: keep * (fields[name].shape[0] // total)]
    rows = slice(min(features.rows.start, keep), min(features.rows.stop, keep))
    if "tokens" in fields:
        fields["tokens"] = fields["tokens"][: rows.stop - rows.start]
    return Features(**fields | {"rows": rows})


def _gathered_names(present: dict[str, torch.Tensor], *how: str) -> list[str]:
    return [name for name, field in FIELDS.items() if name in present and field.gathered in how]
