"""AHNPL: the perturbation and every term against loops, units by hand, masks, balance, the margin's gradient."""

import math

import pytest
import torch

from hfcomp.losses import (
    ahnpl_loss,
    info_nce_loss,
    multimodal_hard_negative_loss,
    negative_margin_loss,
    perturb_image,
    positive_margin_loss,
)
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
KINDS = torch.tensor([[0, 99, 1], [99, 99, 99], [1, 1, 0], [99, 1, 99]])  # masked ones are nobody's
THRESHOLD = torch.tensor([0.3, 0.6], dtype=torch.float64)
WEIGHTS = ("multimodal_weight", "positive_margin_weight", "negative_margin_weight")
MULTIMODAL = ("loss_visual_negative", "loss_textual_negative")
POSITIVE = ("loss_positive_margin", "active_positive_margins")
METRICS = (
    "loss_image_to_text",
    "loss_text_to_image",
    "accuracy_image_to_text",
    "accuracy_text_to_image",
    "hard_negative_accuracy",
    *MULTIMODAL,
    *POSITIVE,
    "loss_negative_margin",
    "active_negative_margins",
)

OF_NEGATIVES = (*MULTIMODAL, "hard_negative_accuracy", "loss_negative_margin", "active_negative_margins")


def batch(dtype=torch.float64, size=4):
    """Images, texts, negative images, negative texts."""
    sizes = ((size, 5), (size, 5), (size, 3, 5), (size, 3, 5))
    return tuple(unit(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(sizes, start=1))


def full_batch(dtype=torch.float64, size=4, scale=20.0, margin=0.1):
    return *batch(dtype, size), scalar(scale, dtype), scalar(margin, dtype)


def multimodal(*tensors, mask=MASK, rows=None):
    return multimodal_hard_negative_loss(*tensors, negative_mask=mask, rows=rows)


def total(image, text, negative_image, negative_text, scale, margin, kinds=KINDS, mask=MASK, **arguments):
    return ahnpl_loss(
        image,
        text,
        negative_image,
        negative_text,
        logit_scale=scale,
        margin=margin,
        threshold=THRESHOLD,
        negative_kind=kinds,
        negative_mask=mask,
        **arguments,
    )


def weighted_total(tensors, weights, **arguments):
    return total(*tensors, **dict(zip(WEIGHTS, weights, strict=True)), **arguments)


def plane(*degrees):
    """Unit vectors in the plane, [len(degrees), 2]."""
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=-1)


def test_perturbed_images_equal_loops():
    image, text, _, negative = tensors = batch()
    weights = unit(4, 3, 5, seed=9).detach()
    actual, expected = perturb_image(image, text, negative), reference.perturb(image, text, negative)
    torch.testing.assert_close(actual, expected)
    assert_same((actual * weights).sum(), (expected * weights).sum(), tensors)
    torch.testing.assert_close(actual.detach().norm(dim=-1), torch.ones(4, 3, dtype=torch.float64))


def test_perturbed_image_by_hand():
    # 90 degrees, moved as 0 degrees would have to move to reach 90 and 180
    moved = perturb_image(plane(90), plane(0), plane(90, 180).unsqueeze(0))
    expected = [[-1 / math.sqrt(5), 2 / math.sqrt(5)], [-2 / math.sqrt(5), 1 / math.sqrt(5)]]
    torch.testing.assert_close(moved, torch.tensor([expected], dtype=torch.float64))


def test_a_negative_equal_to_its_text_leaves_the_image():
    image, text, *_ = batch()
    torch.testing.assert_close(perturb_image(image, text, text.unsqueeze(1)), image.unsqueeze(1))


def test_texts_without_gradient_leave_the_images_gradient():
    image, text, _, negative = batch()
    weights = unit(4, 3, 5, seed=9).detach()
    live = (perturb_image(image, text, negative) * weights).sum()
    assert all((gradient != 0).any() for gradient in torch.autograd.grad(live, (text, negative), retain_graph=True))
    frozen = (perturb_image(image, text.detach(), negative.detach()) * weights).sum()
    assert_same(live, frozen, (image,))


def test_perturbed_images_of_zeros_are_finite():
    # masked rows hold zeros: the sum is minus the text, or nothing where image and text agree
    image, text, _, _ = batch(torch.float32)
    zeros = torch.zeros(4, 3, 5, requires_grad=True)
    for vector, tensors in ((text, (text, zeros)), (image, (image, text, zeros))):
        value = perturb_image(vector, text, zeros)
        assert value.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(value.sum(), tensors))


def test_a_masked_negative_of_zeros_has_no_gradient_through_the_perturbation():
    for dtype in (torch.float16, torch.float32, torch.float64):
        _, text, _, negative = batch(dtype)
        image = text.detach().clone().requires_grad_()
        zeros = torch.where(MASK.unsqueeze(-1), negative.detach(), 0).requires_grad_()
        tensors = (image, text, zeros)
        value, gradients = value_and_gradients(
            multimodal(image, text, perturb_image(image, text, zeros), zeros)[0], tensors
        )
        assert value.isfinite() and all(gradient.isfinite().all() for gradient in gradients)
        assert (gradients[2][~MASK] == 0).all() and (gradients[2][MASK] != 0).any()


def test_types_of_the_perturbation():
    weights = unit(4, 3, 5, seed=9).detach()

    def value(image, text, negative):
        moved = perturb_image(image, text, negative)
        return (moved * weights.to(moved.dtype)).sum()

    assert_promoted(value, lambda dtype: (batch(dtype)[0], batch(dtype)[1], batch(dtype)[3]))


@pytest.mark.parametrize("mask", [MASK, EVERYONE, NOBODY], ids=["ragged", "all", "none"])
def test_multimodal_equals_loops(mask):
    tensors = batch()
    expected = reference.multimodal_hard_negative(*tensors, negative_mask=mask)
    assert_same(multimodal(*tensors, mask=mask)[0], expected, tensors)


def test_without_a_mask_all_negatives_count():
    tensors = full_batch()
    assert_same(multimodal(*tensors[:4], mask=None)[0], multimodal(*tensors[:4], mask=EVERYONE)[0], tensors[:4])
    kinds = KINDS.clamp(max=1)
    assert_same(total(*tensors, kinds, None)[0], total(*tensors, kinds, EVERYONE)[0], tensors)


def test_multimodal_units_are_cosines():
    # one negative each: the log-sum-exp is the cosine itself
    image, text = plane(0), plane(90)
    negatives = (plane(60).unsqueeze(0), plane(210).unsqueeze(0))
    value, metrics = multimodal(image, text, *negatives, mask=None)
    torch.testing.assert_close([float(metrics[key]) for key in MULTIMODAL], [0.5, -0.5])
    torch.testing.assert_close(value.item(), 0.0)
    # two: cosines 0.5 and -1 with the image, both 0 with the text
    negatives = (plane(60, 180).unsqueeze(0), plane(0, 180).unsqueeze(0))
    _, metrics = multimodal(image, text, *negatives, mask=None)
    expected = [math.log(math.exp(0.5) + math.exp(-1)), math.log(2)]
    torch.testing.assert_close([float(metrics[key]) for key in MULTIMODAL], expected)


def test_multimodal_pushes_a_rows_own_negatives_only():
    image, text, *negatives = tensors = batch()
    to_visual, to_textual = torch.autograd.grad(multimodal(*tensors)[0], negatives)
    for gradient, anchor in ((to_visual, image), (to_textual, text)):
        # a multiple of the own anchor, whose shares of a row add up to 1 over N
        share = (gradient * anchor.unsqueeze(1)).sum(-1)
        torch.testing.assert_close(gradient, share.unsqueeze(-1) * anchor.unsqueeze(1))
        assert (share[MASK] > 0).all() and (share[~MASK] == 0).all()
        torch.testing.assert_close(share.sum(1), MASK.any(1).double() / 4)


@pytest.mark.parametrize("mask", [MASK, NOBODY], ids=["ragged", "none"])
def test_multimodal_slices_add_up(mask):
    tensors = batch()
    assert_sliced(lambda rows: multimodal(*tensors, mask=mask, rows=rows), 4, tensors)


def test_multimodal_types():
    assert_promoted(lambda *tensors: multimodal(*tensors)[0], batch)


def test_masked_negatives_are_nobody():
    image, text, *negatives = tensors = batch()
    poisoned = [torch.where(MASK.unsqueeze(-1), x, torch.nan) for x in negatives]
    assert_same(multimodal(image, text, *poisoned)[0], multimodal(*tensors)[0], (image, text))
    scale, margin = scalar(20.0), scalar(0.1)
    actual, expected = total(image, text, *poisoned, scale, margin)[0], total(*tensors, scale, margin)[0]
    assert_same(actual, expected, (image, text, scale, margin))


def test_without_a_valid_negative_the_multimodal_loss_is_0():
    image, text, *negatives = batch()
    value, metrics = multimodal(image, text, *(x.detach() * torch.nan for x in negatives), mask=NOBODY)
    assert_zero(value, (image, text))
    assert_metrics_detached(metrics, *MULTIMODAL, absent=MULTIMODAL)


@pytest.mark.parametrize("margin", [-2.0, 0.1, 2.0])
def test_positive_margin_equals_loops(margin):
    image, text, *_ = batch()
    tensors = (image, text, scalar(margin))
    actual, metrics = positive_margin_loss(image, text, margin=tensors[2])
    assert_same(actual, reference.positive_margin(image, text, margin=tensors[2]), tensors)
    assert_metrics_detached(metrics, *POSITIVE)
    assert (metrics["active_positive_margins"] > 0) == (margin > -1)


def test_positive_margin_units_are_cosines():
    text = torch.tensor([[0.8, 0.6], [0.6, 0.8]], dtype=torch.float64)
    image = plane(0, 0)
    value, metrics = positive_margin_loss(image, text, margin=scalar(0.75))
    torch.testing.assert_close(value.item(), 0.15 / 2)
    assert metrics["active_positive_margins"] == 0.5
    # a pair at exactly the margin is not active
    at = scalar(0.6)
    value, metrics = positive_margin_loss(image, text, margin=at)
    assert_zero(value, (at,))
    assert metrics["active_positive_margins"] == 0


@pytest.mark.parametrize("value", [-2.0, 0.1, 2.0])
def test_the_margins_gradient_is_the_active_share(value):
    image, text, *_ = batch()
    active = sum(float(cosine) < value for cosine in (image * text).sum(-1).detach()) / 4
    assert active == {-2.0: 0, 2.0: 1}.get(value, active)
    margin = scalar(value)
    loss, metrics = positive_margin_loss(image, text, margin=margin)
    assert torch.autograd.grad(loss, margin)[0] == active == metrics["active_positive_margins"]
    # no other term of the whole loss reaches it
    tensors = full_batch(margin=value)
    assert torch.autograd.grad(total(*tensors)[0], tensors[-1])[0] == active


def test_positive_margin_slices_add_up():
    image, text, *_ = batch()
    tensors = (image, text, scalar(0.1))
    assert_sliced(lambda rows: positive_margin_loss(image, text, margin=tensors[2], rows=rows), 4, tensors)


def test_positive_margin_types():
    assert_promoted(
        lambda image, text, margin: positive_margin_loss(image, text, margin=margin)[0],
        lambda dtype: (*batch(dtype)[:2], scalar(0.5, dtype)),
    )


@pytest.mark.parametrize("mask", [MASK, EVERYONE, NOBODY], ids=["ragged", "all", "none"])
def test_total_equals_loops(mask):
    *embeddings, scale, margin = tensors = full_batch()
    kinds = KINDS.clamp(max=1)
    own = {"threshold": THRESHOLD, "negative_kind": kinds, "negative_mask": mask}
    expected = reference.ahnpl(*embeddings, logit_scale=scale, margin=margin, **own)
    assert_same(total(*tensors, kinds, mask)[0], expected, tensors)


@pytest.mark.parametrize("weights", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.5, 2.0, 3.0)])
def test_total_is_twice_info_nce_and_the_weighted_terms(weights):
    image, text, negative_image, negative_text, scale, margin = tensors = full_batch()
    negatives = {"negative_mask": MASK}
    plain, plain_metrics = info_nce_loss(image, text, logit_scale=scale, negative_text=negative_text, **negatives)
    terms = (
        multimodal_hard_negative_loss(image, text, negative_image, negative_text, **negatives),
        positive_margin_loss(image, text, margin=margin),
        negative_margin_loss(image, text, negative_text, threshold=THRESHOLD, negative_kind=KINDS, **negatives),
    )
    actual, metrics = weighted_total(tensors, weights)
    expected = 2 * plain + sum(weight * term for weight, (term, _) in zip(weights, terms, strict=True))
    assert_same(actual, expected, tensors)
    if not any(weights):
        assert actual == 2 * plain
    assert_metrics_detached(metrics, *METRICS)
    parts = {key: value for part in (plain_metrics, *(m for _, m in terms)) for key, value in part.items()}
    assert all(metrics[key].equal(value) for key, value in parts.items())
    default = total(*tensors)[0]
    assert torch.equal(actual, default) is (weights == (1.0, 1.0, 1.0))


def test_gradcheck():
    image, text, negative_image, negative_text, scale, margin = tensors = full_batch(size=2, scale=3.0)
    kinds, mask = KINDS[1:3], MASK[1:3]
    functions = (
        (perturb_image, (image, text, negative_text)),
        (lambda *t: multimodal(*t, mask=mask)[0], (image, text, negative_image, negative_text)),
        (lambda x, y, a: positive_margin_loss(x, y, margin=a)[0], (image, text, margin)),
        (lambda *t: total(*t, kinds, mask)[0], tensors),
        (lambda *t: total(*t, kinds, mask, rows=slice(1, 2))[0], tensors),
    )
    for function, inputs in functions:
        assert torch.autograd.gradcheck(function, inputs)


@pytest.mark.parametrize("mask", [MASK, NOBODY], ids=["ragged", "none"])
def test_slices_add_up(mask):
    tensors = full_batch()
    assert_sliced(lambda rows: total(*tensors, mask=mask, rows=rows), 4, tensors)


def test_chunks_change_nothing(monkeypatch):
    tensors = full_batch(torch.float32, size=11)
    mask = (torch.arange(33) % 4 > 0).reshape(11, 3)
    assert_chunked(monkeypatch, lambda: total(*tensors, mask.long(), mask)[0], tensors)


def test_types():
    assert_promoted(lambda *tensors: total(*tensors)[0], lambda dtype: full_batch(dtype, scale=4.0))


@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0)], ids=["multimodal", "negative_margin"])
def test_negatives_of_other_rows_leave_a_rows_weight(weights):
    tensors = full_batch()

    def term(mask):
        return weighted_total(tensors, weights, mask=mask)[0] - weighted_total(tensors, (0.0, 0.0, 0.0), mask=mask)[0]

    alone = [term(MASK & (torch.arange(4) == i).unsqueeze(1)) for i in range(4)]
    assert alone[1] == 0 and sum(bool(x != 0) for x in alone) > 1
    assert_same(sum(alone), term(MASK), tensors)


def test_rows_given_twice_change_no_term():
    image, text, *negatives, _, margin = full_batch()
    tensors = (image, text, *negatives, margin)
    once = multimodal(image, text, *negatives)[0] + positive_margin_loss(image, text, margin=margin)[0]
    image, text, *negatives = (torch.cat([x, x]) for x in tensors[:-1])
    mask = MASK.repeat(2, 1)
    twice = multimodal(image, text, *negatives, mask=mask)[0] + positive_margin_loss(image, text, margin=margin)[0]
    assert_same(twice, once, tensors)


def test_without_a_valid_negative_the_pairs_remain():
    image, text, negative_image, negative_text, scale, margin = full_batch()
    nothing = (x.detach() * torch.nan for x in (negative_image, negative_text))
    actual, metrics = total(image, text, *nothing, scale, margin, mask=NOBODY)
    expected = (
        2 * info_nce_loss(image, text, logit_scale=scale)[0] + positive_margin_loss(image, text, margin=margin)[0]
    )
    assert_same(actual, expected, (image, text, scale, margin))
    assert_metrics_detached(metrics, *METRICS, absent=OF_NEGATIVES)


def test_one_pair():
    tensors = full_batch(size=1, margin=-2.0)
    alone, metrics = total(*tensors, KINDS[:1], NOBODY[:1])
    assert_zero(alone, tensors)
    assert_metrics_detached(
        metrics, *METRICS, absent=(*OF_NEGATIVES, "accuracy_image_to_text", "accuracy_text_to_image")
    )


def test_order_of_rows_changes_nothing():
    *embeddings, scale, margin = tensors = full_batch()
    p = torch.tensor([2, 0, 3, 1])
    moved = total(*(x[p] for x in embeddings), scale, margin, KINDS[p], MASK[p])[0]
    assert_same(moved, total(*tensors)[0], tensors)


def test_order_of_negatives_changes_nothing():
    image, text, *negatives, scale, margin = tensors = full_batch()
    p = torch.tensor([1, 2, 0])
    moved = total(image, text, *(x[:, p] for x in negatives), scale, margin, KINDS[:, p], MASK[:, p])[0]
    assert_same(moved, total(*tensors)[0], tensors)


def test_scalars_may_have_one_dimension():
    *embeddings, scale, margin = tensors = full_batch()
    assert_same(total(*embeddings, scale.reshape(1), margin.reshape(1))[0], total(*tensors)[0], tensors)


def test_wrong_shapes_are_named():
    image, text, negative_image, negative_text, scale, margin = full_batch()
    pair = {"image": image, "text": text}
    wrong = {"image": image[0], "text": text[:3]}
    assert_shape_errors(positive_margin_loss, {**pair, "margin": margin}, {**wrong, "margin": torch.ones(2)})
    wrong |= {"negative_text": negative_text[:, 0]}
    assert_shape_errors(perturb_image, {**pair, "negative_text": negative_text}, wrong)
    assert_shape_errors(perturb_image, pair, {"negative_text": negative_text[:, :0]})
    own = {**pair, "negative_image": negative_image, "negative_text": negative_text, "negative_mask": MASK}
    wrong |= {"negative_image": negative_image[:, :2], "negative_mask": MASK.float()}
    assert_shape_errors(multimodal_hard_negative_loss, own, wrong)
    own |= {"logit_scale": scale, "margin": margin, "threshold": THRESHOLD, "negative_kind": KINDS}
    wrong |= {
        "logit_scale": torch.ones(2),
        "margin": torch.ones(1, 1),
        "threshold": THRESHOLD.unsqueeze(1),
        "negative_kind": KINDS.int(),
    }
    assert_shape_errors(ahnpl_loss, own, wrong)
