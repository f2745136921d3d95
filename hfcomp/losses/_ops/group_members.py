"""Groups of pairs that share a concept: their members, their centroids and the border of the group losses."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from hfcomp.losses._ops.shapes import check_mask, check_shape
from hfcomp.losses._ops.shared_images import image_groups


class Members(NamedTuple):
    """The images or texts of G groups, or one centroid per group; groups without members do not count."""

    embedding: Tensor  # [G, S, D], zeros if missing
    mask: Tensor  # [G, S] bool, True = a member

    def centroid(self) -> Tensor:
        """Return the mean member of each group, [G, D], not normalised; zeros for a group without one."""
        return self.embedding.sum(1) / self.mask.sum(1, keepdim=True).clamp(min=1)


class SharedImages:
    """Which members show an image that other groups have as well: no negatives of each other.

    Args:
        image: [G, N], a number from 0 to G * N - 1 for each member, the same for members of one image.
        mask: [G, N] bool, True = a member.
    """

    def __init__(self, image: Tensor, mask: Tensor) -> None:
        places = torch.arange(image.numel(), device=image.device, dtype=image.dtype).view_as(image)
        # what is masked shows nothing that another member does
        self.image, self.mask = torch.where(mask, image, image.numel() + places), mask

    def of_members(self, groups: Tensor) -> Tensor:
        """Return for the members of groups [r] which members of other groups show their image, [r, N, G, N] bool."""
        same = self.image[groups, :, None, None] == self.image
        return same & self._others(groups)[:, None, :, None]

    def of_groups(self, groups: Tensor) -> Tensor:
        """Return for the members of groups [r] which other groups have their image, [r, N, G] bool."""
        some, every = self.image[groups].long(), self.image.long()
        # each image of these groups has a slot, so that the table is of their members alone; the last is of all others
        others = some.numel()
        slot = every.new_full((2 * every.numel(),), others)
        slot[some.flatten()] = torch.arange(others, device=slot.device)
        table = self.mask.new_zeros((others + 1, len(every)))
        group = torch.arange(len(every), device=slot.device).unsqueeze(1).expand_as(every)
        table[torch.where(self.mask, slot[every], others), group] = True
        return table[slot[some]] & self._others(groups)[:, None, :]

    def of_centroids(self, groups: Tensor) -> Tensor:
        """Return `of_groups` for keys that are one centroid for each group, [r, N, G, 1] bool."""
        return self.of_groups(groups).unsqueeze(3)

    def between_centroids(self, groups: Tensor) -> Tensor:
        """Return which other groups share an image with groups [r], [r, 1, G, 1] bool."""
        return self.of_centroids(groups).any(1, keepdim=True)

    def pairs(self, rows: slice) -> dict[str, Tensor]:
        """Return the metric `same_image_pairs`: pairs of members of two groups, summed over those of `rows`."""
        groups = torch.arange(len(self.image), device=self.image.device).unsqueeze(1)
        everywhere, within = _repeats(self.image.long()), _repeats(groups * 2 * self.image.numel() + self.image)
        return {"same_image_pairs": torch.where(self.mask, everywhere - within, 0)[rows].sum().float()}

    def _others(self, groups: Tensor) -> Tensor:
        return groups.unsqueeze(1) != torch.arange(len(self.mask), device=groups.device)


def _repeats(numbers: Tensor) -> Tensor:
    """Return how often each number [...] occurs, [...] long."""
    ordered = numbers.flatten().sort().values
    return torch.searchsorted(ordered, numbers, right=True) - torch.searchsorted(ordered, numbers)


def check_images(image_id: Tensor | None, mask: Tensor) -> SharedImages | None:
    """Return which members of groups share their images, None without ids.

    Args:
        image_id: [G, N] long, equal for members of one image, or None.
        mask: [G, N] bool, True = a member.

    Raises:
        ValueError: if image_id has another shape or type.
    """
    if image_id is None:
        return None
    check_shape("image_id", image_id, G=len(mask), N=mask.shape[1])
    image = image_groups(image_id.flatten(), mask.numel())
    return None if image is None else SharedImages(image.view_as(mask), mask)


def check_groups(image: Tensor, text: Tensor, mask: Tensor | None) -> tuple[Members, Members]:
    """Return the images and the texts of groups [G, N, D], with masked members set to zeros.

    Raises:
        ValueError: if a shape or the mask's type does not fit, or one of the sizes is 0.
    """
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
    """Raise unless both temperatures are finite and above 0, and alpha is between 0 and 1.

    Raises:
        ValueError: naming the setting and what was found and expected.
    """
    for name, value in (("temperature", temperature), ("inner_temperature", inner_temperature)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}, expected a finite number above 0")
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}, expected 0 to 1: outside this range one term would be maximized")


def length(square: Tensor) -> Tensor:
    """Return the root of squared lengths, but infinity where a length is at most the rounding of a unit vector.

    What is divided by it is then 0 with a zero gradient: a vector that short has no direction.
    """
    return torch.where(square > torch.finfo(square.dtype).eps ** 2, square, torch.inf).sqrt()


def unit(vectors: Tensor) -> Tensor:
    """Return vectors [..., D] with length 1; one without a direction becomes zeros, with a zero gradient."""
    return vectors / length(vectors.square().sum(-1, keepdim=True))
