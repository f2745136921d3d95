"""The promotion rule, apart from any loss."""

import pytest
import torch

from hfcomp.losses._ops.precision import full_precision


@full_precision
def product(image, text, *, scale, slots=None):
    assert slots is None or slots.dtype == torch.long
    return scale * image @ text.T


@pytest.mark.parametrize(
    ("image", "text", "scale", "expected"),
    [
        (torch.float16, torch.float16, torch.float16, torch.float32),
        (torch.bfloat16, torch.float16, torch.float32, torch.float32),
        (torch.float32, torch.float32, torch.float64, torch.float32),
        (torch.bfloat16, torch.float64, torch.float32, torch.float64),
        (torch.float64, torch.float64, torch.bfloat16, torch.float64),
    ],
)
def test_embeddings_decide(image, text, scale, expected):
    actual = product(
        torch.ones(2, 3, dtype=image),
        torch.ones(2, 3, dtype=text),
        scale=torch.ones(1, dtype=scale),
        slots=torch.zeros(1, dtype=torch.long),
    )
    assert actual.dtype == expected


def test_autocast_does_not_reach_inside():
    image, text, scale = torch.randn(8, 16), torch.randn(8, 16), torch.tensor(10.0)
    outside = product(image, text, scale=scale)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (image @ text.T).dtype == torch.bfloat16
        torch.testing.assert_close(product(image, text, scale=scale), outside, rtol=0, atol=0)
        assert torch.is_autocast_enabled("cpu")


def test_gradients_keep_the_type_of_their_tensor():
    image = torch.randn(2, 3, dtype=torch.bfloat16, requires_grad=True)
    product(image, torch.randn(2, 3), scale=torch.tensor(1.0)).sum().backward()
    assert image.grad.dtype == torch.bfloat16


def test_name_and_signature_stay():
    assert product.__name__ == "product"
