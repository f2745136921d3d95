"""A loss whose backward pass is written by hand refuses to be differentiated twice."""

import pytest
import torch

from hfcomp.losses import info_nce_loss, sigmoid_loss


@pytest.mark.parametrize("loss", [info_nce_loss, lambda *x, **y: sigmoid_loss(*x, logit_bias=torch.tensor(-1.0), **y)])
def test_a_second_derivative_is_refused(loss):
    image, text = (torch.randn(4, 8).requires_grad_() for _ in range(2))
    value, _ = loss(image, text, logit_scale=torch.tensor(3.0))
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(value, [image, text], create_graph=True)
    assert all(gradient.norm() > 0 for gradient in torch.autograd.grad(value, [image, text]))
