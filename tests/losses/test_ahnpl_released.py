"""AHNPL as released: loops over its entries, values by hand, and what its cross-entropy does. 2 seconds."""

import math

import pytest
import torch
import torch.nn.functional as F

from hfcomp.losses import info_nce_loss, negative_margin_loss
from hfcomp.losses._ops import chunks
from hfcomp.losses.ahnpl_released import (
    ahnpl_released_loss,
    logit_margin_loss,
    logit_threshold,
    negative_target_loss,
    shifted_image,
)
from tests import tolerances
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
    value_and_gradients,
)

MASK = torch.tensor([[True, False, True], [False, False, False], [True, True, True], [False, True, False]])
EVERYONE, NOBODY = torch.ones_like(MASK), torch.zeros_like(MASK)
MASKS = pytest.mark.parametrize("mask", [MASK, EVERYONE, NOBODY], ids=["ragged", "all", "none"])
KINDS = torch.tensor([[0, 3, 1], [2, 2, 2], [1, 1, 0], [2, 1, 3]])
THRESHOLD = torch.tensor([4.0, 0.0, 10.0, 0.5], dtype=torch.float64)
METRICS = (
    "loss_image_to_text",
    "loss_text_to_image",
    "loss_textual_target",
    "loss_visual_target",
    "loss_logit_margin",
    "accuracy_image_to_text",
    "accuracy_text_to_image",
    "hard_negative_accuracy",
    "active_negative_margins",
)


def batch(dtype=torch.float64, scale=20.0, size=4):
    return (
        unit(size, 5, seed=1, dtype=dtype),
        unit(size, 5, seed=2, dtype=dtype),
        unit(size, 3, 5, seed=3, dtype=dtype),
        scalar(scale, dtype),
    )


def loss(image, text, negative, scale, mask=MASK, kinds=KINDS, threshold=THRESHOLD, **arguments):
    settings = {"logit_scale": scale, "threshold": threshold, "negative_kind": kinds, "negative_mask": mask}
    return ahnpl_released_loss(image, text, negative, **settings, **arguments)


def target(anchor, negative, scale, mask=MASK, rows=None):
    return negative_target_loss(anchor, negative, logit_scale=scale, negative_mask=mask, rows=rows)


def margin(image, text, negative, scale, mask=MASK, kinds=KINDS, threshold=THRESHOLD, rows=None):
    settings = {"logit_scale": scale, "threshold": threshold, "negative_kind": kinds, "negative_mask": mask}
    return logit_margin_loss(image, text, negative, **settings, rows=rows)


def next_threshold(image, text, negative, scale, mask=MASK, kinds=KINDS, previous=THRESHOLD):
    settings = {"logit_scale": scale, "previous": previous, "negative_kind": kinds, "negative_mask": mask}
    return logit_threshold(image, text, negative, **settings)


def target_loops(anchor, negative, scale, mask, text_id=None, negative_text_id=None):
    size, count = negative.shape[:2]
    flat = [(n, k) for n in range(size) for k in range(count)]
    total = reference.zero(anchor, negative, scale)
    for i in range(size):
        met = [at for at in flat if mask[at] and not reference.is_caption(text_id, negative_text_id, i, *at)]
        logits = {place: scale * (anchor[i] * negative[place]).sum() for place in met}
        if flat[i] in logits:
            total = total + (reference.log_sum(list(logits.values())) - logits[flat[i]]) / size
    return total


def margin_loops(image, text, negative, scale, mask):
    total = reference.zero(image, text, negative, scale)
    for i in range(len(image)):
        for k in range(negative.shape[1]):
            lead = scale * (image[i] * text[i]).sum() - scale * (image[i] * negative[i, k]).sum()
            shortfall = THRESHOLD[KINDS[i, k]] - lead
            if mask[i, k] and shortfall > 0:
                total = total + shortfall / mask.numel()
    return total


def loops(image, text, negative, scale, mask, multimodal_weight, margin_weight, image_id=None):
    shift = torch.stack([negative[:, k] - text for k in range(negative.shape[1])], 1).detach()
    shifted = torch.stack([image + shift[:, k] for k in range(negative.shape[1])], 1)
    return (
        reference.info_nce(
            image, text, logit_scale=scale, negative_text=negative, negative_mask=mask, image_id=image_id
        )
        + multimodal_weight * target_loops(text, negative, scale, mask)
        + multimodal_weight * target_loops(image, shifted, scale, mask)
        + margin_weight * margin_loops(image, text, negative, scale, mask)
    )


# The whole


@MASKS
@pytest.mark.parametrize("weights", [(0.2, 0.2), (0.0, 3.0), (1.0, 0.0)])
def test_equals_loops(mask, weights):
    tensors = batch()
    actual, _ = loss(*tensors, mask, multimodal_weight=weights[0], margin_weight=weights[1])
    assert_same(actual, loops(*tensors, mask, *weights), tensors)


def test_defaults_are_the_released_weights_and_no_mask_means_all_are_valid():
    tensors = batch()
    assert_same(loss(*tensors, None)[0], loops(*tensors, EVERYONE, 0.2, 0.2), tensors)


@pytest.mark.parametrize("changes", [{"mask": NOBODY}, {"multimodal_weight": 0.0, "margin_weight": 0.0}])
def test_without_negatives_or_weights_it_is_info_nce(changes):
    image, text, negative, scale = tensors = batch()
    mask = changes.get("mask", MASK)
    plain = info_nce_loss(image, text, logit_scale=scale, negative_text=negative, negative_mask=mask)[0]
    assert_same(loss(*tensors, **changes)[0], plain, tensors)


def test_gradcheck():
    # not the whole: its shift is a constant to autograd and none to finite differences
    image, _, negative, scale = batch()
    threshold = THRESHOLD.clone().requires_grad_()
    for rows in (None, slice(1, 3)):
        assert torch.autograd.gradcheck(lambda *t, rows=rows: target(*t, rows=rows)[0], (image, negative, scale))
        assert torch.autograd.gradcheck(
            lambda *t, rows=rows: margin(*t[:4], threshold=t[4], rows=rows)[0], (*batch(), threshold)
        )


@MASKS
def test_slices_add_up(mask):
    image, text, negative, scale = tensors = batch()
    assert_sliced(lambda rows: loss(*tensors, mask, rows=rows), 4, tensors)
    assert_sliced(lambda rows: target(text, negative, scale, mask, rows=rows), 4, tensors)
    assert_sliced(lambda rows: margin(*tensors, mask, rows=rows), 4, tensors)


def test_chunks_change_nothing(monkeypatch):
    tensors = batch(torch.float32)
    assert_chunked(monkeypatch, lambda: loss(*tensors)[0], tensors)
    assert chunks.chunk_rows(tensors[0], tensors[2][..., 0].numel()) == 2


def test_types():
    assert_promoted(lambda *tensors: loss(*tensors)[0], batch)


def test_half_types_are_finite_at_scale_100():
    for dtype in (torch.float16, torch.bfloat16):
        tensors = batch(dtype, scale=100.0)
        value, gradients = value_and_gradients(loss(*tensors)[0], tensors)
        assert value.isfinite() and all(g.isfinite().all() for g in gradients)


def test_masked_negatives_are_nobody():
    image, text, negative, scale = tensors = batch()
    poisoned = torch.where(MASK.unsqueeze(-1), negative, torch.nan)
    assert_same(loss(image, text, poisoned, scale)[0], loss(*tensors)[0], (image, text, scale))
    assert next_threshold(image, text, poisoned, scale).equal(next_threshold(*tensors))


def test_metrics():
    image, text, negative, scale = tensors = batch()
    _, metrics = loss(*tensors)
    assert_metrics_detached(metrics, *METRICS)
    expected = {
        "loss_textual_target": target(text, negative, scale)[0],
        "loss_visual_target": target(image, shifted_image(image, text, negative), scale)[0],
        "loss_logit_margin": margin(*tensors)[0],
    }
    for name, value in expected.items():
        torch.testing.assert_close(metrics[name], value.detach())
    assert 0 < metrics["active_negative_margins"] < 1
    assert_metrics_detached(target(text, negative, scale)[1], "loss_negative_target")


# The shift


def test_the_shift_is_added_as_it_is():
    image = torch.tensor([[1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    text = torch.tensor([[0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    negative = torch.tensor([[[0.6, 0.8], [0.0, -1.0]]], dtype=torch.float64, requires_grad=True)
    actual = shifted_image(image, text, negative)
    torch.testing.assert_close(actual, torch.tensor([[[1.6, -0.2], [1.0, -2.0]]], dtype=torch.float64))
    _, (by_image, by_text, by_negative) = value_and_gradients(actual[0, 1, 0], (image, text, negative))
    assert by_image.tolist() == [[1, 0]] and not by_text.any() and not by_negative.any()


def test_the_visual_contrast_reaches_the_images_only():
    image, text, negative, scale = batch()
    value, _ = target(image, shifted_image(image, text, negative), scale)
    _, (by_image, by_text, by_negative) = value_and_gradients(value, (image, text, negative))
    assert by_image.any() and not by_text.any() and not by_negative.any()


# The contrast whose target is a negative


def test_targets_of_two_rows_are_both_negatives_of_the_first():
    anchor = torch.eye(2, dtype=torch.float64)
    negative = torch.tensor([[[1.0, 0.0], [0.6, 0.8]], [[0.0, 1.0], [0.8, 0.6]]], dtype=torch.float64)
    value, _ = target(anchor, negative, torch.tensor(10.0), None)
    # anchor 0 meets 10, 6, 0, 8 and shall find the first; anchor 1 meets 0, 8, 10, 6 and shall find the second
    first = math.log(1 + math.exp(-4) + math.exp(-10) + math.exp(-2))
    second = math.log(1 + math.exp(-8) + math.exp(2) + math.exp(-2))
    torch.testing.assert_close(value.item(), (first + second) / 2)
    only_first = torch.tensor([[True, False], [True, True]])
    # the target of anchor 1 is masked: it adds 0, the mean is over both, and anchor 0 meets one less
    value, _ = target(anchor, negative, torch.tensor(10.0), only_first)
    torch.testing.assert_close(value.item(), math.log(1 + math.exp(-10) + math.exp(-2)) / 2)


def test_lowering_it_draws_an_anchor_to_its_target():
    """What is wrong with it: the target is a negative, of another sample for every anchor but the first."""
    image, text, negative, scale = batch(scale=5.0)
    value, _ = target(text, negative, scale, EVERYONE)
    step = -0.05 * torch.autograd.grad(value, text)[0]

    def similarity(anchor):
        return torch.einsum("id,nkd->ink", F.normalize(anchor, dim=-1), negative).detach()

    before, after = similarity(text), similarity(text + step)
    targets = [(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 1, 0)]
    assert all(after[place] > before[place] for place in targets)


def test_with_one_negative_for_a_row_the_target_is_its_own():
    _, text, negative, scale = batch()
    value, _ = target(text, negative[:, :1], scale, None)
    expected = F.cross_entropy(scale * text @ negative[:, 0].T, torch.arange(4))
    assert_same(value, expected, (text, negative, scale))


def test_a_target_that_is_the_only_valid_negative_costs_nothing():
    anchor, _, negative, scale = tensors = batch()
    only = NOBODY.clone()
    only[0, 2] = True  # entry 2, the target of anchor 2
    assert_zero(target(anchor, negative, scale, only)[0], tensors)


# Margin and thresholds, in logits


def test_the_margin_by_hand():
    image = torch.eye(2, dtype=torch.float64)[:1]
    text = torch.tensor([[0.8, 0.6]], dtype=torch.float64)
    negative = torch.tensor([[[0.6, 0.8], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])
    kinds, threshold = torch.tensor([[0, 1, 0, 1]]), torch.tensor([3.0, 0.5], dtype=torch.float64)
    value, metrics = margin(image, text, negative, torch.tensor(10.0), mask, kinds, threshold)
    # leads of 2, -2 and 8 logits; the masked entry is counted in the mean of four
    torch.testing.assert_close(value.item(), ((3 - 2) + (0.5 + 2) + 0) / 4)
    torch.testing.assert_close(metrics["active_negative_margins"].item(), 2 / 3)


def test_the_margin_grows_with_the_scale_where_the_papers_does_not():
    image, text, negative, _ = batch()
    settings = {"negative_kind": KINDS, "negative_mask": MASK}
    for scale in (1.0, 100.0):
        paper, _ = negative_margin_loss(image, text, negative, threshold=THRESHOLD / scale, **settings)
        actual, _ = margin(image, text, negative, torch.tensor(scale))
        assert_same(actual, scale * paper / 3, (image, text, negative))


def test_thresholds_equal_loops():
    image, text, negative, scale = tensors = [x.detach() for x in batch()]
    own = [float(scale * (image[i] * text[i]).sum()) for i in range(4)]
    for mask in (MASK, EVERYONE, NOBODY):
        actual, expected = next_threshold(*tensors, mask), []
        for kind in range(4):
            places = [(i, k) for i in range(4) for k in range(3) if mask[i, k] and KINDS[i, k] == kind]
            scores = [float(scale * (image[i] * negative[i, k]).sum()) for i, k in places]
            # an absent kind keeps what it had
            expected.append(sum(own) / 4 - sum(scores) / len(scores) if scores else float(THRESHOLD[kind]))
        torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64))
    assert not next_threshold(*batch()).requires_grad


def test_thresholds_take_the_mean_over_all_rows_for_their_own_texts():
    image = torch.eye(2, dtype=torch.float64)
    text = torch.tensor([[0.8, 0.6], [1.0, 0.0]], dtype=torch.float64)
    negative = torch.tensor([[[0.6, 0.8]], [[0.0, 1.0]]], dtype=torch.float64)
    mask, kinds = torch.tensor([[True], [False]]), torch.zeros((2, 1), dtype=torch.long)
    previous = torch.tensor([1.0, 2.0], dtype=torch.float64)
    actual = next_threshold(image, text, negative, torch.tensor(10.0), mask, kinds, previous)
    # the second image, without a negative, scores its text 0; the kind's own row alone would give 8 - 6 = 2
    torch.testing.assert_close(actual, torch.tensor([(8.0 + 0.0) / 2 - 6.0, 2.0], dtype=torch.float64))


def test_an_overflow_does_not_outlive_its_step():
    image, text, negative, scale = (x.detach() for x in batch())
    image[2] = torch.nan
    assert next_threshold(image, text, negative, scale).equal(THRESHOLD)


def test_threshold_types():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        actual, exact = next_threshold(*batch(dtype)), next_threshold(*(x.double() for x in batch(dtype)))
        assert actual.dtype == torch.float32
        # a difference of two logits
        torch.testing.assert_close(actual.double(), exact, rtol=0, atol=2 * tolerances.logit(20, 5))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert next_threshold(*batch(dtype)).equal(actual)


# Errors


def test_wrong_shapes_are_named():
    image, text, negative, scale = batch()
    good = {"image": image, "text": text, "negative_text": negative, "logit_scale": scale, "negative_kind": KINDS}
    wrong = {
        "text": text[:3],
        "negative_text": negative[:, 0],
        "logit_scale": torch.ones(2),
        "negative_kind": KINDS[:, :2],
    }
    assert_shape_errors(logit_threshold, {**good, "previous": THRESHOLD}, {**wrong, "previous": THRESHOLD[None]})
    for function in (logit_margin_loss, ahnpl_released_loss):
        bad = {**wrong, "threshold": THRESHOLD[None], "negative_mask": MASK.float()}
        assert_shape_errors(function, {**good, "threshold": THRESHOLD}, bad)
    triple = {"image": image, "text": text, "negative_text": negative}
    assert_shape_errors(shifted_image, triple, {"text": text[:3], "negative_text": negative[:, 0]})
    pair = {"anchor": image, "negative": negative, "logit_scale": scale}
    wrong = {"anchor": image[0], "negative": negative[:3], "logit_scale": torch.ones(2), "negative_mask": MASK[:3]}
    assert_shape_errors(negative_target_loss, pair, wrong)
    assert_shape_errors(negative_target_loss, pair, {"negative": negative[:, :0]})
