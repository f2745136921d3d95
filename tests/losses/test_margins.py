"""Margins: the curve of Eq. 4, its limits, missing ratings and types; a learned margin and its floor."""

import math

import pytest
import torch

from hfcomp.losses import LearnedMargin, fermi_dirac_margin, inverse_margin, positive_margin_loss, static_margin
from tests import tolerances
from tests.losses import reference

DEFAULTS = {"minimum": -2.0, "maximum": 2.0, "threshold": 4.0, "temperature": 0.15}
OTHERS = {"minimum": 0.5, "maximum": 3.0, "threshold": 3.0, "temperature": 0.4}
RATINGS = torch.linspace(1, 5, 17, dtype=torch.float64)


@pytest.mark.parametrize("setting", [DEFAULTS, OTHERS])
def test_equals_the_equation(setting):
    expected = torch.tensor([reference.fermi_dirac(float(c), **setting) for c in RATINGS], dtype=torch.float64)
    torch.testing.assert_close(fermi_dirac_margin(RATINGS, **setting), expected)
    # the inverse curve swaps rating and threshold
    swapped = [reference.fermi_dirac(2 * setting["threshold"] - float(c), **setting) for c in RATINGS]
    torch.testing.assert_close(inverse_margin(RATINGS, **setting), torch.tensor(swapped, dtype=torch.float64))


def test_defaults():
    torch.testing.assert_close(fermi_dirac_margin(RATINGS), fermi_dirac_margin(RATINGS, **DEFAULTS))
    torch.testing.assert_close(inverse_margin(RATINGS), inverse_margin(RATINGS, **DEFAULTS))
    margins = fermi_dirac_margin(torch.tensor([3.0, 4.0, 5.0]))
    torch.testing.assert_close(margins, torch.tensor([-1.995, 0.0, 1.995]), atol=1e-3, rtol=0)
    assert static_margin(RATINGS).eq(1).all() and static_margin(RATINGS, value=-0.5).eq(-0.5).all()


def test_missing_ratings():
    ratings = torch.tensor([torch.nan, 5.0])
    assert fermi_dirac_margin(ratings)[0] == 0 and inverse_margin(ratings)[0] == 0
    assert fermi_dirac_margin(ratings, minimum=1.0)[0] == 0
    assert static_margin(ratings).tolist() == [1.0, 1.0]
    ratings.requires_grad_()
    assert torch.autograd.grad(fermi_dirac_margin(ratings).sum(), ratings)[0].isfinite().all()


@pytest.mark.parametrize("margin", [fermi_dirac_margin, inverse_margin])
def test_no_overflow(margin):
    ratings = torch.tensor([-1e6, 1e6], requires_grad=True)
    values = margin(ratings, temperature=1e-4)
    assert sorted(values.tolist()) == [-2.0, 2.0]
    assert torch.autograd.grad(values.sum(), ratings)[0].isfinite().all()


@pytest.mark.parametrize("margin", [fermi_dirac_margin, inverse_margin, static_margin])
def test_types_and_shapes(margin):
    for dtype, expected in (
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.int64, torch.float32),
    ):
        ratings = torch.tensor([[1, 5, 4]], dtype=dtype)
        assert margin(ratings).dtype == expected and margin(ratings).shape == (1, 3)
        torch.testing.assert_close(
            margin(ratings).double(), margin(ratings.double()), atol=4 * tolerances.rounding(8), rtol=0
        )
    assert margin(torch.empty(0)).shape == (0,)


@pytest.mark.parametrize("margin", [fermi_dirac_margin, inverse_margin])
def test_wrong_settings(margin):
    with pytest.raises(ValueError, match="temperature: found 0"):
        margin(RATINGS, temperature=0)
    with pytest.raises(ValueError, match="maximum: found -3.0, .*-2.0"):
        margin(RATINGS, maximum=-3.0)


@pytest.mark.parametrize(
    ("start", "value", "gradient"), [(0.9, 0.9, 1.0), (0.201, 0.201, 1.0), (0.2, 0.2, 0.0), (-1.5, 0.2, 0.0)]
)
def test_learned_margin_has_a_gradient_above_its_floor_only(start, value, gradient):
    margin = LearnedMargin(start)
    actual = margin()
    assert actual.shape == () and actual == torch.tensor(value)
    assert torch.autograd.grad(actual, margin.value)[0] == gradient


def test_learned_margin_falls_to_its_floor_and_stays():
    image, text = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    margin = LearnedMargin(0.5, minimum=0.25)
    optimizer = torch.optim.SGD(margin.parameters(), lr=0.125)
    seen = []
    for _ in range(4):
        optimizer.zero_grad()
        loss, _ = positive_margin_loss(image, text, margin=margin())
        loss.backward()
        optimizer.step()
        seen.append((loss.item(), margin.value.item()))
    assert seen == [(0.5, 0.375), (0.375, 0.25), (0.25, 0.25), (0.25, 0.25)]


def test_learned_margin_never_gives_less_than_its_floor():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        margin = LearnedMargin(0.9).to(dtype)
        for value in (-math.inf, -1.0, 0.0, 0.1999, 0.2):
            with torch.no_grad():
                margin.value.fill_(value)
            assert margin() == torch.tensor(0.2, dtype=dtype) and margin().dtype == dtype


def test_learned_margin_is_saved():
    margin, copy = LearnedMargin(0.75), LearnedMargin(0.0)
    copy.load_state_dict(margin.state_dict())
    assert list(margin.state_dict()) == ["value"] and copy() == 0.75


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_learned_margin_refuses_what_is_no_cosine(number):
    with pytest.raises(ValueError, match=f"start: found {number},"):
        LearnedMargin(number)
    with pytest.raises(ValueError, match=f"minimum: found {number},"):
        LearnedMargin(0.5, minimum=number)
