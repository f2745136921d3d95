"""Groups of pairs that share a concept: their members, their centroids and the border of the group losses."""

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
        """Return the mean member of each group, [G, D], not normalized; zeros for a group without one."""
        return self.embedding.sum(1) / self.mask.sum(1, keepdim=True).clamp(min=1)


class SharedMembers:
    """Which members show an image, or have a caption, that other groups have as well: no negatives of each other.

    Args:
        image_id: [G, N] long, equal for members of one image, or None.
        text_id: [G, N] long, equal for members of one caption, or None.
        mask: [G, N] bool, True = a member.
    """

    def __init__(self, image_id: Tensor | None, text_id: Tensor | None, mask: Tensor) -> None:
        self.mask = mask
        # None if no two members share one.
        self.image, self.text = (None if ids is None else _numbers(ids, mask) for ids in (image_id, text_id))

    def of_members(self, groups: Tensor) -> Tensor:
        """Return for the members of groups [r] which members of other groups share with them, [r, N, G, N] bool."""
        same = self._any(lambda numbers: numbers[groups, :, None, None] == numbers)
        return same & self._others(groups)[:, None, :, None]

    def of_groups(self, groups: Tensor) -> Tensor:
        """Return for the members of groups [r] which other groups share with them, [r, N, G] bool."""

        def table_of(numbers: Tensor) -> Tensor:
            some, every = numbers[groups].long(), numbers.long()
            # Each number of these groups has a row of the table. The last row is for all other numbers.
            others = some.numel()
            slot = every.new_full((2 * every.numel(),), others)
            slot[some.flatten()] = torch.arange(others, device=slot.device)
            table = self.mask.new_zeros((others + 1, len(every)))
            group = torch.arange(len(every), device=slot.device).unsqueeze(1).expand_as(every)
            table[torch.where(self.mask, slot[every], others), group] = True
            return table[slot[some]]

        return self._any(table_of) & self._others(groups)[:, None, :]

    def of_centroids(self, groups: Tensor) -> Tensor:
        """Return `of_groups` for keys that are one centroid for each group, [r, N, G, 1] bool."""
        return self.of_groups(groups).unsqueeze(3)

    def between_centroids(self, groups: Tensor) -> Tensor:
        """Return which other groups share an image with groups [r], [r, 1, G, 1] bool."""
        return self.of_centroids(groups).any(1, keepdim=True)

    def pairs(self, rows: slice) -> dict[str, Tensor]:
        """Return the metrics `same_image_pairs` and `same_text_pairs`, as far as there are ids.

        They are the pairs of members of two groups with one image, and those with one caption and two images, summed
        over the members of `rows`.
        """
        metrics, of_image = {}, torch.zeros_like(self.mask, dtype=torch.long)
        if self.image is not None:
            of_image = self._pairs_of(self.image)
            metrics["same_image_pairs"] = of_image
        if self.text is not None:
            both = of_image
            if self.image is not None:
                pairs = joint_numbers(ranks(self.image.flatten()), ranks(self.text.flatten()))
                both = self._pairs_of(pairs.view_as(self.text))
            metrics["same_text_pairs"] = self._pairs_of(self.text) - both
        return {name: torch.where(self.mask, found, 0)[rows].sum().float() for name, found in metrics.items()}

    def _pairs_of(self, numbers: Tensor) -> Tensor:
        """Return how many members of other groups have each one's number, [G, N] long."""
        groups = torch.arange(len(numbers), device=numbers.device).unsqueeze(1)
        return _repeats(numbers.long()) - _repeats(groups * 2 * numbers.numel() + numbers)

    def _any(self, shares: Callable[[Tensor], Tensor]) -> Tensor:
        found = [shares(numbers) for numbers in (self.image, self.text) if numbers is not None]
        return found[0] if len(found) == 1 else found[0] | found[1]

    def _others(self, groups: Tensor) -> Tensor:
        return groups.unsqueeze(1) != torch.arange(len(self.mask), device=groups.device)


def _numbers(ids: Tensor, mask: Tensor) -> Tensor:
    """Return a number below 2 * G * N for each member, the same for equal ids; what is masked equals nothing."""
    numbers = ranks(ids.flatten()).view_as(ids)
    # Masked members have numbers of their own above all ids, so they need no mask wherever numbers are compared.
    places = torch.arange(ids.numel(), device=ids.device, dtype=numbers.dtype).view_as(ids)
    return torch.where(mask, numbers, ids.numel() + places)


def _repeats(numbers: Tensor) -> Tensor:
    """Return how often each number [...] occurs, [...] long."""
    ordered = numbers.flatten().sort().values
    return torch.searchsorted(ordered, numbers, right=True) - torch.searchsorted(ordered, numbers)


def check_shared(image_id: Tensor | None, text_id: Tensor | None, mask: Tensor) -> SharedMembers | None:
    """Return which members of groups share their images or captions, None without ids."""
    for name, ids in (("image_id", image_id), ("text_id", text_id)):
        if ids is not None:
            check_ids(name, ids, G=len(mask), N=mask.shape[1])
    return None if image_id is None and text_id is None else SharedMembers(image_id, text_id, mask)


def check_groups(image: Tensor, text: Tensor, mask: Tensor | None) -> tuple[Members, Members]:
    """Return the images and the texts of groups [G, N, D], with masked members set to zeros."""
    check_shape("image", image, G=None, N=None, D=None)
    groups, members, width = image.shape
    if not image.numel():
        raise ValueError(f"image has shape {list(image.shape)}, expected [G, N, D] with none of them 0")
    check_shape("text", text, G=groups, N=members, D=width)
    if mask is None:
        mask = torch.ones((groups, members), dtype=torch.bool, device=image.device)
    check_mask("mask", mask, G=groups, N=members)
    out = ~mask.unsqueeze(-1)
    return Members(image.masked_fill(out, 0), mask), Members(text.masked_fill(out, 0), mask)


def check_settings(temperature: float, inner_temperature: float, alpha: float) -> None:
    """Raise unless both temperatures are finite and above 0, and alpha is between 0 and 1."""
    for name, value in (("temperature", temperature), ("inner_temperature", inner_temperature)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}, expected a finite number above 0")
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}, expected 0 to 1: outside this range one term would be maximized")


def length(square: Tensor) -> Tensor:
    """Return the root of squared lengths, but infinity where a length is at most the rounding of a unit vector.

    What is divided by it is then 0 with a zero gradient: a vector that short has no direction.
    """
    # `where` before the root: the gradient of a root at 0 is infinite, and a mask after it would make NaN of that.
    return torch.where(square > torch.finfo(square.dtype).eps ** 2, square, torch.inf).sqrt()


def unit(vectors: Tensor) -> Tensor:
    """Return vectors [..., D] with length 1; one without a direction becomes zeros, with a zero gradient."""
    return vectors / length(vectors.square().sum(-1, keepdim=True))
