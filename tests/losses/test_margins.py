"""Margins: the curve of Eq. 4, its limits, missing ratings and types."""

import pytest
import torch

from hfcomp.losses import fermi_dirac_margin, inverse_margin, static_margin
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
    found = fermi_dirac_margin(torch.tensor([3.0, 4.0, 5.0]))
    torch.testing.assert_close(found, torch.tensor([-1.995, 0.0, 1.995]), atol=1e-3, rtol=0)
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
        torch.testing.assert_close(margin(ratings).double(), margin(ratings.double()), atol=1e-6, rtol=1e-6)
    assert margin(torch.empty(0)).shape == (0,)


@pytest.mark.parametrize("margin", [fermi_dirac_margin, inverse_margin])
def test_wrong_settings(margin):
    with pytest.raises(ValueError, match="temperature is 0"):
        margin(RATINGS, temperature=0)
    with pytest.raises(ValueError, match="maximum is -3.0, expected at least minimum, which is -2.0"):
        margin(RATINGS, maximum=-3.0)
