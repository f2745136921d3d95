"""Margins in logit units as functions of a keyword's concreteness, for the Cement loss."""

from __future__ import annotations

import torch
from torch import Tensor

from hfcomp.losses.precision import full_type


def fermi_dirac_margin(
    concreteness: Tensor,
    *,
    minimum: float = -2.0,
    maximum: float = 2.0,
    threshold: float = 4.0,
    temperature: float = 0.15,
) -> Tensor:
    """Compute the adaptive margin, which rises from minimum to maximum around the threshold.

    margin = minimum + (maximum - minimum) / (1 + exp((threshold - concreteness) / temperature)), without overflow for
    any rating. At the defaults a rating of 4 gives 0, 5 gives 1.995 and 3 gives -1.995.

    Args:
        concreteness: any shape, usually [N]; ratings from 1 (abstract) to 5 (concrete), NaN = missing.
        minimum: margin of the most abstract keywords, in logits.
        maximum: margin of the most concrete keywords, in logits; at least `minimum`.
        threshold: rating at which the margin is halfway.
        temperature: width of the rise in rating points, above 0.

    Returns:
        The margin in logits, shaped like concreteness, at least float32; 0 where the rating is missing (our choice,
        the paper has a rating for every keyword).

    Raises:
        ValueError: if temperature is not above 0 or maximum is below minimum.

    Source:
        Concrete Jungle (arXiv 2604.13313), Eq. 4.
    """
    return _sigmoid_margin(concreteness, 1.0, minimum, maximum, threshold, temperature)


def inverse_margin(
    concreteness: Tensor,
    *,
    minimum: float = -2.0,
    maximum: float = 2.0,
    threshold: float = 4.0,
    temperature: float = 0.15,
) -> Tensor:
    """Compute the adaptive margin turned round: it falls from maximum to minimum around the threshold.

    It is the paper's control: the abstract keywords get the large margin.

    Args:
        concreteness: any shape, usually [N]; ratings from 1 (abstract) to 5 (concrete), NaN = missing.
        minimum: margin of the most concrete keywords, in logits.
        maximum: margin of the most abstract keywords, in logits; at least `minimum`.
        threshold: rating at which the margin is halfway.
        temperature: width of the fall in rating points, above 0.

    Returns:
        The margin in logits, shaped like concreteness, at least float32; 0 where the rating is missing (our choice).

    Raises:
        ValueError: if temperature is not above 0 or maximum is below minimum.

    Source:
        Concrete Jungle (arXiv 2604.13313), Sec. 3.3.
    """
    return _sigmoid_margin(concreteness, -1.0, minimum, maximum, threshold, temperature)


def static_margin(concreteness: Tensor, *, value: float = 1.0) -> Tensor:
    """Give every pair the same margin, whatever its rating.

    Args:
        concreteness: any shape, usually [N]; only its shape, type and device are used, so NaN is allowed.
        value: the margin in logits.

    Returns:
        The margin in logits, shaped like concreteness, at least float32.

    Source:
        Concrete Jungle (arXiv 2604.13313), Sec. 3.3, which sets 1.
    """
    return torch.full_like(_full(concreteness), value)


def _sigmoid_margin(
    concreteness: Tensor, sign: float, minimum: float, maximum: float, threshold: float, temperature: float
) -> Tensor:
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, expected above 0")
    if not maximum >= minimum:
        raise ValueError(f"maximum is {maximum}, expected at least minimum, which is {minimum}")
    rating = _full(concreteness)
    missing = rating.isnan()
    share = torch.sigmoid(sign * (rating.masked_fill(missing, threshold) - threshold) / temperature)
    return (minimum + (maximum - minimum) * share).masked_fill(missing, 0)


def _full(concreteness: Tensor) -> Tensor:
    if not concreteness.is_floating_point():
        return concreteness.float()
    return concreteness.to(full_type(concreteness.dtype))
