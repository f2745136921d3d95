"""CLEAR GLASS, centroid: values by hand, InfoNCE as its limit, centroids without direction. Under 1 second.

What it shares with the other losses over groups is in test_group_losses.py.
"""

import math

import torch
import torch.nn.functional as F

from hfcomp.losses import centroid_group_loss, info_nce_loss
from tests.losses.checks import assert_same, value_and_gradients
from tests.losses.groups import batch

SETTINGS = {"temperature": 0.5, "inner_temperature": 0.25, "alpha": 0.5}


def plane(*groups):
    """Unit vectors in the plane by their angles in degrees, [G, N, 2]."""
    angles = torch.tensor(groups, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=-1).requires_grad_()


def cosine(degrees):
    return math.cos(math.radians(degrees))


def two_group_loss(right, wrong, temperature):
    """-log p of one of two groups, by the angles to them in degrees."""
    return math.log(1 + math.exp((cosine(wrong) - cosine(right)) / temperature))


def test_by_hand():
    # image centroids at 20 and 90 degrees, text centroids at 0 and 60
    image, text = plane([0, 40], [90, 90]), plane([0, 0], [30, 90])
    value, metrics = centroid_group_loss(image, text, **SETTINGS)
    to_text, to_image = (
        two_group_loss(20, 40, 0.5) + two_group_loss(30, 90, 0.5),
        two_group_loss(20, 90, 0.5) + two_group_loss(30, 40, 0.5),
    )
    of_images = two_group_loss(20, 90, 0.25) + two_group_loss(20, 50, 0.25) + 2 * two_group_loss(0, 70, 0.25)
    of_texts = 2 * two_group_loss(0, 60, 0.25) + 2 * two_group_loss(30, 30, 0.25) / 2 + two_group_loss(30, 90, 0.25)
    torch.testing.assert_close(metrics["loss_outer"].item(), (to_text + to_image) / 4)
    torch.testing.assert_close(metrics["loss_inner"].item(), (of_images + of_texts) / 8)
    torch.testing.assert_close(value.item(), (to_text + to_image) / 8 + (of_images + of_texts) / 16)


def test_a_masked_pair_is_in_no_centroid():
    mask = torch.tensor([[True, False], [True, True]])
    _, metrics = centroid_group_loss(plane([0, 170], [90, 90]), plane([0, 45], [60, 60]), mask=mask, **SETTINGS)
    outer = (
        two_group_loss(0, 60, 0.5)
        + two_group_loss(30, 90, 0.5)
        + two_group_loss(0, 90, 0.5)
        + two_group_loss(30, 60, 0.5)
    )
    # five anchors less one on either side, groups of one and of two
    inner = 3 * two_group_loss(0, 90, 0.25) + 3 * two_group_loss(0, 60, 0.25)
    torch.testing.assert_close(metrics["loss_outer"].item(), outer / 4)
    torch.testing.assert_close(metrics["loss_inner"].item(), inner / 6)
    torch.testing.assert_close(metrics["accuracy_outer"].item(), 1.0)


def test_the_outer_loss_is_info_nce_of_the_centroids():
    image, text = tensors = batch()
    means = (F.normalize(x.mean(1), dim=-1) for x in tensors)
    plain, _ = info_nce_loss(*means, logit_scale=torch.tensor(2.0))
    assert_same(centroid_group_loss(*tensors, **{**SETTINGS, "alpha": 0.0})[0], plain, tensors)


def test_members_that_cancel_out_have_no_direction():
    for dtype in (torch.float16, torch.float32, torch.float64):
        image = plane([0, 180], [30, 30]).detach().to(dtype).requires_grad_()
        text = plane([0, 0], [90, 90]).detach().to(dtype).requires_grad_()
        (value, metrics) = centroid_group_loss(image, text, **{**SETTINGS, "alpha": 0.0})
        # the first image centroid is as near to both text centroids
        expected = (
            math.log(2) + two_group_loss(60, 30, 0.5) + two_group_loss(90, 30, 0.5) + two_group_loss(60, 90, 0.5)
        )
        torch.testing.assert_close(value.item(), expected / 4, rtol=2e-3, atol=2e-3)
        assert metrics["accuracy_outer"] == 1 / 4
        _, gradients = value_and_gradients(value, (image, text))
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert (gradients[0][0] == 0).all() and (gradients[0][1] != 0).any()
