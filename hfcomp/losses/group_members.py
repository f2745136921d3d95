"""Groups of pairs that share a concept: their members, their centroids and the border of the group losses."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from hfcomp.losses.shapes import check_mask, check_shape


class Members(NamedTuple):
    """The images or the texts of G groups, or one centroid for each; a group without a member is no group."""

    embedding: Tensor  # [G, S, D], zeros where there is none
    mask: Tensor  # [G, S] bool, True = a member

    def centroid(self) -> Tensor:
        """Return the mean member of each group, [G, D], not normalised; zeros for a group without one."""
        return self.embedding.sum(1) / self.mask.sum(1, keepdim=True).clamp(min=1)


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
        raise ValueError(f"alpha is {alpha}, expected 0 to 1: outside, one of the two terms would be made worse")


def length(square: Tensor) -> Tensor:
    """Return the root of squared lengths, but infinity where a length is at most the rounding of a unit vector.

    What is divided by it is then 0 with a zero gradient: a vector that short has no direction.
    """
    return torch.where(square > torch.finfo(square.dtype).eps ** 2, square, torch.inf).sqrt()


def unit(vectors: Tensor) -> Tensor:
    """Return vectors [..., D] with length 1; one without a direction becomes zeros, with a zero gradient."""
    return vectors / length(vectors.square().sum(-1, keepdim=True))
