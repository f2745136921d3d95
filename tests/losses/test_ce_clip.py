"""CE-CLIP: its three terms against loops, each alone, masks and weights."""

import pytest
import torch

from hfcomp.losses import ce_clip_loss, info_nce_loss
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
NOBODY = torch.zeros_like(MASK)
KINDS = torch.tensor([[0, 99, 1], [99, 99, 99], [1, 1, 0], [99, 1, 99]])
THRESHOLD = torch.tensor([0.3, 0.6], dtype=torch.float64)
METRICS = (
    "loss_image_to_text",
    "loss_text_to_image",
    "loss_negative_margin",
    "loss_intra_modal",
    "accuracy_image_to_text",
    "accuracy_text_to_image",
    "hard_negative_accuracy",
    "active_negative_margins",
)

OF_NEGATIVES = ("loss_negative_margin", "loss_intra_modal", "hard_negative_accuracy", "active_negative_margins")


def batch(dtype=torch.float64, scale=20.0, size=4):
    return (
        unit(size, 5, seed=1, dtype=dtype),
        unit(size, 5, seed=2, dtype=dtype),
        unit(size, 3, 5, seed=3, dtype=dtype),
        scalar(scale, dtype),
    )


def loss(image, text, negative, scale, kinds=KINDS, mask=MASK, **arguments):
    return ce_clip_loss(
        image,
        text,
        negative,
        logit_scale=scale,
        threshold=THRESHOLD,
        negative_kind=kinds,
        negative_mask=mask,
        **arguments,
    )


def loops(image, text, negative, scale, mask, rank_weight, intra_modal_weight, image_id=None):
    kinds = KINDS.clamp(0, 1)
    return (
        reference.info_nce(
            image, text, logit_scale=scale, negative_text=negative, negative_mask=mask, image_id=image_id
        )
        + rank_weight
        * reference.negative_margin(
            image, text, negative, threshold=THRESHOLD, negative_kind=kinds, negative_mask=mask
        )
        + intra_modal_weight * reference.intra_modal(image, text, negative, logit_scale=scale, negative_mask=mask)
    )


@pytest.mark.parametrize("mask", [MASK, torch.ones_like(MASK), NOBODY], ids=["ragged", "all", "none"])
@pytest.mark.parametrize("weights", [(5.0, 0.3), (0.0, 1.0), (2.0, 0.0)])
def test_equals_loops(mask, weights):
    tensors = batch()
    actual = loss(*tensors, KINDS.clamp(max=1), mask, rank_weight=weights[0], intra_modal_weight=weights[1])[0]
    assert_same(actual, loops(*tensors, mask, *weights), tensors)


def test_defaults_are_the_released_weights():
    tensors = batch()
    # 0.2 on a hinge of logits at scale 100, mean over 4 negatives
    assert_same(loss(*tensors)[0], loss(*tensors, rank_weight=0.2 * 100 / 4, intra_modal_weight=0.3)[0], tensors)


def test_gradcheck():
    for rows in (None, slice(1, 3)):
        assert torch.autograd.gradcheck(lambda *t, rows=rows: loss(*t, rows=rows)[0], batch(scale=3.0))


@pytest.mark.parametrize("mask", [MASK, NOBODY], ids=["ragged", "none"])
def test_slices_add_up(mask):
    tensors = batch()
    assert_sliced(lambda rows: loss(*tensors, mask=mask, rows=rows), 4, tensors)


def test_chunks_change_nothing(monkeypatch):
    tensors = batch(torch.float32, size=11)
    mask = (torch.arange(33) % 4 > 0).reshape(11, 3)
    assert_chunked(monkeypatch, lambda: loss(*tensors, mask.long(), mask)[0], tensors)


def test_types():
    assert_promoted(lambda *tensors: loss(*tensors)[0], lambda dtype: batch(dtype, 4.0))
    for dtype in (torch.float16, torch.bfloat16):
        tensors = batch(dtype, 100.0)
        value = loss(*tensors)[0]
        assert value.isfinite() and all(g.isfinite().all() for g in torch.autograd.grad(value, tensors))


def test_weights_0_are_info_nce_with_negatives():
    image, text, negative, scale = tensors = batch()
    value, metrics = loss(*tensors, rank_weight=0.0, intra_modal_weight=0.0)
    plain, plain_metrics = info_nce_loss(image, text, logit_scale=scale, negative_text=negative, negative_mask=MASK)
    assert_same(value, plain, tensors)
    assert all(metrics[key].equal(metric) for key, metric in plain_metrics.items())


def test_without_a_valid_negative_it_is_plain_info_nce():
    image, text, negative, scale = batch()
    value, metrics = loss(image, text, negative.detach() * torch.nan, scale, mask=NOBODY)
    assert_same(value, info_nce_loss(image, text, logit_scale=scale)[0], (image, text, scale))
    assert_metrics_detached(metrics, *METRICS, absent=OF_NEGATIVES)


def test_masked_negatives_are_nobody():
    image, text, negative, scale = tensors = batch()
    poisoned = torch.where(MASK.unsqueeze(-1), negative, torch.nan)
    assert_same(loss(image, text, poisoned, scale)[0], loss(*tensors)[0], (image, text, scale))


def test_intra_modal_by_hand():
    # cosines: own pair 0.6, text to its negative 0.8; at scale 10 the negative leads by 2 logits
    image, text = (torch.tensor([x], dtype=torch.float64) for x in ([1.0, 0.0], [0.6, 0.8]))
    negative, scale = torch.tensor([[[0.0, 1.0]]], dtype=torch.float64), torch.tensor(10.0, dtype=torch.float64)
    _, metrics = loss(image, text, negative, scale, torch.zeros(1, 1, dtype=torch.long), None)
    torch.testing.assert_close(metrics["loss_intra_modal"], torch.tensor(2.0).double().exp().log1p())


def intra_modal(*tensors):
    first, second = (loss(*tensors, rank_weight=0.0, intra_modal_weight=weight)[0] for weight in (1.0, 0.0))
    return first - second


def test_intra_modal_pulls_the_own_pair_and_pushes_the_texts_apart():
    # the positive has a gradient of its own: without one, texts would only flee and the image stay where it is
    image, text, negative, scale = tensors = batch()
    value = intra_modal(*tensors)
    torch.testing.assert_close(value.detach(), loss(*tensors)[1]["loss_intra_modal"])
    to_image, to_negative = torch.autograd.grad(value, (image, negative))
    pull, push = -(to_image * text).sum(1), (to_negative * text.unsqueeze(1)).sum(-1)
    assert (pull[[0, 2, 3]] > 1e-7).all() and (push[MASK] > 1e-7).all()
    nothing = torch.cat([pull[1:2], push[~MASK]])
    torch.testing.assert_close(nothing, torch.zeros_like(nothing), atol=1e-12, rtol=0)


def test_a_texts_negatives_are_its_own():
    image, text, negative, scale = tensors = batch()
    moved = negative.detach().clone()
    moved[2] = unit(3, 5, seed=9).detach()
    first = torch.autograd.grad(intra_modal(*tensors), text)[0]
    second = torch.autograd.grad(intra_modal(image, text, moved, scale), text)[0]
    torch.testing.assert_close(first[[0, 1, 3]], second[[0, 1, 3]])
    assert not torch.allclose(first[2], second[2])


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0)], ids=["rank", "intra_modal"])
def test_negatives_of_other_rows_leave_a_rows_weight(weights):
    tensors = batch()

    def term(mask):
        given, none = ({"rank_weight": a, "intra_modal_weight": b} for a, b in (weights, (0.0, 0.0)))
        return loss(*tensors, mask=mask, **given)[0] - loss(*tensors, mask=mask, **none)[0]

    alone = [term(MASK & (torch.arange(4) == i).unsqueeze(1)) for i in range(4)]
    assert_same(sum(alone), term(MASK), tensors)
    assert alone[1] == 0 and sum(bool(x > 0) for x in alone) > 1


def test_one_pair():
    tensors = batch(size=1)
    alone, metrics = loss(*tensors, KINDS[:1], NOBODY[:1])
    assert_zero(alone, tensors)
    assert_metrics_detached(
        metrics, *METRICS, absent=(*OF_NEGATIVES, "accuracy_image_to_text", "accuracy_text_to_image")
    )
    assert_same(loss(*tensors, KINDS[:1], MASK[:1])[0], loops(*tensors, MASK[:1], 5.0, 0.3), tensors)


def test_order_of_rows_changes_nothing():
    image, text, negative, scale = tensors = batch()
    p = torch.tensor([2, 0, 3, 1])
    assert_same(loss(*tensors)[0], loss(image[p], text[p], negative[p], scale, KINDS[p], MASK[p])[0], tensors)


def test_order_of_negatives_changes_nothing():
    image, text, negative, scale = tensors = batch()
    p = torch.tensor([1, 2, 0])
    moved = loss(image, text, negative[:, p], scale, KINDS[:, p], MASK[:, p])[0]
    assert_same(loss(*tensors)[0], moved, tensors)


def test_metrics():
    tensors = batch()
    value, metrics = loss(*tensors, rank_weight=3.0, intra_modal_weight=0.7)
    assert_metrics_detached(metrics, *METRICS)
    parts = [metrics[key] for key in METRICS[:4]]
    torch.testing.assert_close((parts[0] + parts[1]) / 2 + 3.0 * parts[2] + 0.7 * parts[3], value.detach())


def test_scale_may_have_one_dimension():
    image, text, negative, scale = tensors = batch()
    assert_same(loss(image, text, negative, scale.reshape(1))[0], loss(*tensors)[0], tensors)


def test_wrong_shapes_are_named():
    image, text, negative, scale = batch()
    good = {
        "image": image,
        "text": text,
        "negative_text": negative,
        "logit_scale": scale,
        "threshold": THRESHOLD,
        "negative_kind": KINDS,
        "negative_mask": MASK,
    }
    wrong = {
        "image": image[0],
        "text": text[:3],
        "negative_text": negative[:, 0],
        "logit_scale": torch.ones(2),
        "threshold": THRESHOLD.unsqueeze(1),
        "negative_kind": KINDS[:, 0],
        "negative_mask": MASK.float(),
    }
    assert_shape_errors(ce_clip_loss, good, wrong)
