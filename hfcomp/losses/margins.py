"""Margins: functions of a keyword's concreteness (logits), a learned margin (cosine), thresholds kept over steps."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hfcomp.losses._ops.precision import full_type
from hfcomp.losses._ops.shapes import check_shape


def fermi_dirac_margin(
    concreteness: Tensor,
    *,
    minimum: float = -2.0,
    maximum: float = 2.0,
    threshold: float = 4.0,
    temperature: float = 0.15,
) -> Tensor:
    """Computes the adaptive margin, which rises from minimum to maximum around the threshold.

    margin = minimum + (maximum - minimum) / (1 + exp((threshold - concreteness) / temperature)), without overflow for
    any rating. With the defaults, a rating of 4 gives 0, 5 gives 1.995 and 3 gives -1.995.

    Args:
        concreteness: Ratings from 1 (abstract) to 5 (concrete), NaN = missing; any shape, usually [N].
        minimum: Margin of the most abstract keywords, in logits.
        maximum: Margin of the most concrete keywords, in logits; at least `minimum`.
        threshold: Rating at which the margin is halfway.
        temperature: Width of the rise in rating points, above 0.

    Returns:
        The margin in logits, shaped like concreteness, at least float32; 0 for a missing rating (our choice,
        the paper has a rating for every keyword).

    Raises:
        ValueError: If temperature is not above 0 or maximum is below minimum.

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
    """Computes the reversed adaptive margin, which falls from maximum to minimum around the threshold.

    It is the paper's control, in which abstract keywords get the large margin.

    Args:
        concreteness: Ratings from 1 (abstract) to 5 (concrete), NaN = missing; any shape, usually [N].
        minimum: Margin of the most concrete keywords, in logits.
        maximum: Margin of the most abstract keywords, in logits; at least `minimum`.
        threshold: Rating at which the margin is halfway.
        temperature: Width of the fall in rating points, above 0.

    Returns:
        The margin in logits, shaped like concreteness, at least float32; 0 for a missing rating (our choice).

    Raises:
        ValueError: If temperature is not above 0 or maximum is below minimum.

    Source:
        Concrete Jungle (arXiv 2604.13313), Sec. 3.3.
    """
    return _sigmoid_margin(concreteness, -1.0, minimum, maximum, threshold, temperature)


def static_margin(concreteness: Tensor, *, value: float = 1.0) -> Tensor:
    """Gives every pair the same margin, whatever its rating.

    Args:
        concreteness: Tensor of any shape, usually [N]. Only its shape, type and device are used, so NaN is allowed.
        value: Margin in logits.

    Returns:
        The margin in logits, shaped like concreteness, at least float32.

    Source:
        Concrete Jungle (arXiv 2604.13313), Sec. 3.3, which sets 1.
    """
    return torch.full_like(_full(concreteness), value)


class LearnedMargin(nn.Module):
    """The margin of `positive_margin_loss`: a parameter with a floor, whose gradient at or below the floor is 0.

    Under Eq. 8 a higher margin never lowers the loss, so training can only lower the margin (without weight decay,
    which would also pull it to 0). At or below the floor it has no gradient and stays there forever, and `forward`
    returns the floor. 58% of standard-normal starts are at or below 0.2.

    Args:
        start: Initial value of the parameter, in cosine; the paper draws it from a standard normal distribution.
        minimum: Floor of the margin, in cosine.

    Raises:
        ValueError: If start or minimum is not finite.

    Source:
        AHNPL (Huang et al. 2025, arXiv 2505.15576), Sec. 3.3, the learnable `a`.
    """

    def __init__(self, start: float, *, minimum: float = 0.2) -> None:
        super().__init__()
        for name, number in (("start", start), ("minimum", minimum)):
            if not math.isfinite(number):
                raise ValueError(f"{name}: found {number}, expected a finite cosine")
        self.minimum = minimum
        self.value = nn.Parameter(torch.tensor(float(start)))

    def forward(self) -> Tensor:
        """Returns the margin, [], cosine, at least `minimum`."""
        # `clamp` would still pass on the gradient exactly at the floor.
        return self.value.masked_fill(self.value <= self.minimum, self.minimum)


class RunningThreshold(nn.Module):
    """A threshold for each kind of hard negative, kept from step to step and saved with the model.

    It starts at 0, or at `minimum` if that is higher. `forward` returns a copy without gradient, so neither autograd
    nor other processes ever see an incomplete `update`.

    Args:
        kinds: Number of kinds of negatives, at least 1.
        minimum: Lower bound in the unit of the thresholds (cosine for `adaptive_threshold`); may be -inf.
        maximum: Upper bound in the same unit, above 0 and at least `minimum`; may be inf.

    Raises:
        ValueError: If kinds or maximum is too small, or minimum too large.
    """

    value: Tensor

    def __init__(self, kinds: int, *, minimum: float = 0.0, maximum: float) -> None:
        super().__init__()
        if kinds < 1:
            raise ValueError(f"kinds: found {kinds}, expected at least 1")
        if not maximum > 0:
            raise ValueError(f"maximum: found {maximum}, expected a value above 0")
        if not minimum <= maximum or minimum == math.inf:
            raise ValueError(f"minimum: found {minimum}, expected below inf and at most maximum, which is {maximum}")
        self.minimum, self.maximum = minimum, maximum
        # A buffer is saved and resumed with the model, and no optimizer changes it.
        self.register_buffer("value", torch.full((kinds,), max(0.0, minimum)))

    def forward(self) -> Tensor:
        """Returns the thresholds, [kinds]."""
        return self.value.clone()

    @torch.no_grad()
    def update(self, value: Tensor) -> None:
        """Sets new thresholds [kinds], clamped to the bounds. A kind with a non-finite value keeps its old one."""
        check_shape("value", value, kinds=len(self.value))
        bounded = value.clamp(self.minimum, self.maximum)
        self.value.copy_(torch.where(bounded.isfinite(), bounded, self.value))


def _sigmoid_margin(
    concreteness: Tensor, sign: float, minimum: float, maximum: float, threshold: float, temperature: float
) -> Tensor:
    if not temperature > 0:
        raise ValueError(f"temperature: found {temperature}, expected a value above 0")
    if not maximum >= minimum:
        raise ValueError(f"maximum: found {maximum}, expected at least minimum, which is {minimum}")
    rating = _full(concreteness)
    missing = rating.isnan()
    # Filled before the sigmoid, so a missing rating puts no NaN into the backward pass
    share = torch.sigmoid(sign * (rating.masked_fill(missing, threshold) - threshold) / temperature)
    return (minimum + (maximum - minimum) * share).masked_fill(missing, 0)


def _full(concreteness: Tensor) -> Tensor:
    if not concreteness.is_floating_point():
        return concreteness.float()
    return concreteness.to(full_type(concreteness.dtype))
