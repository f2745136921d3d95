"""Margins: functions of a keyword's concreteness in logits, a learned one in cosine, thresholds kept between steps."""

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


class LearnedMargin(nn.Module):
    """The margin of `positive_margin_loss`, a parameter with a floor; its gradient at or below the floor is 0.

    Under Eq. 8 a higher margin never lowers the loss, so training can only lower the margin (with weight decay off,
    which draws it to 0 besides). At or below the floor it has no gradient and stays there for ever, while `forward`
    gives the floor. 58% of standard-normal starts are at or below 0.2.

    Args:
        start: first value of the parameter, in cosine; the paper draws it from a standard normal.
        minimum: the floor, in cosine.

    Raises:
        ValueError: if start or minimum is not finite.

    Source:
        AHNPL (Huang et al. 2025, arXiv 2505.15576), Sec. 3.3, the learnable `a`.
    """

    def __init__(self, start: float, *, minimum: float = 0.2) -> None:
        super().__init__()
        for name, given in (("start", start), ("minimum", minimum)):
            if not math.isfinite(given):
                raise ValueError(f"{name} is {given}, expected a finite cosine")
        self.minimum = minimum
        self.value = nn.Parameter(torch.tensor(float(start)))

    def forward(self) -> Tensor:
        """Return the margin, [], cosine, at least `minimum`."""
        # `clamp` would still pass the gradient at exactly the floor.
        return self.value.masked_fill(self.value <= self.minimum, self.minimum)


class RunningThreshold(nn.Module):
    """A threshold for each kind of hard negative, kept from step to step and saved with the model.

    It starts at 0, or at `minimum` if that is higher. `forward` gives a copy without gradient, so that autograd and
    other processes never see an `update` midway.

    Args:
        kinds: number of kinds of negatives, at least 1.
        minimum: lower bound in the unit of the thresholds (cosine for `adaptive_threshold`); may be -inf.
        maximum: upper bound in the same unit, above 0 and at least `minimum`; may be inf.

    Raises:
        ValueError: if kinds or maximum is too small, or minimum too large.
    """

    value: Tensor

    def __init__(self, kinds: int, *, minimum: float = 0.0, maximum: float) -> None:
        super().__init__()
        if kinds < 1:
            raise ValueError(f"kinds is {kinds}, expected at least 1")
        if not maximum > 0:
            raise ValueError(f"maximum is {maximum}, expected above 0")
        if not minimum <= maximum or minimum == math.inf:
            raise ValueError(f"minimum is {minimum}, expected below inf and at most maximum, which is {maximum}")
        self.minimum, self.maximum = minimum, maximum
        # A buffer: saved and resumed with the model, and no optimizer touches it.
        self.register_buffer("value", torch.full((kinds,), max(0.0, minimum)))

    def forward(self) -> Tensor:
        """Return the thresholds, [kinds]."""
        return self.value.clone()

    @torch.no_grad()
    def update(self, value: Tensor) -> None:
        """Take new thresholds [kinds], clamped to the bounds; a kind that is not finite then keeps its own."""
        check_shape("value", value, kinds=len(self.value))
        bounded = value.clamp(self.minimum, self.maximum)
        self.value.copy_(torch.where(bounded.isfinite(), bounded, self.value))


def _sigmoid_margin(
    concreteness: Tensor, sign: float, minimum: float, maximum: float, threshold: float, temperature: float
) -> Tensor:
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, expected above 0")
    if not maximum >= minimum:
        raise ValueError(f"maximum is {maximum}, expected at least minimum, which is {minimum}")
    rating = _full(concreteness)
    missing = rating.isnan()
    # Filled before the sigmoid, so a missing rating passes no NaN into backward.
    share = torch.sigmoid(sign * (rating.masked_fill(missing, threshold) - threshold) / temperature)
    return (minimum + (maximum - minimum) * share).masked_fill(missing, 0)


def _full(concreteness: Tensor) -> Tensor:
    if not concreteness.is_floating_point():
        return concreteness.float()
    return concreteness.to(full_type(concreteness.dtype))
