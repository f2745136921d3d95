"""Own hard negatives in place of other texts: which logits move, and the checks of every loss."""

import pytest
import torch

from hfcomp.losses import info_nce_loss, replaced_negative_loss
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

SLOTS = torch.tensor([[1, 3], [2, -1], [-1, -1], [0, 1], [3, 0]])


def batch(dtype=torch.float64, scale=20.0, size=5):
    return (
        unit(size, 4, seed=1, dtype=dtype),
        unit(size, 4, seed=2, dtype=dtype),
        unit(size, 2, 4, seed=3, dtype=dtype),
        scalar(scale, dtype),
    )


def loss(image, text, negative, scale, slots=SLOTS, rows=None):
    return replaced_negative_loss(image, text, negative, logit_scale=scale, slots=slots, rows=rows)


def test_equals_loops():
    tensors = image, text, negative, scale = batch()
    expected = reference.replaced_negative(image, text, negative, logit_scale=scale, slots=SLOTS)
    assert_same(loss(*tensors)[0], expected, tensors)


def test_gradcheck():
    assert torch.autograd.gradcheck(lambda *tensors: loss(*tensors)[0], batch(scale=3.0))


def test_slices_add_up():
    tensors = batch()
    assert_sliced(lambda rows: loss(*tensors, rows=rows), 5, tensors)


def test_chunks_change_nothing(monkeypatch):
    tensors = batch(torch.float32, size=11)
    slots = torch.stack([(torch.arange(11) + 4) % 11, torch.full((11,), -1)], 1)
    assert_chunked(monkeypatch, lambda: loss(*tensors, slots=slots)[0], tensors)


def test_types():
    assert_promoted(lambda *tensors: loss(*tensors)[0], lambda dtype: batch(dtype, 4.0))
    for dtype in (torch.float16, torch.bfloat16):
        tensors = batch(dtype, 100.0)
        value = loss(*tensors)[0]
        assert value.isfinite() and all(g.isfinite().all() for g in torch.autograd.grad(value, tensors))


def test_masked_slots_leave_plain_info_nce():
    image, text, negative, scale = batch()
    masked = loss(image, text, negative.detach() * torch.nan, scale, torch.full_like(SLOTS, -1))
    assert_same(masked[0], info_nce_loss(image, text, logit_scale=scale)[0], (image, text, scale))
    assert masked[1]["hard_negative_accuracy"].isnan()


def test_a_negative_equal_to_the_text_it_replaces_changes_nothing():
    image, text, _, scale = batch()
    negative = text[SLOTS.clamp(min=0)]
    assert_same(
        loss(image, text, negative, scale)[0], info_nce_loss(image, text, logit_scale=scale)[0], (image, text, scale)
    )


def test_replaced_texts_get_no_push_from_their_row():
    # image = identity basis: the gradient of text j has image i's share in coordinate i
    basis, text = torch.eye(5, dtype=torch.float64), unit(5, 5, seed=4)
    negative, scale = unit(5, 2, 5, seed=5), torch.tensor(1.0, dtype=torch.float64)
    slots = torch.tensor([[2, -1]] + [[-1, -1]] * 4)
    replaced = torch.autograd.grad(loss(basis, text, negative, scale, slots)[0], (text, negative))
    backward_only = torch.softmax(text[2], 0)[0] / 10
    torch.testing.assert_close(replaced[0][2, 0], backward_only.detach())
    assert replaced[1][0, 0, 0] > 0 and (replaced[1][1:] == 0).all()


def test_order_of_rows_changes_nothing():
    tensors = image, text, negative, scale = batch()
    p = torch.tensor([2, 0, 4, 1, 3])
    moved = torch.where(SLOTS[p] >= 0, p.argsort()[SLOTS[p].clamp(min=0)], -1)
    assert_same(loss(*tensors)[0], loss(image[p], text[p], negative[p], scale, moved)[0], tensors)


def test_one_pair():
    tensors = batch(size=1)
    assert_zero(loss(*tensors, slots=torch.tensor([[-1, -1]]))[0], tensors)


def test_metrics():
    image, text, negative, scale = tensors = batch()
    value, metrics = loss(*tensors)
    assert_metrics_detached(
        metrics,
        "loss_image_to_text",
        "loss_text_to_image",
        "accuracy_image_to_text",
        "accuracy_text_to_image",
        "hard_negative_accuracy",
    )
    torch.testing.assert_close((metrics["loss_image_to_text"] + metrics["loss_text_to_image"]) / 2, value.detach())
    s, own = (image @ text.T).detach(), torch.einsum("nd,nkd->nk", image, negative).detach()
    for i in range(5):
        for k in range(2):
            if SLOTS[i, k] >= 0:
                s[i, SLOTS[i, k]] = own[i, k]
    right = (s.argmax(1) == torch.arange(5)).double().mean()
    torch.testing.assert_close(metrics["accuracy_image_to_text"], right)
    hits = [all(s[i, i] > own[i, k] for k in range(2) if SLOTS[i, k] >= 0) for i in (0, 1, 3, 4)]
    torch.testing.assert_close(metrics["hard_negative_accuracy"], torch.tensor(sum(hits) / 4, dtype=torch.float64))


def test_wrong_shapes_are_named():
    image, text, negative, scale = batch()
    good = {"image": image, "text": text, "negative_text": negative, "logit_scale": scale, "slots": SLOTS}
    wrong = {
        "text": text[:, :2],
        "negative_text": negative[:, 0],
        "logit_scale": torch.ones(1, 1),
        "slots": SLOTS[:, :1],
    }
    assert_shape_errors(replaced_negative_loss, good, wrong)
    with pytest.raises(ValueError, match="slots .*torch.int32.*torch.long"):
        replaced_negative_loss(**{**good, "slots": SLOTS.int()})
