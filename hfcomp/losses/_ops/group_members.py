"""Groups of pairs that share a concept: members, centroids, and argument checks of the group losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hfcomp.losses._ops.shapes import check_mask, check_shape
from hfcomp.losses._ops.shared_rows import check_ids, joint_numbers, ranks


class Members(NamedTuple):
    """The images or texts of G groups, or one centroid per group; groups without members do not count."""

    embedding: Tensor  # [G, S, D], zeros if missing
    mask: Tensor  # [G, S] bool, True = a member

    def centroid(self) -> Tensor:
        """Returns the mean member of each group, [G, D], not normalized. Zeros for a group without members."""
        return self.embedding.sum(1) / self.mask.sum(1, keepdim=True).clamp(min=1)


class SharedMembers:
    """Members whose image or caption also occurs in other groups; they are not negatives of each other.

    Args:
        image_id: [G, N] long, equal for members with the same image, or None.
        text_id: [G, N] long, equal for members with the same caption, or None.
        mask: [G, N] bool, True = a member.
    """

    def __init__(self, image_id: Tensor | None, text_id: Tensor | None, mask: Tensor) -> None:
        self.mask = mask
        # None without ids.
        self.image, self.text = (None if ids is None else _numbers(ids, mask) for ids in (image_id, text_id))

    def member_overlap(self, groups: Tensor) -> Tensor:
        """Returns which members of other groups share something with members of groups [r], [r, N, G, N] bool."""
        same = self._any(lambda numbers: numbers[groups, :, None, None] == numbers)
        return same & self._others(groups)[:, None, :, None]

    def group_overlap(self, groups: Tensor) -> Tensor:
        """Returns which other groups share something with each member of groups [r], [r, N, G] bool."""

        def lookup(numbers: Tensor) -> Tensor:
            some, every = numbers[groups].long(), numbers.long()
            # The table has a row for each number of these groups. The last row is for all other numbers.
            others = some.numel()
            slot = every.new_full((2 * every.numel(),), others)
            slot[some.flatten()] = torch.arange(others, device=slot.device)
            table = self.mask.new_zeros((others + 1, len(every)))
            group = torch.arange(len(every), device=slot.device).unsqueeze(1).expand_as(every)
            table[torch.where(self.mask, slot[every], others), group] = True
            return table[slot[some]]

        return self._any(lookup) & self._others(groups)[:, None, :]

    def centroid_overlap(self, groups: Tensor) -> Tensor:
        """Returns `group_overlap` for keys that are a single centroid per group, [r, N, G, 1] bool."""
        return self.group_overlap(groups).unsqueeze(3)

    def between_centroids(self, groups: Tensor) -> Tensor:
        """Returns which other groups share something with groups [r], [r, 1, G, 1] bool."""
        return self.centroid_overlap(groups).any(1, keepdim=True)

    def pairs(self, rows: slice) -> dict[str, Tensor]:
        """Returns the metrics `same_image_pairs` and `same_text_pairs`, for the ids that exist.

        They count pairs of members of two groups with the same image, and those with the same caption but different
        images, summed over the members of `rows`.
        """
        metrics, image_pairs = {}, torch.zeros_like(self.mask, dtype=torch.long)
        if self.image is not None:
            image_pairs = self._count_across_groups(self.image)
            metrics["same_image_pairs"] = image_pairs
        if self.text is not None:
            both = image_pairs
            if self.image is not None:
                pairs = joint_numbers(ranks(self.image.flatten()), ranks(self.text.flatten()))
                both = self._count_across_groups(pairs.view_as(self.text))
            metrics["same_text_pairs"] = self._count_across_groups(self.text) - both
        return {name: torch.where(self.mask, counts, 0)[rows].sum().float() for name, counts in metrics.items()}

    def _count_across_groups(self, numbers: Tensor) -> Tensor:
        """Returns for each member how many members of other groups have its number, [G, N] long."""
        groups = torch.arange(len(numbers), device=numbers.device).unsqueeze(1)
        return _repeats(numbers.long()) - _repeats(groups * 2 * numbers.numel() + numbers)

    def _any(self, shares: Callable[[Tensor], Tensor]) -> Tensor:
        overlaps = [shares(numbers) for numbers in (self.image, self.text) if numbers is not None]
        return overlaps[0] if len(overlaps) == 1 else overlaps[0] | overlaps[1]

    def _others(self, groups: Tensor) -> Tensor:
        return groups.unsqueeze(1) != torch.arange(len(self.mask), device=groups.device)


def _numbers(ids: Tensor, mask: Tensor) -> Tensor:
    """Returns a number below 2 * G * N for each member, the same for equal ids. Masked members equal nothing."""
    numbers = ranks(ids.flatten()).view_as(ids)
    # Masked members have unique numbers above all ids, so comparing numbers needs no mask.
    places = torch.arange(ids.numel(), device=ids.device, dtype=numbers.dtype).view_as(ids)
    return torch.where(mask, numbers, ids.numel() + places)


def _repeats(numbers: Tensor) -> Tensor:
    """Returns how often each number [...] occurs, [...] long."""
    ordered = numbers.flatten().sort().values
    return torch.searchsorted(ordered, numbers, right=True) - torch.searchsorted(ordered, numbers)


def check_shared(image_id: Tensor | None, text_id: Tensor | None, mask: Tensor) -> SharedMembers | None:
    """Checks the ids and returns which members of groups share images or captions; None without ids."""
    for name, ids in (("image_id", image_id), ("text_id", text_id)):
        if ids is not None:
            check_ids(name, ids, G=len(mask), N=mask.shape[1])
    return None if image_id is None and text_id is None else SharedMembers(image_id, text_id, mask)


def check_groups(image: Tensor, text: Tensor, mask: Tensor | None) -> tuple[Members, Members]:
    """Checks and returns the images and texts of groups [G, N, D], with masked members set to zeros."""
    check_shape("image", image, G=None, N=None, D=None)
    groups, members, width = image.shape
    if not image.numel():
        raise ValueError(f"image has shape {list(image.shape)}, expected [G, N, D] with no dimension 0")
    check_shape("text", text, G=groups, N=members, D=width)
    if mask is None:
        mask = torch.ones((groups, members), dtype=torch.bool, device=image.device)
    check_mask("mask", mask, G=groups, N=members)
    out = ~mask.unsqueeze(-1)
    return Members(image.masked_fill(out, 0), mask), Members(text.masked_fill(out, 0), mask)


def check_settings(temperature: float, inner_temperature: float, alpha: float) -> None:
    """Raises unless both temperatures are finite and above 0, and alpha is between 0 and 1."""
    for name, value in (("temperature", temperature), ("inner_temperature", inner_temperature)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name}: found {value}, expected a finite number above 0")
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha: found {alpha}, expected 0 to 1; outside this range, one term would be maximized")


def length(square: Tensor) -> Tensor:
    """Returns the root of squared lengths, or infinity if a length is at most the rounding of a unit vector.

    Anything divided by it is then 0 with a zero gradient, because a vector that short has no direction.
    """
    # `where` comes before the root, whose gradient at 0 is infinite: a mask after it would turn that into NaN.
    return torch.where(square > torch.finfo(square.dtype).eps ** 2, square, torch.inf).sqrt()


def unit(vectors: Tensor) -> Tensor:
    """Returns vectors [..., D] with length 1. A vector without a direction becomes zeros, with a zero gradient."""
    return vectors / length(vectors.square().sum(-1, keepdim=True))
