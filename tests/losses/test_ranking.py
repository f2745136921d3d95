"""Ranking above own negatives: loops, masks and kinds, and thresholds that survive every batch."""

import math

import pytest
import torch

from hfcomp.losses import RunningThreshold, adaptive_threshold, negative_margin_loss
from tests import tolerances
from tests.losses import reference
from tests.losses.checks import (
    assert_metrics_detached,
    assert_promoted,
    assert_same,
    assert_shape_errors,
    assert_sliced,
    assert_zero,
    unit,
    value_and_gradients,
)

MASK = torch.tensor([[True, False, True], [False, False, False], [True, True, True], [False, True, False]])
KINDS = torch.tensor([[0, 99, 1], [-7, 99, 99], [1, 1, 0], [99, 3, 99]])  # masked ones are nobody's
THRESHOLD = torch.tensor([0.3, -0.2, 0.5, 2.0], dtype=torch.float64)
NOBODY = torch.zeros_like(MASK)


def batch(dtype=torch.float64, size=4):
    return (
        unit(size, 5, seed=1, dtype=dtype),
        unit(size, 5, seed=2, dtype=dtype),
        unit(size, 3, 5, seed=3, dtype=dtype),
    )


def loss(image, text, negative, threshold=THRESHOLD, kinds=KINDS, mask=MASK, rows=None):
    return negative_margin_loss(
        image, text, negative, threshold=threshold, negative_kind=kinds, negative_mask=mask, rows=rows
    )


def next_threshold(image, text, negative, previous=THRESHOLD, kinds=KINDS, mask=MASK):
    return adaptive_threshold(image, text, negative, previous=previous, negative_kind=kinds, negative_mask=mask)


def test_equals_loops():
    tensors = batch()
    everyone, kinds = torch.ones_like(MASK), KINDS.clamp(0, 3)
    for mask in (MASK, everyone):
        expected = reference.negative_margin(*tensors, threshold=THRESHOLD, negative_kind=kinds, negative_mask=mask)
        assert_same(loss(*tensors, kinds=kinds, mask=mask)[0], expected, tensors)
    assert_same(loss(*tensors, kinds=kinds, mask=None)[0], loss(*tensors, kinds=kinds, mask=everyone)[0], tensors)


def test_gradcheck():
    threshold = THRESHOLD.clone().requires_grad_()
    for rows in (None, slice(1, 3)):
        assert torch.autograd.gradcheck(lambda *t, rows=rows: loss(*t, rows=rows)[0], (*batch(), threshold))


def test_slices_add_up():
    tensors = batch()
    assert_sliced(lambda rows: loss(*tensors, rows=rows), 4, tensors)


def test_types():
    assert_promoted(lambda *tensors: loss(*tensors)[0], batch)


def test_units_are_cosines():
    image = torch.eye(2, dtype=torch.float64)[:1]
    text = torch.tensor([[0.8, 0.6]], dtype=torch.float64)
    negative = torch.tensor([[[0.6, 0.8], [1.0, 0.0]]], dtype=torch.float64)
    kinds, threshold = torch.tensor([[0, 1]]), torch.tensor([0.3, 0.05], dtype=torch.float64)
    value, metrics = loss(image, text, negative, threshold, kinds, None)
    torch.testing.assert_close(value.item(), (0.3 + 0.6 - 0.8) + (0.05 + 1.0 - 0.8))
    assert metrics["active_negative_margins"] == 1
    thresholds = next_threshold(image, text, negative, threshold, kinds, None)
    torch.testing.assert_close(thresholds, torch.tensor([0.2, -0.2], dtype=torch.float64))
    value, metrics = loss(image, text, negative, thresholds - 0.1, kinds, None)
    assert value == 0 and metrics["active_negative_margins"] == 0


def test_a_negative_equal_to_its_text_has_no_gradient_at_threshold_0():
    image, text, _ = batch()
    negative = text.detach().unsqueeze(1).requires_grad_()
    value, _ = loss(image, text, negative, torch.zeros(4, dtype=torch.float64), KINDS[:, :1] * 0, None)
    assert_zero(value, (image, text, negative))


def test_more_negatives_of_one_row_leave_the_others_weight():
    image, text, negative = tensors = batch()
    kinds, high = torch.zeros_like(KINDS), torch.full((1,), 3.0, dtype=torch.float64)
    few, many = MASK.clone(), MASK.clone()
    few[2, 1:] = False
    first = value_and_gradients(loss(*tensors, high, kinds, few)[0], tensors)[1][0]
    second = value_and_gradients(loss(*tensors, high, kinds, many)[0], tensors)[1][0]
    torch.testing.assert_close(first[[0, 3]], second[[0, 3]])
    assert not torch.allclose(first[2], second[2])


def test_negatives_of_other_rows_leave_a_rows_weight():
    image, text, negative = tensors = batch()
    alone = [loss(*tensors, mask=MASK & (torch.arange(4) == i).unsqueeze(1))[0] for i in range(4)]
    assert_same(sum(alone), loss(*tensors)[0], tensors)
    assert alone[1] == 0 and sum(bool(x > 0) for x in alone) > 1
    twice = loss(*(torch.cat([x, x]) for x in tensors), kinds=KINDS.repeat(2, 1), mask=MASK.repeat(2, 1))
    assert_same(twice[0], loss(*tensors)[0], tensors)


def test_masked_negatives_are_nobody():
    image, text, negative = tensors = batch()
    poisoned = torch.where(MASK.unsqueeze(-1), negative, torch.nan)
    assert_same(loss(image, text, poisoned)[0], loss(*tensors)[0], (image, text))
    value, metrics = loss(image, text, negative.detach() * torch.nan, mask=NOBODY)
    assert_zero(value, (image, text))
    assert_metrics_detached(metrics, "loss_negative_margin", "active_negative_margins", absent=metrics)


def test_order_of_rows_changes_nothing():
    image, text, negative = tensors = batch()
    p = torch.tensor([2, 0, 3, 1])
    moved = loss(image[p], text[p], negative[p], kinds=KINDS[p], mask=MASK[p])
    assert_same(loss(*tensors)[0], moved[0], tensors)


def test_metrics():
    image, text, negative = tensors = batch()
    value, metrics = loss(*tensors)
    assert_metrics_detached(metrics, "loss_negative_margin", "active_negative_margins")
    torch.testing.assert_close(metrics["loss_negative_margin"], value.detach())
    lead = ((image * text).sum(-1, keepdim=True) - torch.einsum("nd,nkd->nk", image, negative)).detach()
    within = [bool(lead[i, k] < THRESHOLD[KINDS[i, k]]) for i in range(4) for k in range(3) if MASK[i, k]]
    assert 0 < sum(within) < len(within)
    torch.testing.assert_close(metrics["active_negative_margins"].item(), sum(within) / len(within))


def test_wrong_shapes_are_named():
    image, text, negative = batch()
    good = {"image": image, "text": text, "negative_text": negative, "negative_kind": KINDS, "negative_mask": MASK}
    wrong = {
        "text": text[:3],
        "negative_text": negative[:, 0],
        "negative_kind": KINDS[:, :2],
        "negative_mask": MASK.float(),
    }
    bad = {"threshold": THRESHOLD.unsqueeze(0), **wrong}
    assert_shape_errors(negative_margin_loss, {**good, "threshold": THRESHOLD}, bad)
    bad = {"previous": THRESHOLD.unsqueeze(0), **wrong}
    assert_shape_errors(adaptive_threshold, {**good, "previous": THRESHOLD}, bad)
    assert_shape_errors(negative_margin_loss, good, {"threshold": THRESHOLD[:0]})
    with pytest.raises(ValueError, match="negative_kind .*torch.int32.*torch.long"):
        loss(image, text, negative, kinds=KINDS.int())


def test_threshold_equals_loops():
    tensors = batch()
    arguments = {"previous": THRESHOLD, "negative_kind": KINDS, "negative_mask": MASK}
    expected = reference.adaptive_threshold(*tensors, **arguments)
    thresholds = next_threshold(*tensors)
    assert not thresholds.requires_grad
    torch.testing.assert_close(thresholds, torch.tensor(expected, dtype=torch.float64))
    assert thresholds[2] == THRESHOLD[2]  # no negative of kind 2 in the batch
    p = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(next_threshold(*(x[p] for x in tensors), kinds=KINDS[p], mask=MASK[p]), thresholds)


def test_threshold_survives_every_batch():
    image, text, negative = (x.detach() for x in batch())
    poisoned = torch.where(MASK.unsqueeze(-1), negative, torch.nan)
    torch.testing.assert_close(next_threshold(image, text, poisoned), next_threshold(image, text, negative))
    assert next_threshold(image, text, negative * torch.nan, mask=NOBODY).equal(THRESHOLD)
    # an overflow in row 2 must not outlive its step: kinds 0 and 1 occur there, kind 3 does not
    overflow = image.clone()
    overflow[2] = torch.nan
    thresholds = next_threshold(overflow, text, negative)
    assert thresholds[:3].equal(THRESHOLD[:3]) and thresholds[3] == next_threshold(image, text, negative)[3]


def test_threshold_types():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        thresholds, exact = next_threshold(*batch(dtype)), next_threshold(*(x.double() for x in batch(dtype)))
        assert thresholds.dtype == torch.float32
        # a difference of two cosines, and thresholds of up to 2
        torch.testing.assert_close(thresholds.double(), exact, rtol=0, atol=2 * tolerances.rounding(5 + 1))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert next_threshold(*batch(dtype)).equal(thresholds)


def test_the_threshold_is_the_mean_lead_so_a_batch_just_meets_it_on_average():
    image, text, negative = (x.detach() for x in batch())
    kinds, start = torch.zeros_like(KINDS), torch.zeros(1, dtype=torch.float64)
    thresholds = next_threshold(image, text, negative, start, kinds, None)
    lead = (image * text).sum(-1, keepdim=True) - torch.einsum("nd,nkd->nk", image, negative)
    torch.testing.assert_close((thresholds - lead).mean().item(), 0.0, atol=1e-12, rtol=0)


def test_running_threshold():
    state = RunningThreshold(3, maximum=0.1)
    before = state()
    assert before.tolist() == [0, 0, 0] and not before.requires_grad
    state.update(torch.tensor([0.05, 0.5, -0.3], dtype=torch.float64))
    assert before.tolist() == [0, 0, 0]
    torch.testing.assert_close(state(), torch.tensor([0.05, 0.1, 0.0]))
    state.update(torch.tensor([math.nan, 0.02, math.inf]))
    torch.testing.assert_close(state(), torch.tensor([0.05, 0.02, 0.1]))
    copy = RunningThreshold(3, maximum=0.1)
    copy.load_state_dict(state.state_dict())
    assert copy().equal(state()) and not list(state.parameters())


def test_running_threshold_without_bounds():
    state = RunningThreshold(3, minimum=-math.inf, maximum=math.inf)
    assert state().tolist() == [0, 0, 0]
    state.update(torch.tensor([-0.25, 0.5, 12.0]))
    assert state().tolist() == [-0.25, 0.5, 12.0]
    # one broken step must not outlive itself
    state.update(torch.tensor([math.nan, math.inf, -math.inf]))
    assert state().tolist() == [-0.25, 0.5, 12.0]


def test_running_threshold_keeps_its_minimum():
    state = RunningThreshold(2, minimum=0.25, maximum=0.5)
    assert state().tolist() == [0.25, 0.25]
    state.update(torch.tensor([-math.inf, 0.375]))
    assert state().tolist() == [0.25, 0.375]
    low = RunningThreshold(2, minimum=-0.25, maximum=0.5)
    assert low().tolist() == [0, 0]
    low.update(torch.tensor([-1.0, 1.0]))
    assert low().tolist() == [-0.25, 0.5]


def test_an_update_between_forward_and_backward_is_allowed():
    image, text, negative = batch()
    state = RunningThreshold(4, maximum=math.inf).double()
    value, _ = loss(image, text, negative, state())
    state.update(next_threshold(image, text, negative, state()))
    value.backward()
    assert image.grad.isfinite().all() and state().abs().sum() > 0


def test_wrong_settings():
    with pytest.raises(ValueError, match="kinds: found 0,.* 1"):
        RunningThreshold(0, maximum=1.0)
    for maximum in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="maximum: found .*above 0"):
            RunningThreshold(2, maximum=maximum)
    for minimum, maximum in ((0.6, 0.5), (math.nan, 0.5), (math.inf, math.inf)):
        with pytest.raises(ValueError, match="minimum: found .*, .*at most maximum"):
            RunningThreshold(2, minimum=minimum, maximum=maximum)
    with pytest.raises(ValueError, match="value has shape"):
        RunningThreshold(2, maximum=1.0).update(torch.zeros(3))
