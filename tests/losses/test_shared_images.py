"""Rows of one image, in every loss: neither positive nor negative of each other, against loops. 10 seconds."""

from functools import partial
from typing import NamedTuple

import pytest
import torch

from hfcomp.losses import (
    ahnpl_loss,
    ce_clip_loss,
    cement_loss,
    centroid_group_loss,
    dcl_loss,
    info_nce_loss,
    pairwise_group_loss,
    replaced_negative_loss,
    sigmoid_loss,
    triplet_clip_loss,
)
from hfcomp.losses.ahnpl_released import ahnpl_released_loss
from hfcomp.losses.group_pairwise import released_pairwise_group_loss
from tests.losses import groups, reference, test_ahnpl_released, test_c2lip, test_info_nce
from tests.losses.checks import (
    assert_chunked,
    assert_same,
    assert_shape_errors,
    assert_sliced,
    assert_zero,
    scalar,
    unit,
    value_and_gradients,
)

# rows 0, 2 and 4 are of one image, 1 and 3 of another, 5 is alone; 0 is an id like others, as is a negative number
ID = torch.tensor([0, 2**62, 0, 2**62, 0, -7])
PAIRS = 3 * 2 + 2 * 1
DISTINCT, ONE = torch.arange(6) * 3 - 5, torch.full((6,), 11)
MASK = torch.tensor([[1, 0], [0, 0], [1, 1], [0, 1], [1, 1], [1, 0]]).bool()
IMAGE_MASK, TEXT_MASK = torch.tensor([1, 0, 1, 0, 1, 1]).bool(), torch.tensor([1, 1, 0, 0, 1, 0]).bool()
# the negatives of rows 0 and 3 stand, among others, in columns of rows of their own image
SLOTS = torch.tensor([[2, 3], [5, -1], [-1, -1], [1, 0], [3, 1], [4, 0]])
KINDS = torch.tensor([[0, 3], [2, 2], [1, 1], [2, 1], [3, 0], [1, 2]])
THRESHOLD = torch.tensor([0.3, 0.0, 0.6, 0.5], dtype=torch.float64)
LOGITS = torch.tensor([4.0, 0.0, 10.0, 0.5], dtype=torch.float64)
MARGIN = torch.linspace(-2, 2, 6, dtype=torch.float64)
OWNER = torch.tensor([2, -1, 0, 2, -1, 4, 1, 3, 5])
CONCEPT_ID = torch.tensor([70, 70, 3, 5, 9, 3, 70, 5, 70])
WEIGHTS = (0.7, 0.3)


def batch(dtype=torch.float64, scale=8.0):
    """Images, texts, negative images, negative texts, scale, bias, concepts."""
    shapes = ((6, 5), (6, 5), (6, 2, 5), (6, 2, 5))
    embeddings = [unit(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes, start=1)]
    return (*embeddings, scalar(scale, dtype), scalar(-3.0, dtype), unit(9, 5, seed=5, dtype=dtype))


class Form(NamedTuple):
    """A loss and its loops, both of the tensors of `batch`, and what is left of one of pairs alone for one image."""

    loss: object
    loops: object
    alone: object = None  # None = 0


def info_nce(loss, i, t, ni, nt, s, b, c, *, negatives, **given):
    negatives = {"negative_text": nt, "negative_mask": MASK} if negatives else {}
    return loss(i, t, logit_scale=s, **negatives, **given)


def replaced_loss(loss, i, t, ni, nt, s, b, c, **given):
    return loss(i, t, nt, logit_scale=s, slots=SLOTS, **given)


def sigmoid(loss, i, t, ni, nt, s, b, c, **given):
    return loss(i, t, logit_scale=s, logit_bias=b, **given)


def cement(loss, i, t, ni, nt, s, b, c, **given):
    return loss(i, t, ni[:, 0], nt[:, 0], logit_scale=s, margin=MARGIN.to(i.dtype), **given)


def triplet(loss, i, t, ni, nt, s, b, c, **given):
    return loss(i, t, ni[:, 0], nt[:, 0], logit_scale=s, **given)


def ce_clip(i, t, ni, nt, s, b, c, **given):
    shared = {"threshold": THRESHOLD, "negative_kind": KINDS, "negative_mask": MASK}
    weights = dict(zip(("rank_weight", "intra_modal_weight"), WEIGHTS, strict=True))
    return ce_clip_loss(i, t, nt, logit_scale=s, **shared, **weights, **given)


def ce_clip_loops(i, t, ni, nt, s, b, c, **given):
    own = reference.own_mask(given.get("text_id"), given.get("negative_text_id"), MASK)
    shared = {"threshold": THRESHOLD, "negative_kind": KINDS, "negative_mask": own}
    return (
        reference.info_nce(i, t, logit_scale=s, negative_text=nt, negative_mask=MASK, **given)
        + WEIGHTS[0] * reference.negative_margin(i, t, nt, **shared)
        + WEIGHTS[1] * reference.intra_modal(i, t, nt, logit_scale=s, negative_mask=own)
    )


def ahnpl(loss, i, t, ni, nt, s, b, c, **given):
    shared = {"threshold": THRESHOLD, "negative_kind": KINDS, "negative_mask": MASK}
    return loss(i, t, ni, nt, logit_scale=s, margin=torch.tensor(0.1, dtype=i.dtype), **shared, **given)


def released_loss(i, t, ni, nt, s, b, c, **given):
    shared = {"threshold": LOGITS, "negative_kind": KINDS, "negative_mask": MASK}
    return ahnpl_released_loss(i, t, nt, logit_scale=s, **shared, **given)


def released_loops(i, t, ni, nt, s, b, c, image_id=None, **ids):
    shift = (nt - t.unsqueeze(1)).detach()
    total = reference.info_nce(i, t, logit_scale=s, negative_text=nt, negative_mask=MASK, image_id=image_id, **ids)
    for anchor, negative in ((t, nt), (i, i.unsqueeze(1) + shift)):
        total = total + 0.2 * test_ahnpl_released.target_loops(anchor, negative, s, MASK, **ids)
    lead = s * (i * t).sum(1, keepdim=True) - s * (i.unsqueeze(1) * nt).sum(2)
    hinge = (LOGITS[KINDS] - lead).clamp(min=0)
    own = reference.own_mask(ids.get("text_id"), ids.get("negative_text_id"), MASK)
    return total + 0.2 * (hinge * own).sum() / MASK.numel()


def concepts(name, i, t, ni, nt, s, b, c, concept_id=CONCEPT_ID, **given):
    form = test_c2lip.FORMS[name]
    image = torch.stack([i, t, i + t], 1) if form.attended else i
    bias = (b,) if form.binary else ()
    return test_c2lip.run(form, image, c, s, *bias, owner=OWNER, concept_id=concept_id, **given)


def concepts_loops(name, i, t, ni, nt, s, b, c, **given):
    form = test_c2lip.FORMS[name]
    image = torch.stack([i, t, i + t], 1) if form.attended else i
    bias = (b,) if form.binary else ()
    return test_c2lip.loops(form, image, c, s, *bias, owner=OWNER, concept_id=CONCEPT_ID, **given)[0]


def own_pairs(i, t, ni, nt, s, b, c):
    return -torch.nn.functional.logsigmoid(s * (i * t).sum(1) + b).mean()


MASKED = {"negative_image_mask": IMAGE_MASK, "negative_text_mask": TEXT_MASK}
LISTS = {"image_mask": IMAGE_MASK, "text_mask": TEXT_MASK}
FORMS = {
    "info_nce": Form(
        partial(info_nce, info_nce_loss, negatives=False), partial(info_nce, reference.info_nce, negatives=False)
    ),
    "dcl": Form(partial(info_nce, dcl_loss, negatives=False), partial(info_nce, reference.dcl, negatives=False)),
    "sigmoid": Form(partial(sigmoid, sigmoid_loss), partial(sigmoid, reference.sigmoid), own_pairs),
}
WITH_NEGATIVES = {
    "info_nce_negatives": Form(
        partial(info_nce, info_nce_loss, negatives=True), partial(info_nce, reference.info_nce, negatives=True)
    ),
    "dcl_negatives": Form(
        partial(info_nce, dcl_loss, negatives=True), partial(info_nce, reference.dcl, negatives=True)
    ),
    "replaced": Form(
        partial(replaced_loss, replaced_negative_loss), partial(replaced_loss, reference.replaced_negative)
    ),
    "cement": Form(partial(cement, cement_loss, **MASKED), partial(cement, reference.cement, **LISTS)),
    "triplet": Form(partial(triplet, triplet_clip_loss, **MASKED), partial(triplet, reference.triplet_clip, **LISTS)),
    "ce_clip": Form(ce_clip, ce_clip_loops),
    "ahnpl": Form(partial(ahnpl, ahnpl_loss), partial(ahnpl, reference.ahnpl)),
    "ahnpl_released": Form(released_loss, released_loops),
}
CONCEPTS = {
    f"concepts_{name}": Form(partial(concepts, name), partial(concepts_loops, name)) for name in test_c2lip.FORMS
}
EVERY = {**FORMS, **WITH_NEGATIVES, **CONCEPTS}
LOSSES = pytest.mark.parametrize("form", EVERY.values(), ids=EVERY)
IDS = pytest.mark.parametrize("image_id", [ID, ONE], ids=["ragged", "one image"])


@LOSSES
@IDS
def test_equals_loops(form, image_id):
    tensors = batch()
    assert_same(form.loss(*tensors, image_id=image_id)[0], form.loops(*tensors, image_id=image_id), tensors)


@LOSSES
def test_rows_of_one_image_change_the_loss(form):
    tensors = batch()
    assert form.loss(*tensors, image_id=ID)[0] < form.loss(*tensors)[0]


@LOSSES
def test_images_of_their_own_change_nothing_to_the_last_bit(form):
    tensors = batch(torch.float32)
    actual, metrics = form.loss(*tensors, image_id=DISTINCT)
    expected, others = form.loss(*tensors)
    assert torch.equal(actual, expected)
    same = zip(value_and_gradients(actual, tensors)[1], value_and_gradients(expected, tensors)[1], strict=True)
    assert all(torch.equal(first, second) for first, second in same)
    counted = set(metrics) - set(others)
    assert len(counted) == 1 and metrics[counted.pop()] == 0
    assert all(torch.equal(metrics[name], others[name]) for name in others)


@pytest.mark.parametrize("name", [*FORMS, "concepts_info_nce", "concepts_attended_info_nce"])
def test_of_one_image_own_pairs_alone_are_left(name):
    form, tensors = EVERY[name], batch()
    value, metrics = form.loss(*tensors, image_id=ONE)
    if form.alone is None:
        assert_zero(value, tensors)
    else:
        assert_same(value, form.alone(*tensors), tensors)
    # an accuracy compares with nothing; without a denominator DCL has no anchor
    accuracies = {key for key in metrics if key.startswith("accuracy") and "concept" not in name}
    absent = {key for key, x in metrics.items() if x.isnan()}
    assert absent == (set(test_info_nce.PLAIN_KEYS) if name == "dcl" else accuracies)
    for rows in (slice(0, 2), slice(2, 6)):
        of_slice = form.loss(*tensors, image_id=ONE, rows=rows)[1]
        assert {key for key, x in of_slice.items() if x.isnan()} == absent


@pytest.mark.parametrize("name", ["info_nce_negatives", "replaced", "cement", "triplet"])
def test_of_one_image_accuracies_are_among_anchors_with_another_key(name):
    """Captions right below the own negatives where there are any: nothing else is left to be compared with."""
    image = torch.eye(6, dtype=torch.float64)[torch.zeros(6).long()]
    negative = (image + torch.eye(6, dtype=torch.float64)[1]).unsqueeze(1).repeat(1, 2, 1) / 2**0.5
    tensors = [image, -image, negative, negative, torch.tensor(2.0), torch.tensor(0.0), image]
    metrics = EVERY[name].loss(*tensors, image_id=ONE)[1]
    assert metrics["accuracy_image_to_text"] < 0.5
    to_image = metrics["accuracy_text_to_image"]
    assert to_image < 1 if name == "cement" else to_image.isnan()


@LOSSES
@IDS
def test_slices_add_up(form, image_id):
    tensors = batch()
    assert_sliced(lambda rows: form.loss(*tensors, image_id=image_id, rows=rows), 6, tensors)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "ahnpl_released"])  # whose shift is a constant
def test_gradcheck(name):
    form = EVERY[name]
    for rows in (None, slice(1, 4)):
        tensors = batch(scale=3.0)
        assert torch.autograd.gradcheck(
            lambda *t, rows=rows: form.loss(*t, image_id=ID, rows=rows)[0], tensors, fast_mode=True
        )


@LOSSES
def test_chunks_change_nothing(monkeypatch, form):
    tensors = batch(torch.float32)
    assert_chunked(monkeypatch, lambda: form.loss(*tensors, image_id=ID)[0], tensors)


@pytest.mark.parametrize("name", [*FORMS, *WITH_NEGATIVES])
def test_what_is_left_out_is_counted(name):
    _, metrics = EVERY[name].loss(*batch(), image_id=ID)
    assert metrics["same_image_pairs"] == PAIRS
    assert not metrics["same_image_pairs"].requires_grad


@pytest.mark.parametrize("name", CONCEPTS)
def test_concepts_that_are_left_out_are_counted(name):
    _, metrics = CONCEPTS[name].loss(*batch(), image_id=ID)
    others = [sum(1 for i in range(6) if i != o and ID[i] == ID[o]) for o in OWNER.tolist() if o >= 0]
    assert metrics["same_image_concepts"] == sum(others) > 0


@pytest.mark.parametrize("name", ["info_nce", "sigmoid", "info_nce_negatives", "cement"])
def test_accuracy_is_among_what_is_left(name):
    """Every text of an image is nearer to it than the own one, and every other text farther."""
    image = torch.eye(6, dtype=torch.float64)[[0, 1, 0, 1, 0, 2]]
    text = image.clone()
    text[0] = (image[0] + 2 * image[5]) / 5**0.5
    tensors = [image, text, -image.unsqueeze(1).repeat(1, 2, 1), -image.unsqueeze(1).repeat(1, 2, 1)]
    tensors += [torch.tensor(2.0), torch.tensor(0.0), image]
    _, metrics = EVERY[name].loss(*tensors, image_id=torch.tensor([0, 1, 0, 1, 0, 2]))
    _, without = EVERY[name].loss(*tensors)
    assert without["accuracy_image_to_text"] < metrics["accuracy_image_to_text"]


@pytest.mark.parametrize("name", EVERY)
def test_wrong_ids_are_named(name):
    form, tensors = EVERY[name], batch()
    for wrong in (ID.reshape(2, 3), ID.int(), ID.double()):
        with pytest.raises(ValueError, match=r"^image_id has (shape|type) .*expected"):
            form.loss(*tensors, image_id=wrong)
    if "attended" not in name:  # which does not know N
        with pytest.raises(ValueError, match=r"^image_id .*\[5\].*\[N=6\]"):
            form.loss(*tensors, image_id=ID[:5])


# Groups

GROUP_FORMS = {
    "pairwise": (pairwise_group_loss, groups.pairwise),
    "released": (released_pairwise_group_loss, groups.released_pairwise),
    "centroid": (centroid_group_loss, groups.centroid),
}
GROUPS = pytest.mark.parametrize(("loss", "loops"), GROUP_FORMS.values(), ids=GROUP_FORMS)
# groups 0 and 1 share image 4, groups 1 and 3 image 9; 7 is twice in group 1; what RAGGED masks has ids of others
GROUP_ID = torch.tensor([[4, 9, 1], [7, 4, 9], [4, 9, 7], [4, 9, 6]])
ALIKE = torch.tensor([[4, 9, 1], [7, 4, 7], [5, 8, 0], [4, 9, 6]])
EVERYWHERE = torch.full((4, 3), 5)
GROUP_MASKS = pytest.mark.parametrize(
    ("mask", "image_id"),
    [(groups.RAGGED, GROUP_ID), (groups.EVERYONE, ALIKE), (groups.RAGGED, EVERYWHERE), (groups.NOBODY, GROUP_ID)],
    ids=["ragged", "all", "one image", "none"],
)


@GROUPS
@GROUP_MASKS
def test_groups_equal_loops(loss, loops, mask, image_id):
    tensors = groups.batch()
    given = {"mask": mask, "image_id": image_id, **groups.SETTINGS}
    assert_same(loss(*tensors, **given)[0], loops(*tensors, **given), tensors)


@GROUPS
@GROUP_MASKS
def test_groups_in_slices_add_up(loss, loops, mask, image_id):
    tensors = groups.batch()
    given = {"mask": mask, "image_id": image_id, **groups.SETTINGS}
    assert_sliced(lambda rows: loss(*tensors, rows=rows, **given), 4, tensors)


@GROUPS
def test_groups_in_chunks(monkeypatch, loss, loops):
    tensors = groups.batch(torch.float32)
    given = {"mask": groups.RAGGED, "image_id": GROUP_ID, **groups.SETTINGS}
    assert_chunked(monkeypatch, lambda: loss(*tensors, **given)[0], tensors)


@GROUPS
def test_gradients_of_groups(loss, loops):
    for rows in (None, slice(1, 3)):
        given = {"mask": groups.RAGGED, "image_id": GROUP_ID, "rows": rows, **groups.SETTINGS}
        assert torch.autograd.gradcheck(lambda *t, g=given: loss(*t, **g)[0], groups.batch(), fast_mode=True)


@GROUPS
def test_groups_without_common_images_change_nothing(loss, loops):
    tensors = groups.batch(torch.float32)
    # twice in one group: a positive of its own group as before
    apart = torch.tensor([[0, 1, 2], [3, 3, 5], [6, 7, 8], [9, 10, 9]])
    actual, metrics = loss(*tensors, mask=groups.RAGGED, image_id=apart, **groups.SETTINGS)
    expected = loss(*tensors, mask=groups.RAGGED, **groups.SETTINGS)[0]
    torch.testing.assert_close(
        value_and_gradients(actual, tensors), value_and_gradients(expected, tensors), rtol=0, atol=0
    )
    assert metrics["same_image_pairs"] == 0


@GROUPS
def test_groups_of_one_image_have_nothing_to_be_told_from(loss, loops):
    tensors = groups.batch()
    value, metrics = loss(*tensors, image_id=EVERYWHERE, **groups.SETTINGS)
    # pairwise: a group's members are still told apart from no one
    assert_zero(value, tensors)
    assert metrics["same_image_pairs"] == 12 * 9
    assert metrics["accuracy_outer"].isnan() and metrics["accuracy_inner"].isnan()
    assert metrics["loss_outer"] == metrics["loss_inner"] == 0


@GROUPS
def test_accuracies_of_groups_are_among_anchors_that_meet_another(loss, loops):
    """The first image of every group is one: those members meet no other group's centroid."""
    image = torch.eye(4, dtype=torch.float64).unsqueeze(1).repeat(1, 3, 1)
    apart = torch.arange(12).reshape(4, 3)
    shared = apart.clone()
    shared[:, 0] = 0
    given = groups.SETTINGS
    assert loss(image, image, image_id=apart, **given)[1]["accuracy_inner"] == 1
    metrics = loss(image, image, image_id=shared, **given)[1]
    assert metrics["accuracy_inner"] == 1  # of those that meet a centroid
    outer = metrics["accuracy_outer"]
    assert outer.isnan() if loss is centroid_group_loss else outer == 1
    first = loss(image, image, image_id=shared, rows=slice(0, 1), **given)[1]
    assert first["accuracy_inner"] == 1 / 4


@GROUPS
def test_two_groups_with_a_common_image_are_as_documented(loss, loops):
    tensors = groups.batch(groups=2)
    shared = torch.tensor([[1, 2, 3], [1, 4, 5]])
    value, metrics = loss(*tensors, image_id=shared, **groups.SETTINGS)
    assert_same(value, loops(*tensors, mask=groups.EVERYONE[:2], image_id=shared, **groups.SETTINGS), tensors)
    assert (metrics["loss_outer"] == 0) == metrics["accuracy_outer"].isnan() == (loss is centroid_group_loss)


@GROUPS
def test_wrong_ids_of_groups_are_named(loss, loops):
    image, text = groups.batch()
    arguments = {"image": image, "text": text, **groups.SETTINGS}
    assert_shape_errors(loss, arguments, {"image_id": GROUP_ID[:3]})
    assert_shape_errors(loss, arguments, {"image_id": GROUP_ID.int()})
