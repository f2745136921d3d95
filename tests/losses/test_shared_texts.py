"""Rows of one text, in every loss: neither positive nor negative of each other, against loops. 10 seconds."""

import pytest
import torch

from hfcomp.losses import dcl_loss, info_nce_loss, sigmoid_loss
from hfcomp.losses._ops import chunks
from hfcomp.losses._ops.contrast import contrast
from hfcomp.losses.ahnpl_released import negative_target_loss
from tests.losses import groups, test_c2lip, test_memory
from tests.losses.checks import (
    assert_chunked,
    assert_promoted,
    assert_same,
    assert_shape_errors,
    assert_sliced,
    assert_zero,
    unit,
    value_and_gradients,
)
from tests.losses.test_shared_images import (
    CONCEPT_ID,
    CONCEPTS,
    DISTINCT,
    EVERY,
    GROUP_FORMS,
    GROUP_ID,
    GROUPS,
    MASK,
    OWNER,
    TEXT_MASK,
    batch,
)

# 0 and 2 are of one image and have one text, which 5 has too; 1 and 3 are of another image, 1 and 4 have another text
IMAGE = torch.tensor([0, 2**62, 0, 2**62, 9, -7])
TEXT = torch.tensor([5, 6, 5, -(2**61), 6, 5])
# 0 meets no other row: 1 and 2 share its image, 3 to 5 its text; 1 and 2 have the others, though
STAR_IMAGE, STAR_TEXT = torch.tensor([1, 1, 1, 2, 3, 4]), torch.tensor([7, 8, 9, 7, 7, 7])
# (0, 0) is the text of 0, 2 and 5, its own among them; (2, 1) that of 1 and 4; (3, 1) that of 3; (5, 1) is masked;
# (2, 0), (4, 0) and (4, 1) are equal to each other, and no row's
NEGATIVE = torch.tensor([[5, 1], [2, 3], [4, 6], [8, -(2**61)], [4, 4], [9, 5]])
ONE = torch.full((6,), 11)
IDS = {
    "text": {"text_id": TEXT},
    "both": {"image_id": IMAGE, "text_id": TEXT},
    "star": {"image_id": STAR_IMAGE, "text_id": STAR_TEXT},
    "negatives": {"image_id": IMAGE, "text_id": TEXT, "negative_text_id": NEGATIVE},
    "one text": {"text_id": ONE, "negative_text_id": NEGATIVE},
    "negatives of one text": {"text_id": ONE, "negative_text_id": torch.full((6, 2), 11)},
}
LOSSES = pytest.mark.parametrize("name", EVERY)
WITH_IDS = pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
FIRST_NEGATIVE = ("cement", "triplet")
OF_NEGATIVES = ("info_nce_negatives", "dcl_negatives", "ce_clip", "ahnpl", "ahnpl_released", *FIRST_NEGATIVE)


def given_to(name, ids):
    """The ids that a loss takes: those of negatives where their texts are keys."""
    ids = dict(ids)
    negative = ids.pop("negative_text_id", None)
    if negative is None or name not in OF_NEGATIVES:
        return ids
    return {**ids, "negative_text_id": negative[:, 0] if name in FIRST_NEGATIVE else negative}


def run(name, tensors, ids, **further):
    return EVERY[name].loss(*tensors, **given_to(name, ids), **further)


@LOSSES
@WITH_IDS
def test_equals_loops(name, ids):
    tensors = batch()
    assert_same(run(name, tensors, ids)[0], EVERY[name].loops(*tensors, **given_to(name, ids)), tensors)


@LOSSES
@pytest.mark.parametrize("ids", [IDS["star"], IDS["negatives"]], ids=["star", "negatives"])
def test_slices_add_up(name, ids):
    tensors = batch()
    assert_sliced(lambda rows: run(name, tensors, ids, rows=rows), 6, tensors)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "ahnpl_released"])  # whose shift is a constant
def test_gradcheck(name):
    for rows in (None, slice(1, 4)):
        tensors = batch(scale=3.0)
        assert torch.autograd.gradcheck(
            lambda *t, rows=rows: run(name, t, IDS["negatives"], rows=rows)[0], tensors, fast_mode=True
        )


@LOSSES
def test_texts_of_their_own_change_nothing_to_the_last_bit(name):
    tensors = batch(torch.float32)
    apart = {"text_id": DISTINCT, "negative_text_id": torch.arange(12).reshape(6, 2) + 100}
    actual, metrics = run(name, tensors, apart)
    expected, others = EVERY[name].loss(*tensors)
    assert torch.equal(actual, expected)
    same = zip(value_and_gradients(actual, tensors)[1], value_and_gradients(expected, tensors)[1], strict=True)
    assert all(torch.equal(first, second) for first, second in same)
    counted = set(metrics) - set(others)
    assert all(metrics[key] == 0 for key in counted)
    assert all(torch.equal(metrics[key], others[key]) for key in others if key != "same_text_concepts")


@LOSSES
def test_chunks_change_nothing(monkeypatch, name):
    tensors = batch(torch.float32)
    assert_chunked(monkeypatch, lambda: run(name, tensors, IDS["negatives"])[0], tensors)


@pytest.mark.parametrize(
    "name", ["info_nce", "sigmoid", "info_nce_negatives", "cement", "triplet", "concepts_sigmoid"]
)
def test_half_types_are_promoted(name):
    assert_promoted(lambda *t: run(name, t, IDS["negatives"])[0], batch)


@pytest.mark.parametrize("name", ["info_nce", "dcl", "replaced", "sigmoid", "info_nce_negatives", "ce_clip"])
def test_what_is_left_out_is_counted(name):
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    of_image = [(i, j) for i, j in pairs if IMAGE[i] == IMAGE[j]]
    of_text = [(i, j) for i, j in pairs if TEXT[i] == TEXT[j] and (i, j) not in of_image]
    _, metrics = run(name, batch(), IDS["negatives"])
    assert (metrics["same_image_pairs"], metrics["same_text_pairs"]) == (len(of_image), len(of_text))
    assert len(of_text) == 6  # 0 with 2 is of one image
    if name in OF_NEGATIVES:
        equal = [i for i in range(6) for at in MASK.nonzero().tolist() if NEGATIVE[*at] == TEXT[i]]
        assert metrics["same_text_negatives"] == len(equal) == 3 + 2 + 1
    assert not any(metrics[key].requires_grad for key in metrics if key.startswith("same"))


def test_pairs_of_the_doubled_batch_are_counted():
    says = [*TEXT.tolist(), *(x if ok else None for x, ok in zip(NEGATIVE[:, 0].tolist(), TEXT_MASK, strict=True))]
    equal = [(i, j) for i in range(12) for j in range(12) if i != j and says[i] is not None and says[i] == says[j]]
    same = [(i, j) for i, j in equal if max(i, j) < 6 and IMAGE[i] == IMAGE[j]]
    _, metrics = run("cement", batch(), IDS["negatives"])
    assert metrics["same_text_pairs"] == len(equal) - len(same) > 6
    # originals meet all texts in one half, negatives in the other
    first = [(i, j) for i, j in equal if i < 6 and j < 6 and (i, j) not in same]
    second = [(i, j) for i, j in equal if i >= 6 and j >= 6]
    _, metrics = run("triplet", batch(), IDS["negatives"])
    assert metrics["same_text_pairs"] == len(first) + len(second)
    assert metrics["same_text_negatives"] == len(equal) - len(first) - len(same) - len(second)


@pytest.mark.parametrize("name", CONCEPTS)
@pytest.mark.parametrize("concept_id", [CONCEPT_ID, None], ids=["phrases", "captions"])
def test_concepts_that_are_left_out_are_counted(name, concept_id):
    places = [j for j in range(9) if OWNER[j] >= 0]
    of_image, of_text = 0, 0
    for i in range(6):
        own = {int(CONCEPT_ID[j]) for j in places if OWNER[j] == i and concept_id is not None}
        for j in places:
            o = OWNER[j]
            same = o != i and IMAGE[o] == IMAGE[i]
            of_image += int(same)
            of_text += int(o != i and not same and (TEXT[o] == TEXT[i] or int(CONCEPT_ID[j]) in own))
    _, metrics = run(name, batch(), IDS["both"], concept_id=concept_id)
    assert (metrics["same_image_concepts"], metrics["same_text_concepts"]) == (of_image, of_text)
    assert of_image and of_text


def test_equal_captions_with_equal_phrases_need_ids_of_phrases_alone():
    """Two rows with one caption have the phrases of that caption: numbers of captions add nothing to their numbers."""
    form = test_c2lip.FORMS["sigmoid"]
    image, concepts, scale, bias = unit(3, 4, seed=1), unit(6, 4, seed=2), torch.tensor(9.0), torch.tensor(-3.0)
    owner, phrase = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([7, 8, 7, 8, 9, 8])
    ids = {"owner": owner, "concept_id": phrase}
    actual = test_c2lip.run(form, image, concepts, scale, bias, **ids, text_id=torch.tensor([4, 4, 5]))
    expected = test_c2lip.run(form, image, concepts, scale, bias, **ids)
    assert_same(actual[0], expected[0], (image, concepts))


@pytest.mark.parametrize("name", ["info_nce", "dcl", "info_nce_negatives", "dcl_negatives", "sigmoid", "replaced"])
def test_accuracies_are_among_anchors_with_another_key(name):
    """Row 0 of the star meets no other row; all others rank their own first."""
    image = torch.eye(6, dtype=torch.float64)
    far = -image.unsqueeze(1).repeat(1, 2, 1)
    tensors = [image, image, far, far, torch.tensor(2.0), torch.tensor(0.0), image]
    _, metrics = run(name, tensors, IDS["star"])
    # a share of the anchors that are compared, and of a slice its part of them
    assert metrics["accuracy_image_to_text"] == 1
    compared = 6 if name in ("info_nce_negatives", "dcl_negatives") else 5
    _, of_first = run(name, tensors, IDS["star"], rows=slice(0, 1))
    if name == "replaced":  # row 0 has own negatives in place of two texts
        compared = 6
    assert of_first["accuracy_image_to_text"] == pytest.approx((compared - 5) / compared)


@pytest.mark.parametrize("loss", [info_nce_loss, dcl_loss])
def test_a_negative_that_is_the_own_text_is_no_negative_of_it(loss):
    image = torch.eye(3, dtype=torch.float64)
    ids = {"text_id": torch.arange(3), "negative_text_id": torch.tensor([[0], [8], [9]])}
    negative = torch.stack([image[0], -image[1], -image[2]]).unsqueeze(1)
    given = {"logit_scale": torch.tensor(2.0), "negative_text": negative}
    _, metrics = loss(image, image, **given, **ids)
    assert metrics["hard_negative_accuracy"] == 1  # of rows 1 and 2
    assert loss(image, image, **given)[1]["hard_negative_accuracy"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("name", ["info_nce", "info_nce_negatives", "dcl", "dcl_negatives"])
def test_of_one_text_nothing_is_left(name):
    tensors = batch()
    value, metrics = run(name, tensors, IDS["negatives of one text"])
    assert_zero(value, tensors)
    assert metrics["accuracy_image_to_text"].isnan() and metrics["accuracy_text_to_image"].isnan()
    if "negatives" in name:
        assert metrics["hard_negative_accuracy"].isnan()


def test_of_one_text_a_negative_target_is_not_counted():
    anchor, negative = unit(3, 4, seed=1), unit(3, 2, 4, seed=2)
    ids = {"text_id": torch.zeros(3).long(), "negative_text_id": torch.zeros(3, 2).long()}
    value, metrics = negative_target_loss(anchor, negative, logit_scale=torch.tensor(3.0), **ids)
    assert_zero(value, (anchor, negative))
    assert metrics["loss_negative_target"].isnan()


@LOSSES
def test_wrong_ids_are_named(name):
    tensors = batch()
    for wrong in (TEXT.reshape(2, 3), TEXT.int(), TEXT.double()):
        with pytest.raises(ValueError, match=r"^text_id has (shape|type) .*expected"):
            run(name, tensors, {"text_id": wrong})
    if name not in OF_NEGATIVES:
        return
    right = given_to(name, {"negative_text_id": NEGATIVE})["negative_text_id"]
    for wrong in (right[:5], right.int()):
        with pytest.raises(ValueError, match=r"^negative_text_id has (shape|type) .*expected"):
            EVERY[name].loss(*tensors, text_id=TEXT, negative_text_id=wrong)
    with pytest.raises(ValueError, match=r"^negative_text_id .*without text_id"):
        EVERY[name].loss(*tensors, negative_text_id=right)


def test_ids_of_negatives_need_negatives():
    image, text, *_ = batch()
    with pytest.raises(ValueError, match="negative_text_id .*without negative_text"):
        info_nce_loss(image, text, logit_scale=torch.tensor(2.0), text_id=TEXT, negative_text_id=NEGATIVE)


@pytest.mark.parametrize("columns", [True, False])
def test_the_primitive_leaves_out_what_is_equal_in_any_line(columns):
    query, keys, scale = unit(5, 4, seed=1), unit(7, 4, seed=2), torch.tensor(3.0, dtype=torch.float64)
    query_groups, key_groups = (
        torch.tensor([[0, 1, 0, 2, 3], [5, 5, 6, 7, 8]]),
        torch.tensor([[1, 1, 4, 0, 9, 9, 9], [8, 4, 5, 5, 8, 9, 9]]),
    )
    actual = contrast(query, keys, scale, query_groups=query_groups, key_groups=key_groups, columns=columns)
    logits = (scale * query @ keys.T).masked_fill((query_groups[:, :, None] == key_groups[:, None]).any(0), -torch.inf)
    torch.testing.assert_close(actual.row, logits.logsumexp(1))
    torch.testing.assert_close(actual.column, logits.logsumexp(0)[: 7 if columns else 0])


def test_memory_stays_linear(monkeypatch):
    for name, number in test_memory.LIMITS.items():
        monkeypatch.setattr(chunks, name, number)

    def largest(rows):
        image, text = (unit(rows, 4, seed=seed, dtype=torch.float32) for seed in (1, 2))
        negative = unit(rows, 2, 4, seed=3, dtype=torch.float32)
        ids = torch.arange(rows) % (rows // 2)
        scale = torch.tensor(3.0)
        with test_memory.Largest() as tracker:
            loss, _ = info_nce_loss(
                image,
                text,
                logit_scale=scale,
                negative_text=negative,
                image_id=ids.flip(0),
                text_id=ids,
                negative_text_id=torch.stack([ids, ids + rows], 1),
            )
            more, _ = sigmoid_loss(
                image, text, logit_scale=scale, logit_bias=-scale, image_id=ids, text_id=ids.flip(0)
            )
            (loss + more).backward()
        return tracker.elements

    few, many = largest(64), largest(256)
    assert many <= max(test_memory.LIMITS["CPU_ELEMENTS"], 4 * few)


# Groups

# the third member of group 0 and the second of 3 have one caption, those of 1 two equal ones
GROUP_TEXT = torch.tensor([[1, 2, 3], [4, 4, 5], [6, 7, 8], [9, 3, 10]])
GROUP_IDS = {
    "text": {"text_id": GROUP_TEXT},
    "both": {"image_id": GROUP_ID, "text_id": GROUP_TEXT},
    "one text": {"text_id": torch.full((4, 3), 5)},
}
WITH_GROUP_IDS = pytest.mark.parametrize("ids", GROUP_IDS.values(), ids=GROUP_IDS)


@GROUPS
@WITH_GROUP_IDS
@pytest.mark.parametrize("mask", [groups.RAGGED, groups.EVERYONE, groups.NOBODY], ids=["ragged", "all", "none"])
def test_groups_equal_loops(loss, loops, mask, ids):
    tensors = groups.batch()
    given = {"mask": mask, **ids, **groups.SETTINGS}
    assert_same(loss(*tensors, **given)[0], loops(*tensors, **given), tensors)
    assert_sliced(lambda rows: loss(*tensors, rows=rows, **given), 4, tensors)


@GROUPS
def test_groups_in_chunks(monkeypatch, loss, loops):
    tensors = groups.batch(torch.float32)
    given = {"mask": groups.EVERYONE, **GROUP_IDS["both"], **groups.SETTINGS}
    assert_chunked(monkeypatch, lambda: loss(*tensors, **given)[0], tensors)


@GROUPS
def test_gradients_of_groups(loss, loops):
    given = {"mask": groups.EVERYONE, **GROUP_IDS["both"], **groups.SETTINGS}
    assert torch.autograd.gradcheck(lambda *t: loss(*t, **given)[0], groups.batch(), fast_mode=True)


@pytest.mark.parametrize("name", GROUP_FORMS)
def test_groups_count_what_they_leave_out(name):
    places = [(g, i) for g in range(4) for i in range(3)]
    of_image = [(a, b) for a in places for b in places if a[0] != b[0] and GROUP_ID[a] == GROUP_ID[b]]
    of_text = [(a, b) for a in places for b in places if a[0] != b[0] and GROUP_TEXT[a] == GROUP_TEXT[b]]
    further = [pair for pair in of_text if pair not in of_image]
    _, metrics = GROUP_FORMS[name][0](*groups.batch(), **GROUP_IDS["both"], **groups.SETTINGS)
    assert (metrics["same_image_pairs"], metrics["same_text_pairs"]) == (len(of_image), len(further))
    assert further


@GROUPS
def test_wrong_ids_of_groups_are_named(loss, loops):
    image, text = groups.batch()
    arguments = {"image": image, "text": text, **groups.SETTINGS}
    assert_shape_errors(loss, arguments, {"text_id": GROUP_TEXT[:3]})
    assert_shape_errors(loss, arguments, {"text_id": GROUP_TEXT.int()})
