"""HierarCaps' radial entailment: loops over its terms, angles by hand, chains of unequal length. Under 1 second."""

import math

import pytest
import torch

from hfcomp.losses import radial_entailment_loss
from hfcomp.losses.entailment import angles
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

WEIGHTS = {"entailment_weight": 1.5, "hardest_weight": 0.7, "pullback_weight": 10.0}
# a whole chain, one of two texts, one of one, one without a negative at its second text
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]]).bool()
NEGATIVE_MASK = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0]]).bool()
MASKED = {"mask": MASK, "negative_mask": NEGATIVE_MASK}
NOTHING = {"mask": torch.zeros_like(MASK), "negative_mask": torch.zeros_like(MASK)}
ALL = {"mask": torch.ones_like(MASK), "negative_mask": torch.ones_like(MASK)}
MASKS = pytest.mark.parametrize("masks", [MASKED, ALL, NOTHING], ids=["ragged", "all", "none"])
METRICS = ("loss_entailment", "loss_hardest", "loss_pullback", "angle_entailed", "angle_contradicted")


def batch(dtype=torch.float64, chains=4, levels=4, width=6):
    shape = chains, levels, width
    texts = [unit(*shape, seed=seed, dtype=dtype) for seed in (1, 2)]
    start = [unit(*shape, seed=seed, dtype=dtype) for seed in (4, 5)]
    return *texts, unit(width, seed=3, dtype=dtype), *start


def at(*degrees):
    """Unit vectors in the plane."""
    turned = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([turned.cos(), turned.sin()], dim=-1)


def dot(a, b):
    return (a * b).sum()


def exterior(root, parent, child):
    """The angle at the parent, by the arc cosine."""
    outward, onward = parent - root, child - parent
    return torch.arccos(dot(outward, onward) / (dot(outward, outward) * dot(onward, onward)).sqrt())


def loops(text, negative, root, start, negative_start, mask, negative_mask):
    """Each term as the released code has it, but for the masks."""
    triplets, pullback = [], []
    for n in range(len(text)):
        for k in range(text.shape[1]):
            if mask[n, k]:
                pullback.append((1 - dot(text[n, k], start[n, k])) / 2)
            if negative_mask[n, k]:
                pullback.append((1 - dot(negative[n, k], negative_start[n, k])) / 2)
            if k + 1 < text.shape[1] and mask[n, k] and mask[n, k + 1] and negative_mask[n, k]:
                entailed = exterior(root, text[n, k], text[n, k + 1])
                triplets.append((entailed, exterior(root, text[n, k], negative[n, k])))
    nothing = sum(x.sum() for x in (text, negative, root, start, negative_start)) * 0
    if not triplets:
        return WEIGHTS["pullback_weight"] * sum(pullback) / max(len(pullback), 1) + nothing
    terms = [first - second for first, second in triplets]
    widest = max(range(len(triplets)), key=lambda i: triplets[i][0])
    narrowest = min(range(len(triplets)), key=lambda i: triplets[i][1])
    return (
        WEIGHTS["entailment_weight"] * sum(terms) / len(terms)
        + WEIGHTS["hardest_weight"] * (terms[widest] + terms[narrowest])
        + WEIGHTS["pullback_weight"] * sum(pullback) / len(pullback)
    )


@MASKS
def test_equals_loops(masks):
    tensors = batch()
    assert_same(radial_entailment_loss(*tensors, **masks, **WEIGHTS)[0], loops(*tensors, **masks), tensors)


def test_without_masks_all_are_texts():
    tensors = batch()
    actual, expected = (radial_entailment_loss(*tensors, **masks, **WEIGHTS)[0] for masks in ({}, ALL))
    assert_same(actual, expected, tensors)


def test_gradcheck():
    tensors = batch(chains=2, levels=3, width=3)
    masks = {"mask": torch.tensor([[1, 1, 1], [1, 1, 0]]).bool(), "negative_mask": torch.ones(2, 3).bool()}
    assert torch.autograd.gradcheck(
        lambda *t: radial_entailment_loss(*t, **masks, **WEIGHTS)[0], tensors, fast_mode=True
    )


def test_slices_add_up_with_the_hardest_where_they_lie():
    tensors = batch()
    assert_sliced(lambda rows: radial_entailment_loss(*tensors, **MASKED, rows=rows, **WEIGHTS), 4, tensors)


def test_types():
    assert_promoted(lambda *tensors: radial_entailment_loss(*tensors, **MASKED, **WEIGHTS)[0], batch)


def test_without_a_text_there_is_nothing():
    tensors = batch()
    value, metrics = radial_entailment_loss(*tensors, **NOTHING, **WEIGHTS)
    assert_zero(value, tensors)
    assert_metrics_detached(metrics, *METRICS, "accuracy_entailment", absent=metrics)


def test_masked_texts_are_nobody():
    text, negative, root, start, negative_start = tensors = batch()

    def poison(x, mask):
        return x.detach().masked_fill(~mask.unsqueeze(-1), torch.nan).requires_grad_()

    masks = (MASK, NEGATIVE_MASK)
    others = *map(poison, (text, negative), masks), root, *map(poison, (start, negative_start), masks)
    expected = value_and_gradients(radial_entailment_loss(*tensors, **MASKED, **WEIGHTS)[0], tensors)
    actual = value_and_gradients(radial_entailment_loss(*others, **MASKED, **WEIGHTS)[0], others)
    torch.testing.assert_close(actual, expected)
    assert all((actual[1][i][~mask] == 0).all() for i, mask in enumerate(masks))


def test_angles_of_the_plane():
    chain, negative, there = at(60, 90).unsqueeze(0), at(30, 0).unsqueeze(0), torch.ones(1, 2).bool()
    values = angles(chain, negative, at(0)[0], mask=there, negative_mask=there)
    # seen from 60 degrees, the way outward has the direction 120, that to 90 has 165, that back to 30 has -45
    assert values.entailed.item() == pytest.approx(math.radians(45))
    assert values.contradicted.item() == pytest.approx(math.radians(165))
    _, metrics = radial_entailment_loss(chain, negative, at(0)[0], chain, negative, **WEIGHTS)
    assert metrics["loss_entailment"].item() == pytest.approx(math.radians(45 - 165))
    assert metrics["loss_hardest"].item() == pytest.approx(2 * math.radians(45 - 165))
    assert metrics["loss_pullback"].item() == pytest.approx(0, abs=1e-12)
    assert metrics["accuracy_entailment"] == 1
    _, away = radial_entailment_loss(chain, negative, at(0)[0], -chain, -negative, **WEIGHTS)
    assert away["loss_pullback"].item() == pytest.approx(1)


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("step", [1e-6, -1e-6])
def test_rounding_does_not_choose_among_equal_angles(row, step):
    """Both chains have one general text and one negative, and other texts below; one negative is off by rounding."""
    text, negative, root, *_ = (tensor.detach().clone() for tensor in batch(torch.float32, chains=2, levels=2))
    text[1, 0], negative[1] = text[0, 0], negative[0]
    moved = negative.clone()
    moved[row, 0] += step * unit(negative.shape[-1], seed=9, dtype=torch.float32)
    losses = [
        radial_entailment_loss(text, other, root, text, negative, **WEIGHTS)[1]["loss_hardest"]
        for other in (negative, moved)
    ]
    torch.testing.assert_close(*losses, rtol=0, atol=1e-5)


def test_equal_texts_and_texts_at_the_root_have_no_angle():
    text, negative, root, start, negative_start = (x.detach().clone() for x in batch(torch.float32))
    text[0, 1], negative[1, 1], text[3, 2] = text[0, 0], text[1, 1] + 1e-5, root
    tensors = [x.requires_grad_() for x in (text, negative, root, start, negative_start)]
    loss, metrics = radial_entailment_loss(*tensors, **WEIGHTS)
    _, gradients = value_and_gradients(loss, tensors)
    assert all(x.isfinite().all() for x in (loss, *metrics.values(), *gradients))
    valid = angles(text, negative, root, **ALL).valid
    assert valid.tolist() == [[False, True, True], [True, False, True], [True] * 3, [True, True, False]]


def test_a_straight_chain_has_a_finite_gradient():
    """The arc cosine's is infinite there."""
    root, chain, negative = (
        torch.tensor(x, dtype=torch.float64, requires_grad=True)
        for x in ([0.0, 0], [[[1.0, 0], [2, 0]]], [[[0.5, 0]] * 2])
    )
    there = torch.ones(1, 2).bool()
    values = angles(chain, negative, root, mask=there, negative_mask=there)
    assert (values.entailed.item(), values.contradicted.item()) == (0, pytest.approx(math.pi))
    _, gradients = value_and_gradients((values.entailed - values.contradicted).sum(), (root, chain, negative))
    assert all(x.isfinite().all() for x in gradients)


def test_accuracy_of_scorers():
    def accuracy(chain, negative):
        return radial_entailment_loss(chain, negative, at(0)[0], chain, negative, **WEIGHTS)[1]["accuracy_entailment"]

    on, back = at(60, 90).unsqueeze(0), at(60, 30).unsqueeze(0)
    assert accuracy(on, back.flip(1)) == 1
    assert accuracy(back, on.flip(1)) == 0
    assert accuracy(on, on.flip(1)) == 0  # a tie
    drawn = [unit(500, 2, 6, seed=seed) for seed in (1, 2)]
    share = radial_entailment_loss(*drawn, unit(6, seed=3), *drawn, **WEIGHTS)[1]["accuracy_entailment"]
    assert 0.45 < share < 0.55


def test_each_weight_has_its_own_term():
    tensors = batch()
    _, metrics = radial_entailment_loss(*tensors, **WEIGHTS)
    for name in WEIGHTS:
        alone = {**dict.fromkeys(WEIGHTS, 0.0), name: 2.0}
        value, _ = radial_entailment_loss(*tensors, **alone)
        torch.testing.assert_close(value.detach(), 2 * metrics[f"loss_{name.removesuffix('_weight')}"])


def test_wrong_arguments_are_named():
    text, negative, root, start, negative_start = batch()
    names = ("text", "negative_text", "root", "start_text", "start_negative_text")
    right = {**dict(zip(names, (text, negative, root, start, negative_start), strict=True)), **MASKED, **WEIGHTS}
    wrong = {"text": text[:, :1], "negative_text": negative[:, :2], "root": root[:2], "start_text": start[0]}
    assert_shape_errors(radial_entailment_loss, right, {**wrong, "start_negative_text": start[:2]})
    assert_shape_errors(radial_entailment_loss, right, {"mask": MASK.float(), "negative_mask": MASK[:, :2]})
