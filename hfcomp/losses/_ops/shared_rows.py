"""Rows of a batch that share an image or a caption: what is true of one row is true of the other."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hfcomp.losses._ops.shapes import check_shape


class SharedRows(NamedTuple):
    """Rows that share an image or a caption, and so are neither positives nor negatives of each other.

    Row 0 may share its image with row 1 and its caption with row 2 although rows 1 and 2 share nothing. So each
    relation has its own numbers, from 0 to N - 1 and equal for rows that share it; None without ids.
    """

    image: Tensor | None  # [N] int32
    text: Tensor | None  # [N] int32

    def groups(self, rows: slice | Tensor = slice(None)) -> Tensor | None:
        """Returns the numbers of some rows [r], one line per relation, [relations, r]. None without relations."""
        relations = [numbers[rows] for numbers in self if numbers is not None]
        return torch.stack(relations) if relations else None

    def count_left_out(self, entries: Tensor) -> Tensor:
        """Returns how many entries each row excludes, [N]: its own, and those of the rows that share with it.

        Args:
            entries: [N] long, number of entries per row.
        """
        relations = [numbers for numbers in self if numbers is not None]
        if not relations:
            return entries
        total = sum_alike(relations[0], entries)
        for numbers in relations[1:]:  # rows that share both are counted twice
            total = total + sum_alike(numbers, entries) - sum_alike(joint_numbers(*relations), entries)
        return total

    def count_pairs(self, entries: Tensor, rows: slice | Tensor | None, name: str) -> dict[str, Tensor]:
        """Returns the metrics `same_image_<name>` and `same_text_<name>`, for the ids that exist.

        They count the entries of other rows with the same image, and of rows with the same caption but another image,
        summed over rows. Together they are what is excluded.

        Args:
            entries: [N] long, number of entries per row.
            rows: Rows of the anchors; None for all.
            name: Name of the entries, such as pairs.
        """
        part, metrics = slice(None) if rows is None else rows, {}
        of_image = entries if self.image is None else sum_alike(self.image, entries)
        if self.image is not None:
            metrics[f"same_image_{name}"] = (of_image - entries)[part].sum().float()
        if self.text is not None:
            metrics[f"same_text_{name}"] = (self.count_left_out(entries) - of_image)[part].sum().float()
        return metrics


def shared_rows(image_id: Tensor | None, text_id: Tensor | None, size: int | None) -> SharedRows:
    """Returns which rows share something.

    Args:
        image_id: [N] long, equal for rows with the same image, or None.
        text_id: [N] long, equal for rows with the same caption, or None.
        size: N, or None if it is not known.
    """
    for name, ids in (("image_id", image_id), ("text_id", text_id)):
        if ids is not None:
            check_ids(name, ids, N=size)
    image, text = (None if ids is None else ranks(ids) for ids in (image_id, text_id))
    return SharedRows(image, text)


def check_ids(name: str, ids: Tensor, **sizes: int | None) -> None:
    """Raises unless `ids` is long and has the named sizes."""
    check_shape(name, ids, **sizes)
    if ids.dtype is not torch.long:
        raise ValueError(f"{name} has type {ids.dtype}, expected torch.long")


def check_negative_ids(text_id: Tensor | None, negative_text_id: Tensor | None, **sizes: int | None) -> None:
    """Raises unless ids of negative texts come with those of captions, are long and have the named sizes."""
    if negative_text_id is None:
        return
    check_ids("negative_text_id", negative_text_id, **sizes)
    if text_id is None:
        raise ValueError("negative_text_id is given without text_id, with which it is compared")


def ranks(ids: Tensor) -> Tensor:
    """Returns a number below n for each of n ids [n], the same for equal ids, [n] int32."""
    # Searching instead of `unique`, because the host would wait for the size of its output. int32 halves the bytes to
    # compare with each key.
    return torch.searchsorted(ids.sort().values, ids, out_int32=True)


def joint_numbers(first: Tensor, second: Tensor) -> Tensor:
    """Returns a number below n, equal if both numbers [n] are equal. They lie between 0 and n - 1."""
    # long, because the square of a large batch does not fit into 32 bits
    return ranks(first.long() * len(first) + second)


def sum_alike(numbers: Tensor, entries: Tensor) -> Tensor:
    """Returns for each row the sum of entries [n] over all rows with its number, including itself, [n]."""
    return torch.zeros_like(entries).index_add_(0, numbers, entries)[numbers]


def count_anchors(shared: SharedRows, image: Tensor, more: Tensor | None = None) -> Tensor:
    """Returns how many of N anchors have a key other than their own, [] long.

    Args:
        shared: Rows that share something.
        image: [N, D].
        more: [N] bool for the global batch, whether an anchor has a further key.
    """
    ones = torch.ones(len(image), dtype=torch.long, device=image.device)
    has_key = shared.count_left_out(ones) < len(image)
    return (has_key if more is None else has_key | more).sum()


class NegativeKeys(NamedTuple):
    """The N * K negative texts as keys of every image, except those equal to the caption of the image's row."""

    mask: Tensor  # [N, K] bool, True = valid
    caption: Tensor | None  # [N] int32, a number per caption, equal for equal captions; None without ids
    number: Tensor | None  # [N, K] int32, number of the caption that the negative equals, -1 = none; None without ids

    def own_mask(self) -> Tensor:
        """Returns which of its own negatives are keys of each image, [N, K] bool."""
        if self.number is None or self.caption is None:
            return self.mask
        return self.mask & (self.number != self.caption.unsqueeze(1))

    def count_left_out(self) -> Tensor:
        """Returns how many valid negatives each image excludes, [N] long."""
        none = torch.zeros(len(self.mask), dtype=torch.long, device=self.mask.device)
        if self.number is None or self.caption is None:
            return none
        equal = self.mask & (self.number >= 0)
        return none.index_add_(0, self.number.clamp(min=0).flatten(), equal.flatten().long())[self.caption]

    def has_negative(self) -> Tensor:
        """Returns whether an image has any negative as a key, [N] bool."""
        return self.count_left_out() < self.mask.sum()

    def metrics(self, rows: slice | None) -> dict[str, Tensor]:
        """Returns the metric `same_text_negatives`: the number excluded, summed over images. Empty without ids."""
        if self.number is None:
            return {}
        return {"same_text_negatives": self.count_left_out()[slice(None) if rows is None else rows].sum().float()}


def negative_keys(mask: Tensor, text_id: Tensor | None, negative_text_id: Tensor | None) -> NegativeKeys:
    """Checks the ids and returns the negatives with this mask [N, K] as keys of the images.

    Args:
        mask: [N, K] bool, True = valid.
        text_id: [N] long, equal for equal captions, or None.
        negative_text_id: [N, K] long, comparable with text_id, or None.
    """
    check_negative_ids(text_id, negative_text_id, N=len(mask), K=mask.shape[1])
    if text_id is None or negative_text_id is None:
        return NegativeKeys(mask, None, None)
    ordered = text_id.sort().values
    # The position of each negative among the captions is its number if the caption there is equal. A negative after
    # the last caption is compared with that caption, to stay in bounds.
    number = torch.searchsorted(ordered, negative_text_id.contiguous(), out_int32=True)
    equal = ordered[number.clamp(max=len(ordered) - 1)] == negative_text_id
    return NegativeKeys(mask, ranks(text_id), number.masked_fill(~equal, -1))


def doubled_texts(text_id: Tensor | None, negative_text_id: Tensor | None, valid: Tensor) -> Tensor | None:
    """Returns numbers below 2N for [captions; negative texts], equal for equal texts, [2N] int32. None without ids.

    Args:
        text_id: [N] long or None.
        negative_text_id: [N] long, comparable with text_id, or None: a negative text then equals no other text.
        valid: [2N] bool. A masked text equals no other text.
    """
    size = len(valid) // 2
    check_negative_ids(text_id, negative_text_id, N=size)
    if text_id is None:
        return None
    if negative_text_id is None:
        valid, negative_text_id = valid & (torch.arange(2 * size, device=valid.device) < size), text_id
    numbers = ranks(torch.cat([text_id, negative_text_id]))
    # Masked texts get unique numbers above all others, so they equal nothing.
    places = torch.arange(2 * size, dtype=numbers.dtype, device=numbers.device)
    return ranks(torch.where(valid, numbers, 2 * size + places))
