"""TripletCLIP: two halves against loops with every mask, and what a masked row still does."""

import pytest
import torch

from hfcomp.losses import info_nce_loss, triplet_clip_loss
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

IMAGE_MASK = torch.tensor([True, False, True, False])
TEXT_MASK = torch.tensor([True, True, False, False])
NOBODY = torch.zeros(4, dtype=torch.bool)
MASKS = {"negative_image_mask": IMAGE_MASK, "negative_text_mask": TEXT_MASK}
METRICS = (
    "loss_image_to_text",
    "loss_text_to_image",
    "loss_negative_image_to_text",
    "loss_negative_text_to_image",
    "accuracy_image_to_text",
    "accuracy_text_to_image",
    "accuracy_negative_image_to_text",
    "accuracy_negative_text_to_image",
    "hard_negative_accuracy",
    "hard_negative_accuracy_negative_image",
)


def batch(dtype=torch.float64, scale=20.0, size=4):
    return *(unit(size, 5, seed=seed, dtype=dtype) for seed in range(4)), scalar(scale, dtype)


def loss(image, text, negative_image, negative_text, scale, **arguments):
    return triplet_clip_loss(image, text, negative_image, negative_text, logit_scale=scale, **arguments)


@pytest.mark.parametrize("image_mask", [None, IMAGE_MASK, NOBODY])
@pytest.mark.parametrize("text_mask", [None, TEXT_MASK, NOBODY])
def test_equals_loops(image_mask, text_mask):
    *embeddings, scale = tensors = batch()
    expected = reference.triplet_clip(
        *embeddings,
        logit_scale=scale,
        image_mask=~NOBODY if image_mask is None else image_mask,
        text_mask=~NOBODY if text_mask is None else text_mask,
    )
    actual = loss(*tensors, negative_image_mask=image_mask, negative_text_mask=text_mask)[0]
    assert_same(actual, expected, tensors)


@pytest.mark.parametrize("masks", [{}, MASKS], ids=["all", "masked"])
def test_gradcheck(masks):
    for rows in (None, slice(1, 3)):
        assert torch.autograd.gradcheck(lambda *t, rows=rows: loss(*t, rows=rows, **masks)[0], batch(scale=3.0))


@pytest.mark.parametrize("masks", [{}, MASKS, {"negative_image_mask": NOBODY}], ids=["all", "masked", "none"])
def test_slices_add_up(masks):
    tensors = batch()
    assert_sliced(lambda rows: loss(*tensors, rows=rows, **masks), 4, tensors)


def test_chunks_change_nothing(monkeypatch):
    tensors = batch(torch.float32, size=11)
    masks = {"negative_image_mask": torch.arange(11) % 3 > 0, "negative_text_mask": torch.arange(11) % 4 > 0}
    assert_chunked(monkeypatch, lambda: loss(*tensors, **masks)[0], tensors)


def test_types():
    assert_promoted(lambda *tensors: loss(*tensors, **MASKS)[0], lambda dtype: batch(dtype, 4.0))
    for dtype in (torch.float16, torch.bfloat16):
        tensors = batch(dtype, 100.0)
        value = loss(*tensors)[0]
        assert value.isfinite() and all(g.isfinite().all() for g in torch.autograd.grad(value, tensors))


def test_it_is_the_sum_of_two_info_nce_losses():
    image, text, negative_image, negative_text, scale = tensors = batch()
    first, first_metrics = info_nce_loss(image, text, logit_scale=scale, negative_text=negative_text.unsqueeze(1))
    second, second_metrics = info_nce_loss(
        negative_image, negative_text, logit_scale=scale, negative_text=text.unsqueeze(1)
    )
    value, metrics = loss(*tensors)
    assert_same(value, first + second, tensors)
    for key, expected in first_metrics.items():
        torch.testing.assert_close(metrics[key], expected, msg=key)
    for way, name in (("image_to_text", "negative_image_to_text"), ("text_to_image", "negative_text_to_image")):
        for part in ("loss", "accuracy"):
            torch.testing.assert_close(metrics[f"{part}_{name}"], second_metrics[f"{part}_{way}"])
    accuracy = metrics["hard_negative_accuracy_negative_image"]
    torch.testing.assert_close(accuracy, second_metrics["hard_negative_accuracy"])


def test_all_masked_is_info_nce_on_the_originals_whatever_the_negatives():
    image, text, negative_image, negative_text, scale = batch()
    value, metrics = loss(
        image,
        text,
        negative_image.detach() * torch.nan,
        negative_text.detach() * torch.nan,
        scale,
        negative_image_mask=NOBODY,
        negative_text_mask=NOBODY,
    )
    assert_same(value, info_nce_loss(image, text, logit_scale=scale)[0], (image, text, scale))
    assert_metrics_detached(metrics, *METRICS, absent=[key for key in METRICS if "negative" in key])


def test_without_negative_images_it_is_info_nce_with_negative_texts():
    image, text, negative_image, negative_text, scale = batch()
    value, _ = loss(
        image,
        text,
        negative_image.detach() * torch.nan,
        negative_text,
        scale,
        negative_image_mask=NOBODY,
        negative_text_mask=TEXT_MASK,
    )
    plain = info_nce_loss(
        image, text, logit_scale=scale, negative_text=negative_text.unsqueeze(1), negative_mask=TEXT_MASK.unsqueeze(1)
    )
    assert_same(value, plain[0], (image, text, negative_text, scale))


def test_masked_values_are_nobody():
    image, text, negative_image, negative_text, scale = tensors = batch()
    poisoned = [
        torch.where(mask.unsqueeze(1), x, torch.nan)
        for x, mask in ((negative_image, IMAGE_MASK), (negative_text, TEXT_MASK))
    ]
    assert_same(loss(image, text, *poisoned, scale, **MASKS)[0], loss(*tensors, **MASKS)[0], (image, text, scale))


def test_a_valid_half_of_a_broken_row_stays_a_key():
    # row 1 has no negative image, row 2 no negative text: neither is an anchor of the second half, both are keys
    *embeddings, scale = tensors = batch()
    gradients = value_and_gradients(loss(*tensors, **MASKS)[0], tensors)[1]
    assert gradients[2][2].abs().sum() > 0 and gradients[3][1].abs().sum() > 0
    assert (gradients[2][[1, 3]] == 0).all() and (gradients[3][[2, 3]] == 0).all()
    metrics = loss(*tensors, **MASKS)[1]
    *_, negative_image, negative_text = (x.detach() for x in embeddings)
    logits = scale.detach() * negative_text[0] @ negative_image[[0, 2]].T  # row 0 is the only anchor
    torch.testing.assert_close(metrics["loss_negative_text_to_image"], torch.logsumexp(logits, 0) - logits[0])


def test_images_of_both_halves_never_meet():
    image, text, negative_image, negative_text, scale = tensors = batch()
    first = loss(*tensors)[1]
    moved = loss(image, text, -negative_image, negative_text, scale)[1]
    assert first["loss_image_to_text"] == moved["loss_image_to_text"]
    assert first["loss_text_to_image"] == moved["loss_text_to_image"]
    moved = loss(-image, text, negative_image, negative_text, scale)[1]
    assert first["loss_negative_text_to_image"] == moved["loss_negative_text_to_image"]


def test_one_pair():
    tensors = batch(size=1)
    value, metrics = loss(*tensors, negative_image_mask=NOBODY[:1], negative_text_mask=NOBODY[:1])
    assert_zero(value, tensors)
    absent = [key for key in METRICS if "negative" in key or "accuracy" in key]
    assert_metrics_detached(metrics, *METRICS, absent=absent)


def test_order_of_rows_changes_nothing():
    *embeddings, scale = tensors = batch()
    p = torch.tensor([2, 0, 3, 1])
    masks = {"negative_image_mask": IMAGE_MASK[p], "negative_text_mask": TEXT_MASK[p]}
    moved = loss(*(x[p] for x in embeddings), scale, **masks)
    assert_same(loss(*tensors, **MASKS)[0], moved[0], tensors)


def test_metrics():
    image, text, negative_image, negative_text, scale = tensors = batch()
    value, metrics = loss(*tensors, **MASKS)
    assert_metrics_detached(metrics, *METRICS)
    torch.testing.assert_close(sum(metrics[key] for key in METRICS[:4]) / 2, value.detach())
    # row 0 is the only anchor of the second half
    own = (negative_image[0] * negative_text[0]).sum()
    others = torch.cat([text @ negative_image[0], negative_text[1:2] @ negative_image[0]])
    assert metrics["accuracy_negative_image_to_text"] == float(own > others.max())
    assert metrics["accuracy_negative_text_to_image"] == float(own > negative_image[2] @ negative_text[0])
    assert metrics["hard_negative_accuracy_negative_image"] == float(own > text[0] @ negative_image[0])


def test_wrong_shapes_are_named():
    image, text, negative_image, negative_text, scale = batch()
    good = {
        "image": image,
        "text": text,
        "negative_image": negative_image,
        "negative_text": negative_text,
        "logit_scale": scale,
        **MASKS,
    }
    wrong = {
        "image": image[0],
        "text": text[:3],
        "negative_image": negative_image[:, :2],
        "negative_text": negative_text.unsqueeze(1),
        "logit_scale": torch.ones(2),
        "negative_image_mask": IMAGE_MASK.float(),
        "negative_text_mask": TEXT_MASK[:2],
    }
    assert_shape_errors(triplet_clip_loss, good, wrong)
