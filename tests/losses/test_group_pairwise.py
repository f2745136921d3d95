"""CLEAR GLASS, pairwise: values by hand, InfoNCE as its limit, joint vectors without direction. 1 second.

What it shares with the other losses over groups is in test_group_losses.py.
"""

import math

import pytest
import torch

from hfcomp.losses import info_nce_loss, pairwise_group_loss
from hfcomp.losses.group_pairwise import released_pairwise_group_loss
from tests.losses.checks import assert_same, value_and_gradients
from tests.losses.groups import RAGGED, SETTINGS, batch

OUTER = {"temperature": 0.5, "inner_temperature": 0.25, "alpha": 0.0}
INNER = {**OUTER, "alpha": 1.0}


def axes(*groups):
    """Groups of unit vectors along the axes of three dimensions, [G, N, 3]."""
    return torch.eye(3, dtype=torch.float64)[torch.tensor(groups)].requires_grad_()


def test_by_hand():
    image, text = axes([0, 1], [2, 2]), axes([0, 1], [2, 2])
    value, metrics = pairwise_group_loss(image, text, **OUTER)
    e = math.exp(2)  # of a cosine of 1 at a temperature of 0.5
    # in the first group one of the own two texts agrees, in the second both do; none of the other group's does
    outer = -(math.log((e + 1) / (e + 3)) + math.log(2 * e / (2 * e + 2))) / 2
    torch.testing.assert_close(value.item(), outer)
    value, metrics = pairwise_group_loss(image, text, **INNER)
    # of the first group's joint vectors two are axes, at 45 degrees to their mean, and two are zeros: cosine 0
    half, whole = math.exp(4 / math.sqrt(2)), math.exp(4)
    terms = [2 * math.log((half + 1) / half), 2 * math.log(2), 4 * math.log((whole + 1) / whole)]
    torch.testing.assert_close(value.item(), sum(terms) / 8)
    torch.testing.assert_close([metrics[x].item() for x in ("accuracy_outer", "accuracy_inner")], [1.0, 6 / 8])


def test_by_hand_with_a_masked_pair():
    image, text = axes([0, 0], [1, 2]), axes([0, 1], [1, 1])
    mask = torch.tensor([[True, True], [True, False]])
    value, _ = pairwise_group_loss(image, text, mask=mask, **OUTER)
    e = math.exp(2)
    # images 0 and 0 meet texts (0, 1) and 1, image 1 meets the same; texts 0, 1 and 1 meet images (0, 0) and 1
    to_text = 2 * math.log((e + 2) / (e + 1)) + math.log((2 * e + 1) / e)
    to_image = math.log((2 * e + 1) / (2 * e)) + math.log((2 + e) / 2) + math.log((2 + e) / e)
    torch.testing.assert_close(value.item(), (to_text + to_image) / 6)
    value, _ = pairwise_group_loss(image, text, mask=mask, **INNER)
    # joint vectors: axis 0 and zeros, twice; axis 1 alone: five of them
    terms = 3 * math.log(1 + math.exp(-4)) + 2 * math.log(2)
    torch.testing.assert_close(value.item(), terms / 5)


@pytest.mark.parametrize(("loss", "alpha"), [(pairwise_group_loss, 0.0), (released_pairwise_group_loss, 1.0)])
def test_groups_of_one_are_info_nce(loss, alpha):
    image, other = (x.detach() for x in batch(groups=7, members=1))
    text = torch.nn.functional.normalize(image + 2 * other, dim=-1)
    tensors = image.requires_grad_(), text.requires_grad_()
    value, metrics = loss(*tensors, **{**OUTER, "alpha": alpha})
    scale = torch.tensor(2.0, dtype=torch.float64)
    plain, plain_metrics = info_nce_loss(image[:, 0], text[:, 0], logit_scale=scale)
    assert_same(value, plain, tensors)
    accuracy = (plain_metrics["accuracy_image_to_text"] + plain_metrics["accuracy_text_to_image"]) / 2
    assert metrics["accuracy_outer"] == accuracy and 0 < accuracy < 1


def test_a_large_group_weighs_by_its_pairs():
    # a group of three and one of one: three quarters of the outer loss, nine tenths of the inner one
    image, text = axes([0, 0, 0], [1, 1, 1]), axes([0, 0, 0], [2, 2, 2])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    _, metrics = pairwise_group_loss(image, text, mask=mask, **OUTER)
    own, e = math.log((3 * math.exp(2) + 1) / (3 * math.exp(2))), math.exp(4)
    torch.testing.assert_close(metrics["loss_outer"].item(), 3 / 4 * own + 1 / 4 * math.log(4))
    # the second group's only joint vector, and so its centroid, is zeros
    torch.testing.assert_close(metrics["loss_inner"].item(), 9 / 10 * math.log((e + 1) / e) + 1 / 10 * math.log(2))


@pytest.mark.parametrize("loss", [pairwise_group_loss, released_pairwise_group_loss])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_joint_vector_without_direction_has_no_gradient(loss, dtype):
    image, text = (x.detach() for x in batch(groups=2, members=2, width=3))
    # images on axes 0 and 1, texts on axis 2: all joint vectors of the first group are zeros
    image[0], text[0] = axes([0, 1])[0].detach(), axes([2, 2])[0].detach()
    image, text = (x.to(dtype).requires_grad_() for x in (image, text))
    inner = INNER if loss is pairwise_group_loss else {**INNER, "alpha": 0.0}
    value, gradients = value_and_gradients(loss(image, text, **inner)[0], (image, text))
    assert value.isfinite() and all(gradient.isfinite().all() for gradient in gradients)
    assert all((gradient[0] == 0).all() and (gradient[1] != 0).any() for gradient in gradients)


def test_the_released_centroid_takes_joint_vectors_by_direction():
    image = torch.tensor([[[1.0, 0.0], [0.6, 0.8]], [[0.0, 1.0], [0.0, 1.0]]], dtype=torch.float64)
    text = torch.tensor([[[0.8, 0.6], [0.8, 0.6]], [[0.0, 1.0], [0.0, 1.0]]], dtype=torch.float64)
    # joint vectors (0.8, 0) and (0.48, 0.48), twice each: their sum, and the sum of their directions
    long, alike = math.hypot(1.28, 0.48), 2 * math.cos(math.pi / 8)
    diagonal = math.sqrt(0.5)
    cosines = {
        pairwise_group_loss: (1.28 / long, 1.76 / long * diagonal, 0.48 / long),
        released_pairwise_group_loss: ((1 + diagonal) / alike, (1 + diagonal) / alike, diagonal / alike),
    }
    for loss, (axis, slant, other) in cosines.items():
        _, metrics = loss(image, text, **OUTER)
        logits = [(axis, 0.0), (slant, diagonal), (1.0, other), (1.0, other)]
        expected = [math.log(1 + math.exp(4 * (wrong - right))) for right, wrong in logits]
        torch.testing.assert_close(metrics["loss_inner"].item(), sum(expected) / 4)


def test_the_released_form_is_the_papers_at_one_minus_alpha_where_joint_vectors_are_equally_long():
    # all coordinates are as large, so that all products are
    image, text = ((x.detach().sign() / math.sqrt(5)).requires_grad_() for x in batch())
    paper, _ = pairwise_group_loss(image, text, mask=RAGGED, **SETTINGS)
    released, _ = released_pairwise_group_loss(
        image, text, mask=RAGGED, **{**SETTINGS, "alpha": 1 - SETTINGS["alpha"]}
    )
    torch.testing.assert_close(released, paper)
    image, text = batch()
    paper, _ = pairwise_group_loss(image, text, mask=RAGGED, **SETTINGS)
    released, _ = released_pairwise_group_loss(
        image, text, mask=RAGGED, **{**SETTINGS, "alpha": 1 - SETTINGS["alpha"]}
    )
    assert abs(released - paper) > 1e-4
