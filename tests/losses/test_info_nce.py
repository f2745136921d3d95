"""InfoNCE and DCL: the same batch, the positive in or out of the denominator."""

import pytest
import torch

from hfcomp.losses import dcl_loss, info_nce_loss
from tests.losses import reference
from tests.losses.checks import (
    assert_chunked,
    assert_metrics_detached,
    assert_promoted,
    assert_same,
    assert_shape_errors,
    assert_sliced,
    assert_zero,
    scalar,
    unit,
)

MASK = torch.tensor([[True, False, True], [False, False, False], [True, True, True], [False, True, False]])
LOSSES = pytest.mark.parametrize(
    ("loss", "loops"), [(info_nce_loss, reference.info_nce), (dcl_loss, reference.dcl)], ids=["info_nce", "dcl"]
)
PLAIN_KEYS = ("loss_image_to_text", "loss_text_to_image", "accuracy_image_to_text", "accuracy_text_to_image")


def batch(dtype=torch.float64, scale=20.0, size=4):
    return (
        unit(size, 5, seed=1, dtype=dtype),
        unit(size, 5, seed=2, dtype=dtype),
        scalar(scale, dtype),
        unit(size, 3, 5, seed=3, dtype=dtype),
    )


@LOSSES
def test_equals_loops(loss, loops):
    image, text, scale, negative = tensors = batch()
    assert_same(loss(image, text, logit_scale=scale)[0], loops(image, text, logit_scale=scale), tensors)
    arguments = {"logit_scale": scale, "negative_text": negative, "negative_mask": MASK}
    assert_same(loss(image, text, **arguments)[0], loops(image, text, **arguments), tensors)
    everything = arguments | {"negative_mask": torch.ones_like(MASK)}
    without_mask = arguments | {"negative_mask": None}
    assert_same(loss(image, text, **without_mask)[0], loops(image, text, **everything), tensors)


@LOSSES
def test_gradcheck(loss, loops):
    for rows in (None, slice(1, 3)):
        assert torch.autograd.gradcheck(
            lambda i, t, s, n, rows=rows: loss(i, t, logit_scale=s, negative_text=n, negative_mask=MASK, rows=rows)[0],
            batch(scale=3.0),
        )


@LOSSES
def test_slices_add_up(loss, loops):
    image, text, scale, negative = tensors = batch()
    for extra in ({}, {"negative_text": negative, "negative_mask": MASK}):
        assert_sliced(lambda rows, extra=extra: loss(image, text, logit_scale=scale, rows=rows, **extra), 4, tensors)


@LOSSES
def test_chunks_change_nothing(loss, loops, monkeypatch):
    image, text, scale, negative = tensors = batch(torch.float32, size=11)
    assert_chunked(monkeypatch, lambda: loss(image, text, logit_scale=scale, negative_text=negative)[0], tensors)


@LOSSES
def test_types(loss, loops):
    assert_promoted(
        lambda i, t, s, n: loss(i, t, logit_scale=s, negative_text=n, negative_mask=MASK)[0],
        lambda dtype: batch(dtype, 4.0),
    )
    for dtype in (torch.float16, torch.bfloat16):
        image, text, scale, negative = batch(dtype, 100.0)
        value = loss(image, text, logit_scale=scale, negative_text=negative)[0]
        assert value.isfinite() and value.dtype == torch.float32
        assert all(g.isfinite().all() for g in torch.autograd.grad(value, (image, text, scale, negative)))


@LOSSES
def test_masked_negatives_are_nobody(loss, loops):
    image, text, scale, negative = batch()
    nobody = torch.zeros_like(MASK)
    poisoned = negative.detach() * torch.nan
    masked = loss(image, text, logit_scale=scale, negative_text=poisoned, negative_mask=nobody)[0]
    assert_same(masked, loss(image, text, logit_scale=scale)[0], (image, text, scale))


@LOSSES
def test_order_of_rows_changes_nothing(loss, loops):
    image, text, scale, negative = tensors = batch()
    p = torch.tensor([2, 0, 3, 1])
    first = loss(image, text, logit_scale=scale, negative_text=negative, negative_mask=MASK)[0]
    second = loss(image[p], text[p], logit_scale=scale, negative_text=negative[p], negative_mask=MASK[p])[0]
    assert_same(first, second, tensors)


@LOSSES
def test_one_pair(loss, loops):
    image, text, scale, negative = batch(size=1)
    assert_zero(loss(image, text, logit_scale=scale)[0], (image, text, scale))
    nobody = torch.zeros(1, 3, dtype=torch.bool)
    alone, metrics = loss(image, text, logit_scale=scale, negative_text=negative, negative_mask=nobody)
    assert_zero(alone, (image, text, scale, negative))
    absent = ("hard_negative_accuracy", *(PLAIN_KEYS if loss is dcl_loss else PLAIN_KEYS[2:]))
    assert_metrics_detached(metrics, *PLAIN_KEYS, "hard_negative_accuracy", absent=absent)
    arguments = {"logit_scale": scale, "negative_text": negative, "negative_mask": ~nobody}
    assert_same(loss(image, text, **arguments)[0], loops(image, text, **arguments), (image, text, scale, negative))


@LOSSES
def test_metrics(loss, loops):
    image, text, scale, negative = batch()
    value, metrics = loss(image, text, logit_scale=scale)
    assert_metrics_detached(metrics, *PLAIN_KEYS)
    torch.testing.assert_close((metrics["loss_image_to_text"] + metrics["loss_text_to_image"]) / 2, value.detach())
    s = (image @ text.T).detach()
    right = (s.argmax(1) == torch.arange(4)).double().mean()
    torch.testing.assert_close(metrics["accuracy_image_to_text"], right)
    torch.testing.assert_close(metrics["accuracy_text_to_image"], (s.argmax(0) == torch.arange(4)).double().mean())

    _, metrics = loss(image, text, logit_scale=scale, negative_text=negative, negative_mask=MASK)
    assert_metrics_detached(metrics, *PLAIN_KEYS, "hard_negative_accuracy")
    own = torch.einsum("nd,nkd->nk", image, negative).detach()
    hits = [all(s[i, i] > own[i, k] for k in range(3) if MASK[i, k]) for i in (0, 2, 3)]
    torch.testing.assert_close(metrics["hard_negative_accuracy"], torch.tensor(sum(hits) / 3, dtype=torch.float64))


def test_a_constant_scorer_is_never_right():
    same = unit(1, 5, seed=1).detach().repeat(4, 1)
    _, metrics = info_nce_loss(same, same, logit_scale=torch.tensor(10.0))
    assert metrics["accuracy_image_to_text"] == 0 and metrics["accuracy_text_to_image"] == 0


def test_dcl_is_info_nce_without_its_positive():
    # text = identity basis makes every logit a free variable
    logits = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    basis, scale = torch.eye(4, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    gradient = torch.autograd.grad(dcl_loss(logits, basis, logit_scale=scale)[0], logits)[0]
    # the positive pulls with full weight 1/N, whatever its probability
    torch.testing.assert_close(gradient.diagonal(), torch.full((4,), -1 / 4, dtype=torch.float64))


@LOSSES
def test_scale_may_have_one_dimension(loss, loops):
    image, text, scale, _ = batch()
    assert_same(
        loss(image, text, logit_scale=scale.reshape(1))[0],
        loss(image, text, logit_scale=scale)[0],
        (image, text, scale),
    )


@LOSSES
def test_wrong_shapes_are_named(loss, loops):
    image, text, scale, negative = batch()
    assert_shape_errors(
        loss,
        {"image": image, "text": text, "logit_scale": scale, "negative_text": negative, "negative_mask": MASK},
        {
            "image": image[0],
            "text": text[:3],
            "logit_scale": torch.ones(2),
            "negative_text": negative[:, 0],
            "negative_mask": MASK.float(),
        },
    )
    with pytest.raises(ValueError, match="negative_mask .*without negative_text"):
        loss(image, text, logit_scale=scale, negative_mask=MASK)
    with pytest.raises(ValueError, match="one row"):
        loss(image[:0], text[:0], logit_scale=scale)
