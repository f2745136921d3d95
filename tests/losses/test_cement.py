"""Cement: loops with every mask, the margin's limits and the zero-sum of Eq. 3."""

import pytest
import torch

from hfcomp.losses import cement, cement_loss, info_nce_loss
from hfcomp.losses._ops.pairs import cross_entropy
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

IMAGE_MASK = torch.tensor([True, False, True, False])
TEXT_MASK = torch.tensor([True, True, False, False])
MASKS = {"negative_image_mask": IMAGE_MASK, "negative_text_mask": TEXT_MASK}
METRICS = (
    "loss_image_to_text",
    "loss_text_to_image",
    "accuracy_image_to_text",
    "accuracy_text_to_image",
    "hard_negative_accuracy_image_to_text",
    "hard_negative_accuracy_text_to_image",
    "gradient_hard_negative",
    "gradient_easy_negatives",
    "margin",
)

OF_NEGATIVES = (
    "hard_negative_accuracy_image_to_text",
    "hard_negative_accuracy_text_to_image",
    "gradient_hard_negative",
    "margin",
)


def batch(dtype=torch.float64, scale=20.0, size=4):
    embeddings = [unit(size, 5, seed=seed, dtype=dtype) for seed in range(4)]
    margin = torch.linspace(-2, 2, size, dtype=torch.float64).to(dtype).requires_grad_()
    return *embeddings, scalar(scale, dtype), margin


def loss(image, text, negative_image, negative_text, scale, margin, **arguments):
    return cement_loss(image, text, negative_image, negative_text, logit_scale=scale, margin=margin, **arguments)


@pytest.mark.parametrize("image_mask", [None, IMAGE_MASK, torch.zeros(4, dtype=torch.bool)])
@pytest.mark.parametrize("text_mask", [None, TEXT_MASK, torch.zeros(4, dtype=torch.bool)])
def test_equals_loops(image_mask, text_mask):
    *embeddings, scale, margin = tensors = batch()
    everything = torch.ones(4, dtype=torch.bool)
    expected = reference.cement(
        *embeddings,
        logit_scale=scale,
        margin=margin,
        image_mask=everything if image_mask is None else image_mask,
        text_mask=everything if text_mask is None else text_mask,
    )
    actual = loss(*tensors, negative_image_mask=image_mask, negative_text_mask=text_mask)[0]
    assert_same(actual, expected, tensors)


@pytest.mark.parametrize("masks", [{}, MASKS], ids=["all", "masked"])
def test_gradcheck(masks):
    for rows in (None, slice(1, 3)):
        assert torch.autograd.gradcheck(lambda *t, rows=rows: loss(*t, rows=rows, **masks)[0], batch(scale=3.0))


@pytest.mark.parametrize("masks", [{}, MASKS], ids=["all", "masked"])
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


def test_a_float64_margin_does_not_lift_a_float32_loss():
    *rest, margin = batch(torch.float32)
    assert loss(*rest, margin.double())[0].dtype == torch.float32


def test_margin_0_is_info_nce_on_the_doubled_batch():
    image, text, negative_image, negative_text, scale, margin = batch()
    plain = info_nce_loss(torch.cat([image, negative_image]), torch.cat([text, negative_text]), logit_scale=scale)
    cement = loss(image, text, negative_image, negative_text, scale, torch.zeros_like(margin))
    assert_same(cement[0], plain[0], (image, text, negative_image, negative_text, scale))
    for key, value in plain[1].items():
        torch.testing.assert_close(cement[1][key], value)


def test_all_masked_is_info_nce_on_the_originals_whatever_the_negatives():
    image, text, negative_image, negative_text, scale, margin = batch()
    nobody = torch.zeros(4, dtype=torch.bool)
    value, metrics = cement_loss(
        image,
        text,
        negative_image.detach() * torch.nan,
        negative_text.detach() * torch.nan,
        logit_scale=scale,
        margin=margin * torch.nan,
        negative_image_mask=nobody,
        negative_text_mask=nobody,
    )
    assert_same(value, info_nce_loss(image, text, logit_scale=scale)[0], (image, text, scale))
    assert_metrics_detached(metrics, *METRICS, absent=OF_NEGATIVES)


def test_one_pair():
    tensors = batch(size=1)
    nobody = torch.zeros(1, dtype=torch.bool)
    value, metrics = loss(*tensors, negative_image_mask=nobody, negative_text_mask=nobody)
    assert_zero(value, tensors)
    accuracies = ("accuracy_image_to_text", "accuracy_text_to_image")
    assert_metrics_detached(metrics, *METRICS, absent=(*OF_NEGATIVES, *accuracies))


def test_order_of_rows_changes_nothing():
    *embeddings, scale, margin = tensors = batch()
    p = torch.tensor([2, 0, 3, 1])
    moved = loss(
        *(x[p] for x in embeddings),
        scale,
        margin[p],
        negative_image_mask=IMAGE_MASK[p],
        negative_text_mask=TEXT_MASK[p],
    )
    assert_same(loss(*tensors, **MASKS)[0], moved[0], tensors)


@pytest.mark.parametrize("value", [-2.0, 0.0, 2.0])
@pytest.mark.parametrize("direction", [0, 1], ids=["image_to_text", "text_to_image"])
def test_gradients_of_an_anchors_logits_are_a_zero_sum(direction, value, monkeypatch):
    # texts = identity basis: the images are the 6 x 6 logits themselves, as free variables
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(6, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    basis, scale = torch.eye(6, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    margin = torch.full((3,), value, dtype=torch.float64)
    asked = []

    def one_direction(*arguments):
        asked.append(cross_entropy(*arguments))
        return asked[-1] * (len(asked) - 1 == direction)

    monkeypatch.setattr(cement, "cross_entropy", one_direction)
    half = loss(logits[:3], basis[:3], logits[3:], basis[3:], scale, margin)[0]
    gradient = torch.autograd.grad(half, logits)[0] * 2 * 6  # undo the mean of two directions and of six anchors
    gradient = gradient if direction == 0 else gradient.T

    raised = logits.detach().clone() if direction == 0 else logits.detach().T.clone()
    for i in range(6):
        counterpart = (i + 3) % 6
        easy = sum(gradient[i, j].abs() for j in range(6) if j not in (i, counterpart))
        torch.testing.assert_close(gradient[i, i].abs(), gradient[i, counterpart].abs() + easy)
        raised[i, counterpart] += value
        p = raised[i].softmax(0)
        torch.testing.assert_close(gradient[i, i], p[i] - 1)
        torch.testing.assert_close(gradient[i, counterpart], p[counterpart])


def test_a_margin_moves_gradient_from_easy_negatives_to_the_hard_one():
    *rest, margin = batch()
    shares = []
    for value in (-2.0, 0.0, 2.0):
        metrics = loss(*rest, torch.full_like(margin, value))[1]
        hard, easy = metrics["gradient_hard_negative"], metrics["gradient_easy_negatives"]
        shares.append(hard / (hard + easy))
        assert metrics["margin"] == value
    assert shares[0] < shares[1] < shares[2]


@pytest.mark.parametrize("masks", [{}, MASKS], ids=["all", "masked"])
def test_metrics(masks):
    *embeddings, scale, margin = tensors = batch()
    value, metrics = loss(*tensors, **masks)
    assert_metrics_detached(metrics, *METRICS)
    torch.testing.assert_close((metrics["loss_image_to_text"] + metrics["loss_text_to_image"]) / 2, value.detach())
    valid = [[True] * 4 + (m.tolist() if masks else [True] * 4) for m in (IMAGE_MASK, TEXT_MASK)]
    s = (scale * torch.cat(embeddings[::2]) @ torch.cat(embeddings[1::2]).T).detach()
    anchors = [i for i in range(8) if valid[0][i] and valid[1][i]]
    hard, easy = [], []
    for name, logits, keys in (("image_to_text", s, valid[1]), ("text_to_image", s.T, valid[0])):
        hits, hard_hits = [], []
        for i in anchors:
            c = (i + 4) % 8
            hits.append(all(logits[i, i] > logits[i, j] for j in range(8) if keys[j] and j != i))
            if keys[c]:
                hard_hits.append(bool(logits[i, i] > logits[i, c]))
            raised = torch.tensor([logits[i, j] if keys[j] else -torch.inf for j in range(8)], dtype=torch.float64)
            raised[c] += margin[i % 4].detach()
            p = raised.softmax(0)
            hard.append(p[c])
            easy.append(p.sum() - p[i] - p[c])
        assert metrics[f"accuracy_{name}"] == pytest.approx(sum(hits) / len(hits))
        assert metrics[f"hard_negative_accuracy_{name}"] == pytest.approx(sum(hard_hits) / len(hard_hits))
    assert metrics["gradient_hard_negative"] == pytest.approx(float(sum(hard) / len(hard)))
    assert metrics["gradient_easy_negatives"] == pytest.approx(float(sum(easy) / len(easy)))
    used = margin[IMAGE_MASK | TEXT_MASK] if masks else margin
    assert metrics["margin"] == pytest.approx(float(used.detach().mean()))


def test_wrong_shapes_are_named():
    image, text, negative_image, negative_text, scale, margin = batch()
    good = {
        "image": image,
        "text": text,
        "negative_image": negative_image,
        "negative_text": negative_text,
        "logit_scale": scale,
        "margin": margin,
        **MASKS,
    }
    wrong = {
        "image": image[0],
        "text": text[:3],
        "negative_image": negative_image[:, :2],
        "negative_text": negative_text[None],
        "logit_scale": torch.ones(2),
        "margin": margin[:, None],
        "negative_image_mask": IMAGE_MASK.long(),
        "negative_text_mask": TEXT_MASK[:2],
    }
    assert_shape_errors(cement_loss, good, wrong)
