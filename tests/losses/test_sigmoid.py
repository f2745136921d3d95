"""The sigmoid loss: loops, both pull and push, chunks, types."""

import torch

from hfcomp.losses import sigmoid_loss
from tests.losses import reference
from tests.losses.checks import (
    assert_chunked,
    assert_metrics_detached,
    assert_promoted,
    assert_same,
    assert_shape_errors,
    assert_sliced,
    scalar,
    unit,
)


def batch(dtype=torch.float64, scale=10.0, bias=-3.0, size=5):
    return (
        unit(size, 4, seed=1, dtype=dtype),
        unit(size, 4, seed=2, dtype=dtype),
        scalar(scale, dtype),
        scalar(bias, dtype),
    )


def loss(image, text, scale, bias, rows=None):
    return sigmoid_loss(image, text, logit_scale=scale, logit_bias=bias, rows=rows)


def test_equals_loops():
    tensors = image, text, scale, bias = batch()
    assert_same(loss(*tensors)[0], reference.sigmoid(image, text, logit_scale=scale, logit_bias=bias), tensors)


def test_gradcheck():
    for rows in (None, slice(1, 4)):
        assert torch.autograd.gradcheck(lambda *t, rows=rows: 2 * loss(*t, rows=rows)[0], batch(scale=3.0))


def test_slices_add_up():
    tensors = batch()
    assert_sliced(lambda rows: loss(*tensors, rows=rows), 5, tensors)


def test_chunks_change_nothing(monkeypatch):
    tensors = batch(torch.float32, size=11)
    assert_chunked(monkeypatch, lambda: loss(*tensors)[0], tensors)


def test_types():
    assert_promoted(lambda *tensors: loss(*tensors)[0], lambda dtype: batch(dtype, 4.0))
    for dtype in (torch.float16, torch.bfloat16):
        tensors = batch(dtype, 100.0, -10.0)
        value = loss(*tensors)[0]
        assert value.isfinite() and all(g.isfinite().all() for g in torch.autograd.grad(value, tensors))


def test_far_logits_do_not_overflow():
    image, text, _, _ = batch(torch.float32)
    tensors = image, text, scalar(1000.0, torch.float32), scalar(0.0, torch.float32)
    value = loss(*tensors)[0]
    assert value.isfinite() and all(g.isfinite().all() for g in torch.autograd.grad(value, tensors))


def test_order_of_rows_changes_nothing():
    tensors = image, text, scale, bias = batch()
    p = torch.tensor([2, 0, 4, 1, 3])
    assert_same(loss(*tensors)[0], loss(image[p], text[p], scale, bias)[0], tensors)


def test_one_pair_is_its_own_positive():
    tensors = image, text, scale, bias = batch(size=1)
    logit = scale * (image * text).sum() + bias
    assert_same(loss(*tensors)[0], torch.nn.functional.softplus(-logit), tensors)


def test_scale_and_bias_may_have_one_dimension():
    image, text, scale, bias = tensors = batch()
    assert_same(loss(image, text, scale.reshape(1), bias.reshape(1))[0], loss(*tensors)[0], tensors)


def test_without_gradient_the_value_is_the_same():
    tensors = batch()
    with torch.no_grad():
        value = loss(*tensors)[0]
    assert not value.requires_grad
    torch.testing.assert_close(value, loss(*tensors)[0].detach())


def test_metrics():
    image, text, scale, bias = tensors = batch()
    value, metrics = loss(*tensors)
    assert_metrics_detached(metrics, "loss_positive", "loss_negative", "accuracy_image_to_text", "positive_accuracy")
    logits = (scale * image @ text.T + bias).detach()
    own = logits.diagonal()
    torch.testing.assert_close(metrics["loss_positive"], torch.nn.functional.softplus(-own).mean())
    torch.testing.assert_close(metrics["loss_positive"] + metrics["loss_negative"], value.detach())
    right = (logits.argmax(1) == torch.arange(5)).double().mean()
    torch.testing.assert_close(metrics["accuracy_image_to_text"], right)
    torch.testing.assert_close(metrics["positive_accuracy"], (own > 0).double().mean())


def test_wrong_shapes_are_named():
    image, text, scale, bias = batch()
    good = {"image": image, "text": text, "logit_scale": scale, "logit_bias": bias}
    wrong = {"image": image[0], "text": text[:3], "logit_scale": torch.ones(2), "logit_bias": torch.ones(2)}
    assert_shape_errors(sigmoid_loss, good, wrong)
