"""From the features of one process to those of the global batch."""

from __future__ import annotations

import torch

from hfcomp.distributed import gather, gather_with_grad, rank
from hfcomp.modeling import WITH_GRADIENT, WITHOUT_GRADIENT, Features


def gather_features(local: Features, sizes: list[int]) -> Features:
    """Concatenates features over processes: embeddings with gradient, masks, kinds, ratings and owners without.

    Args:
        local: what `DualEncoder.forward` returned; tokens and scalars stay as they are.
        sizes: rows of each process, in the order of ranks.

    Returns:
        Features of all `sum(sizes)` rows, with `rows`, this process's slice, and owners as rows of the global batch.
    """
    start = sum(sizes[: rank()])
    fields = dict(local)
    if "owner" in fields:
        fields["owner"] = torch.where(fields["owner"] >= 0, fields["owner"] + start, fields["owner"])
    for names, collect in ((WITH_GRADIENT, gather_with_grad), (WITHOUT_GRADIENT, gather)):
        present = [name for name in names if name in fields]
        fields |= zip(present, collect(*(fields[name] for name in present), sizes=sizes), strict=True)
    return Features(**fields | {"rows": slice(start, start + sizes[rank()])})


def first_rows(features: Features, keep: int, total: int) -> Features:
    """The first `keep` of `total` rows, and as much of `rows` and of this process's tokens as is among them.

    Args:
        features: of the global batch.
        keep: rows to keep; all when it is not positive.
        total: rows of the global batch.
    """
    if keep <= 0:
        return features
    fields = dict(features)
    for name in (*WITH_GRADIENT, *WITHOUT_GRADIENT):
        if name in fields:
            fields[name] = fields[name][: keep * (fields[name].shape[0] // total)]
    rows = slice(min(features.rows.start, keep), min(features.rows.stop, keep))
    if "tokens" in fields:
        fields["tokens"] = fields["tokens"][: rows.stop - rows.start]
    return Features(**fields | {"rows": rows})
