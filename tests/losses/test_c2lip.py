"""The C2LIP losses, sigmoid and InfoNCE, plain and cross-attended: loops, ragged owners, slices, types, limits."""

import math
from typing import NamedTuple

import pytest
import torch

from hfcomp.losses import info_nce_loss, sigmoid_loss
from hfcomp.losses._ops import chunks, cross_attention, row_sums
from hfcomp.losses.c2lip import concept_loss, cross_attended_concept_loss
from hfcomp.losses.concept_info_nce import concept_info_nce_loss, cross_attended_info_nce_loss
from tests.losses.checks import (
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

# images 1 and 3 have no concept, image 2 has one phrase twice, places 1 and 4 are padding
OWNER = torch.tensor([2, -1, 0, 2, -1, 4, 2, 4])
CONCEPT_ID = torch.tensor([70, 70, 3, 5, 9, 3, 70, 5])
# image 2 has twice what image 4 has too
TWICE_ID = torch.tensor([70, 70, 3, 5, 9, 70, 70, 5])
TEMPERATURE = 0.5


class Form(NamedTuple):
    function: object
    attended: bool
    binary: bool
    keys: tuple


FORMS = {
    "sigmoid": Form(
        concept_loss,
        False,
        True,
        ("loss_concept", "loss_concept_positive", "loss_concept_negative", "concept_positive_accuracy"),
    ),
    "attended_sigmoid": Form(
        cross_attended_concept_loss,
        True,
        True,
        (
            "loss_cross_attended",
            "loss_cross_attended_positive",
            "loss_cross_attended_negative",
            "cross_attended_positive_accuracy",
        ),
    ),
    "info_nce": Form(
        concept_info_nce_loss,
        False,
        False,
        (
            "loss_concept",
            "loss_image_to_concept",
            "loss_concept_to_image",
            "accuracy_image_to_concept",
            "accuracy_concept_to_image",
        ),
    ),
    "attended_info_nce": Form(
        cross_attended_info_nce_loss, True, False, ("loss_cross_attended", "accuracy_cross_attended")
    ),
}
EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def batch(form, dtype=torch.float64, scale=10.0, bias=-3.0, concepts=8):
    shape = (5, 3, 4) if form.attended else (5, 4)
    tensors = unit(*shape, seed=1, dtype=dtype), unit(concepts, 4, seed=2, dtype=dtype), scalar(scale, dtype)
    return (*tensors, scalar(bias, dtype)) if form.binary else tensors


def run(form, image, concepts, scale, bias=None, *, owner=OWNER, rows=None, **extra):
    arguments = {"logit_scale": scale, "rows": rows, **extra}
    if form.binary:
        arguments["logit_bias"] = bias
    if form.attended:
        image = image if rows is None else image[rows]
        arguments.setdefault("attention_temperature", TEMPERATURE)
    return form.function(image, concepts, owner, **arguments)


def loop_cosine(image, concept, temperature):
    """<image, concept>, the image an embedding or its attended tokens."""
    if image.ndim == 1:
        return (image * concept).sum()
    weights = [torch.exp((token * concept).sum() / temperature) for token in image]
    attended = sum(w * token for w, token in zip(weights, image, strict=True)) / sum(weights)
    return (attended * concept).sum() / (attended * attended).sum() ** 0.5


def loops(
    form,
    image,
    concepts,
    scale,
    bias=None,
    *,
    owner=OWNER,
    concept_id=None,
    image_id=None,
    text_id=None,
    attention_temperature=TEMPERATURE,
):
    """The loss from the equations, and its accuracies in the order of the metrics."""
    places = [j for j in range(len(concepts)) if owner[j] >= 0]
    logits = {
        (i, j): scale * loop_cosine(image[i], concepts[j], attention_temperature) + (bias if form.binary else 0.0)
        for i in range(len(image))
        for j in places
    }

    def negative(i, j):
        equal = concept_id is not None and any(owner[k] == i and concept_id[k] == concept_id[j] for k in places)
        same = any(ids is not None and ids[owner[j]] == ids[i] for ids in (image_id, text_id))
        return owner[j] != i and not equal and not same

    total, hits = (image.sum() + concepts.sum() + scale) * 0.0, [0, 0]
    if form.binary:
        for (i, j), logit in logits.items():
            if owner[j] == i or negative(i, j):
                sign = 1.0 if owner[j] == i else -1.0
                total = total - torch.log(1 / (1 + torch.exp(-sign * logit))) / len(places)
            hits[0] += int(owner[j] == i and logit > 0)
        return total, [hits[0] / len(places)]
    for j in places:
        i = int(owner[j])
        own = logits[i, j]
        columns = [logits[i, k] for k in places if negative(i, k)]
        rows = [logits[n, j] for n in range(len(image)) if negative(n, j)]
        directions = [columns] if form.attended else [columns, rows]
        for d, others in enumerate(directions):
            share = torch.exp(own) / (torch.exp(own) + sum(torch.exp(x) for x in others))
            total = total - torch.log(share) / len(directions) / len(places)
            hits[d] += int(all(own > x for x in others))
    return total, [hit / len(places) for hit in hits[: len(directions)]]


@EVERY
@pytest.mark.parametrize("concept_id", [None, CONCEPT_ID, TWICE_ID], ids=["negative", "ignored", "twice"])
def test_equals_loops(form, concept_id):
    tensors = batch(form)
    value, metrics = run(form, *tensors, concept_id=concept_id)
    expected, accuracies = loops(form, *tensors, concept_id=concept_id)
    assert_same(value, expected, tensors)
    assert_metrics_detached(metrics, *form.keys, *(["same_text_concepts"] if concept_id is not None else []))
    assert [float(metrics[key]) for key in form.keys if "accuracy" in key] == pytest.approx(accuracies)
    torch.testing.assert_close(metrics[form.keys[0]], value.detach())


@EVERY
def test_accuracies_of_one_concept_each(form):
    tensors = batch(form, concepts=5)
    owner = torch.tensor([4, 0, 3, 1, 2])
    _, metrics = run(form, *tensors, owner=owner)
    _, accuracies = loops(form, *tensors, owner=owner)
    assert [float(metrics[key]) for key in form.keys if "accuracy" in key] == pytest.approx(accuracies)


@EVERY
def test_a_tie_is_a_miss(form):
    image, concepts, scale, *bias = batch(form)
    same = torch.ones_like(image).detach() / 2, torch.ones_like(concepts).detach() / 2
    _, metrics = run(form, *same, scale, *(-scale for _ in bias))
    assert all(metrics[key] == 0 for key in form.keys if "accuracy" in key)


def test_equal_phrases_matter_and_only_to_the_images_that_have_them():
    image, concepts, scale, bias = batch(FORMS["sigmoid"])
    with torch.no_grad():
        logits = scale * image @ concepts.T + bias
    # "3" belongs to images 0 and 4, "5" to 2 and 4: each pair of images skips the other's place
    skipped = torch.stack([logits[0, 5], logits[4, 2], logits[2, 7], logits[4, 3]])
    negative, _ = run(FORMS["sigmoid"], image, concepts, scale, bias)
    ignored, _ = run(FORMS["sigmoid"], image, concepts, scale, bias, concept_id=CONCEPT_ID)
    torch.testing.assert_close(negative - ignored, torch.nn.functional.softplus(skipped).sum() / 6)


@EVERY
@pytest.mark.parametrize("concept_id", [None, CONCEPT_ID], ids=["negative", "ignored"])
def test_slices_add_up(form, concept_id):
    tensors = batch(form)
    assert_sliced(lambda rows: run(form, *tensors, rows=rows, concept_id=concept_id), 5, tensors)


@EVERY
def test_gradcheck(form):
    for rows, concept_id in ((None, CONCEPT_ID), (slice(2, 5), None)):
        assert torch.autograd.gradcheck(
            lambda *t, rows=rows, ids=concept_id: 2 * run(form, *t, rows=rows, concept_id=ids)[0],
            batch(form, scale=3.0),
            fast_mode=True,
        )


@EVERY
def test_chunks_change_nothing(form, monkeypatch):
    sizes = set()

    def record_sizes(rows, chunk):
        for part in chunks.parts(rows, chunk):
            sizes.add(part.stop - part.start)
            yield part

    monkeypatch.setattr(row_sums, "parts", record_sizes)
    monkeypatch.setattr(cross_attention, "parts", record_sizes)
    tensors, results = batch(form), []
    # a small batch is one chunk: 5 images, and in InfoNCE's second direction 8 concepts
    for elements, expected in ((chunks.CPU_ELEMENTS, {5, 8}), (200, {1, 2, 3, 5}), (1, {1})):
        sizes.clear()
        monkeypatch.setattr(chunks, "CPU_ELEMENTS", elements)
        value, metrics = run(form, *tensors, concept_id=CONCEPT_ID)
        results.append((value_and_gradients(value, tensors), metrics))
        assert sizes <= expected
        assert len(sizes) > 1 or elements != 200
    torch.testing.assert_close(results[1:], results[:1] * 2)


@pytest.mark.parametrize("name", ["sigmoid", "info_nce", "attended_sigmoid"])
def test_a_second_derivative_is_refused(name):
    form, tensors = FORMS[name], batch(FORMS[name])
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(run(form, *tensors)[0], tensors, create_graph=True)


@EVERY
def test_types(form):
    assert_promoted(lambda *t: run(form, *t, concept_id=CONCEPT_ID)[0], lambda dtype: batch(form, dtype, 4.0))
    for dtype in (torch.float16, torch.bfloat16):
        tensors = batch(form, dtype, 100.0, -10.0)
        value = run(form, *tensors)[0]
        assert value.isfinite() and all(g.isfinite().all() for g in torch.autograd.grad(value, tensors))


@EVERY
def test_padding_is_invisible(form):
    image, concepts, *others = tensors = batch(form)
    spoilt = concepts.detach().clone()
    spoilt[OWNER < 0] = torch.nan
    ids = CONCEPT_ID.clone()
    ids[OWNER < 0] = 3
    value, metrics = run(form, image, spoilt.requires_grad_(), *others, concept_id=ids)
    actual = value_and_gradients(value, (image, spoilt, *others))
    assert (actual[1][1][OWNER < 0] == 0).all()
    kept = OWNER >= 0
    short, short_metrics = run(form, image, concepts[kept], *others, owner=OWNER[kept], concept_id=CONCEPT_ID[kept])
    torch.testing.assert_close(actual, value_and_gradients(short, tensors))
    torch.testing.assert_close(metrics, short_metrics)


@EVERY
def test_orders_change_nothing(form):
    image, concepts, *others = tensors = batch(form)
    p = torch.tensor([5, 1, 7, 3, 0, 2, 6, 4])
    moved = run(form, image, concepts[p], *others, owner=OWNER[p], concept_id=CONCEPT_ID[p])[0]
    assert_same(run(form, *tensors, concept_id=CONCEPT_ID)[0], moved, tensors)
    q = torch.tensor([3, 0, 4, 1, 2])
    owner = torch.where(OWNER < 0, -1, q.argsort()[OWNER])
    moved = run(form, image[q], concepts, *others, owner=owner, concept_id=CONCEPT_ID)[0]
    assert_same(run(form, *tensors, concept_id=CONCEPT_ID)[0], moved, tensors)


@EVERY
def test_no_concept_at_all(form):
    tensors = batch(form)
    nobody = torch.full_like(OWNER, -1)
    for concept_id in (None, CONCEPT_ID):
        assert_zero(run(form, *tensors, owner=nobody, concept_id=concept_id)[0], tensors)
    image, concepts, *others = tensors
    value, metrics = run(form, image, concepts[:0], *others, owner=nobody[:0], concept_id=nobody[:0])
    assert_zero(value, tensors)
    assert_metrics_detached(metrics, *form.keys, "same_text_concepts", absent=form.keys)


@EVERY
def test_a_slice_without_concepts(form):
    tensors = batch(form)
    value, metrics = run(form, *tensors, rows=slice(1, 2))
    # its images are negatives for the sigmoid; InfoNCE sums own concepts only
    assert all(x.isfinite().all() for x in torch.autograd.grad(value, tensors))
    assert (value > 0) == form.binary
    assert all(metrics[key] == 0 for key in form.keys if "accuracy" in key or "positive" in key)


@EVERY
def test_without_gradient_the_value_is_the_same(form):
    tensors = batch(form)
    with torch.no_grad():
        value = run(form, *tensors)[0]
    assert not value.requires_grad
    torch.testing.assert_close(value, run(form, *tensors)[0].detach())


def test_one_concept_an_image_is_its_text():
    order = torch.tensor([3, 0, 4, 1, 2])
    form = FORMS["sigmoid"]
    tensors = image, text, scale, bias = batch(form, concepts=5)
    expected, known = sigmoid_loss(image, text, logit_scale=scale, logit_bias=bias)
    actual, metrics = run(form, image, text[order], scale, bias, owner=order)
    assert_same(actual, expected, tensors)
    torch.testing.assert_close(metrics["loss_concept_positive"], known["loss_positive"])
    torch.testing.assert_close(metrics["loss_concept_negative"], known["loss_negative"])
    torch.testing.assert_close(metrics["concept_positive_accuracy"], known["positive_accuracy"])
    expected, known = info_nce_loss(image, text, logit_scale=scale)
    actual, metrics = run(FORMS["info_nce"], image, text[order], scale, owner=order)
    assert_same(actual, expected, (image, text, scale))
    torch.testing.assert_close(metrics["loss_image_to_concept"], known["loss_image_to_text"])
    torch.testing.assert_close(metrics["accuracy_concept_to_image"], known["accuracy_text_to_image"])


def test_one_token_is_the_image():
    image, concepts, scale, bias = tensors = batch(FORMS["sigmoid"])
    attended, _ = run(FORMS["attended_sigmoid"], image.unsqueeze(1), concepts, scale, bias)
    # the attended vector is made a unit vector once more, which takes the gradient along it away
    plain, _ = run(FORMS["sigmoid"], torch.nn.functional.normalize(image, dim=1), concepts, scale, bias)
    assert_same(attended, plain, tensors)


@pytest.mark.parametrize("name", ["info_nce", "attended_info_nce"])
def test_own_concepts_do_not_compete(name):
    # two images, each with three concepts that it matches and the other does not
    image = torch.eye(4, dtype=torch.float64)[:2]
    image = image.unsqueeze(1) if FORMS[name].attended else image
    concepts = torch.eye(4, dtype=torch.float64)[:2].repeat(3, 1)
    value, _ = run(FORMS[name], image, concepts, torch.tensor(30.0), owner=torch.tensor([0, 1] * 3))
    expected = math.log1p(3 * math.exp(-30))
    if name == "info_nce":
        expected = (expected + math.log1p(math.exp(-30))) / 2
    assert float(value) == pytest.approx(expected)


@EVERY
def test_wrong_shapes_are_named(form):
    image, concepts, *others = batch(form)
    good = {"concepts": concepts, "concept_image_index": OWNER, "concept_id": CONCEPT_ID, "logit_scale": others[0]}
    good |= {"tokens" if form.attended else "image": image}
    wrong = {
        "concepts": concepts[:, :3],
        "concept_image_index": OWNER[:3],
        "concept_id": CONCEPT_ID[:, None],
        "logit_scale": torch.ones(2),
        "tokens" if form.attended else "image": image[0],
    }
    if form.binary:
        good, wrong = good | {"logit_bias": others[1]}, wrong | {"logit_bias": torch.ones(2)}
    assert_shape_errors(form.function, good, wrong)
    assert_shape_errors(form.function, good, {"concept_image_index": OWNER.float(), "concept_id": CONCEPT_ID.int()})


@pytest.mark.parametrize("name", ["attended_sigmoid", "attended_info_nce"])
def test_tokens_must_be_those_of_the_slice(name):
    form = FORMS[name]
    image, concepts, *others = batch(form)
    arguments = {"logit_scale": others[0], "attention_temperature": TEMPERATURE}
    arguments |= {"logit_bias": others[1]} if form.binary else {}
    for rows in (slice(0, 3), slice(-5, None), slice(0, 10, 2)):
        with pytest.raises(ValueError, match=r"tokens has 5 rows"):
            form.function(image, concepts, OWNER, rows=rows, **arguments)
    value = form.function(image[2:], concepts, OWNER, rows=slice(2, None), **arguments)[0]
    torch.testing.assert_close(value, form.function(image[2:], concepts, OWNER, rows=slice(2, 5), **arguments)[0])
