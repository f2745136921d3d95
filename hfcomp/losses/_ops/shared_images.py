"""Rows of a batch that show one image: the caption of each is true of the image of all."""

from __future__ import annotations

import torch
from torch import Tensor

from hfcomp.losses._ops.shapes import check_shape


def image_groups(image_id: Tensor | None, size: int | None) -> Tensor | None:
    """Return a number from 0 to size - 1 for each row, the same for rows of one image; None without ids.

    Args:
        image_id: [N] long, equal for rows of one image, or None.
        size: N, None where it is not known.

    Raises:
        ValueError: if image_id has another shape or type.
    """
    if image_id is None:
        return None
    check_shape("image_id", image_id, N=size)
    if image_id.dtype is not torch.long:
        raise ValueError(f"image_id has type {image_id.dtype}, expected torch.long")
    # 4 bytes to compare with each key in place of 8
    return torch.searchsorted(image_id.sort().values, image_id, out_int32=True)


def same_image_pairs(group: Tensor | None, rows: slice | None) -> dict[str, Tensor]:
    """Return the metric `same_image_pairs`: the ordered pairs of different rows of one image, summed over anchors.

    Args:
        group: [N] of `image_groups`; None gives no metric.
        rows: of the anchors; None is all.
    """
    if group is None:
        return {}
    return {"same_image_pairs": count_others(group, torch.ones_like(group), slice(None) if rows is None else rows)}


def anchors_with_keys(group: Tensor | None, image: Tensor, more: Tensor | None = None) -> Tensor:
    """Return for how many of N anchors there is a key of another image, or any other key, [] long.

    It is N or 0: one anchor has no such key only if all rows are of one image.

    Args:
        group: [N] of `image_groups`, or None.
        image: [N, D].
        more: bool of any shape, of the global batch, whether there is a further key that every anchor meets.
    """
    images = torch.arange(len(image), device=image.device) if group is None else group
    there = (images != images[:1]).any()
    return len(image) * (there if more is None else there | more.any())


def count_others(group: Tensor, entries: Tensor, rows: slice | Tensor) -> Tensor:
    """Return how many entries the other rows of each row's image have, summed over rows, [] float32.

    Args:
        group: [N] of `image_groups`.
        entries: [N], of its type, how many each row has.
        rows: which of N are summed, a slice or indices.
    """
    of_image = torch.zeros_like(entries).index_add_(0, group, entries)
    return (of_image[group] - entries)[rows].sum().float()
