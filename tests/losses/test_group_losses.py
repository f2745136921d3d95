"""What holds for all losses over groups: loops over their equations, masks, slices, types and limits. 3 seconds."""

from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hfcomp.losses import centroid_group_loss, pairwise_group_loss
from hfcomp.losses._ops import chunks
from hfcomp.losses.group_pairwise import released_pairwise_group_loss
from tests import tolerances
from tests.losses import groups
from tests.losses.checks import (
    assert_chunked,
    assert_metrics_detached,
    assert_promoted,
    assert_same,
    assert_shape_errors,
    assert_sliced,
    assert_zero,
    unit,
    value_and_gradients,
)
from tests.losses.groups import ALONE, EVERYONE, NOBODY, RAGGED, SETTINGS, batch

FORMS = {
    "pairwise": (pairwise_group_loss, groups.pairwise),
    "released": (released_pairwise_group_loss, groups.released_pairwise),
    "centroid": (centroid_group_loss, groups.centroid),
}
LOSSES = pytest.mark.parametrize(("loss", "loops"), FORMS.values(), ids=FORMS)
MASKS = pytest.mark.parametrize("mask", [RAGGED, EVERYONE, NOBODY], ids=["ragged", "all", "none"])
METRICS = ("loss_outer", "loss_inner", "accuracy_outer", "accuracy_inner")


@LOSSES
@MASKS
def test_equals_loops(loss, loops, mask):
    tensors = batch()
    assert_same(loss(*tensors, mask=mask, **SETTINGS)[0], loops(*tensors, mask, **SETTINGS), tensors)


@LOSSES
def test_without_a_mask_all_are_members(loss, loops):
    tensors = batch()
    assert_same(loss(*tensors, **SETTINGS)[0], loss(*tensors, mask=EVERYONE, **SETTINGS)[0], tensors)


@LOSSES
def test_gradcheck(loss, loops):
    tensors, mask = batch(groups=3, members=2, width=3), torch.tensor([[1, 1], [1, 0], [1, 1]]).bool()
    for rows in (None, slice(1, 3)):
        value = partial(loss, mask=mask, rows=rows, **SETTINGS)
        assert torch.autograd.gradcheck(lambda *t, f=value: f(*t)[0], tensors, fast_mode=True)


@LOSSES
@MASKS
def test_slices_add_up(loss, loops, mask):
    tensors = batch()
    assert_sliced(lambda rows: loss(*tensors, mask=mask, rows=rows, **SETTINGS), 4, tensors)


@LOSSES
def test_chunks_change_nothing(monkeypatch, loss, loops):
    tensors = batch(torch.float32)
    assert_chunked(monkeypatch, lambda: loss(*tensors, mask=RAGGED, **SETTINGS)[0], tensors)


@LOSSES
def test_types(loss, loops):
    assert_promoted(lambda *tensors: loss(*tensors, mask=RAGGED, **SETTINGS)[0], batch)


@LOSSES
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_exact_at_a_temperature_of_a_hundredth(loss, loops, dtype):
    cold = {"temperature": 0.01, "inner_temperature": 0.01, "alpha": 0.5}
    tensors = batch(dtype, groups=6, members=8, width=32)
    value, gradients = value_and_gradients(loss(*tensors, **cold)[0], tensors)
    exact = value_and_gradients(loss(*(x.double() for x in tensors), **cold)[0], tensors)
    torch.testing.assert_close(value.double(), exact[0], rtol=0, atol=2 * tolerances.log_sum_exp(100, 32, 6 * 8))
    torch.testing.assert_close(gradients, exact[1], rtol=0.02, atol=1e-3)


@LOSSES
@pytest.mark.parametrize("mask", [ALONE, NOBODY], ids=["one", "none"])
def test_without_two_groups_there_is_nothing_to_tell_apart(loss, loops, mask):
    tensors = batch()
    value, metrics = loss(*tensors, mask=mask, **SETTINGS)
    assert_zero(value, tensors)
    # one group is compared with none, as a single pair is in InfoNCE
    assert_metrics_detached(metrics, *METRICS, absent=METRICS[2:] if mask.any() else METRICS)


@LOSSES
def test_masked_members_are_nobody(loss, loops):
    tensors = batch()
    out = ~RAGGED.unsqueeze(-1)
    poisoned = [x.detach().masked_fill(out, torch.nan).requires_grad_() for x in tensors]
    expected = value_and_gradients(loss(*tensors, mask=RAGGED, **SETTINGS)[0], tensors)
    actual = value_and_gradients(loss(*poisoned, mask=RAGGED, **SETTINGS)[0], poisoned)
    torch.testing.assert_close(actual, expected)
    assert all((gradient[~RAGGED] == 0).all() and (gradient[RAGGED] != 0).all() for gradient in actual[1])


@LOSSES
def test_an_empty_group_is_as_good_as_absent(loss, loops):
    tensors, there = batch(), RAGGED.any(1)
    fewer = loss(*(x[there] for x in tensors), mask=RAGGED[there], **SETTINGS)
    actual = loss(*tensors, mask=RAGGED, **SETTINGS)
    assert_same(actual[0], fewer[0], tensors)
    torch.testing.assert_close(actual[1], fewer[1])


@LOSSES
def test_the_order_of_groups_and_members_does_not_matter(loss, loops):
    image, text = tensors = batch()
    value = partial(loss, mask=RAGGED, **SETTINGS)
    for order in ([3, 0, 2, 1], [1, 2, 3, 0]):
        moved = loss(image[order], text[order], mask=RAGGED[order], **SETTINGS)
        assert_same(moved[0], value(*tensors)[0], tensors)
        torch.testing.assert_close(moved[1], value(*tensors)[1])
    order = [2, 0, 1]
    moved = loss(image[:, order], text[:, order], mask=RAGGED[:, order], **SETTINGS)[0]
    assert_same(moved, value(*tensors)[0], tensors)
    # a group does not know which of its texts describes which of its images
    assert_same(loss(image[:, order], text, **SETTINGS)[0], loss(*tensors, **SETTINGS)[0], tensors)


@LOSSES
def test_alpha_goes_from_one_term_to_the_other(loss, loops):
    tensors, last = batch(), loss is not released_pairwise_group_loss
    for alpha in (0.0, 0.25, 1.0):
        value, metrics = loss(*tensors, mask=RAGGED, **{**SETTINGS, "alpha": alpha})
        inner = alpha if last else 1 - alpha
        torch.testing.assert_close(value.detach(), inner * metrics["loss_inner"] + (1 - inner) * metrics["loss_outer"])


@LOSSES
def test_each_temperature_has_its_own_term(loss, loops):
    tensors = batch()
    _, before = loss(*tensors, **SETTINGS)
    for name, moved, kept in (
        ("temperature", "loss_outer", "loss_inner"),
        ("inner_temperature", "loss_inner", "loss_outer"),
    ):
        _, after = loss(*tensors, **{**SETTINGS, name: 2 * SETTINGS[name]})
        assert after[kept] == before[kept] and after[moved] != before[moved]


@LOSSES
def test_metrics_of_scorers(loss, loops):
    _, metrics = loss(*batch(), mask=RAGGED, **SETTINGS)
    assert_metrics_detached(metrics, *METRICS)
    axes = torch.eye(4, dtype=torch.float64).unsqueeze(1).expand(4, 3, 4)
    _, perfect = loss(axes, axes, **SETTINGS)
    assert all(perfect[name] == 1 for name in METRICS[2:])
    _, turned = loss(axes, axes[[1, 2, 3, 0]], **SETTINGS)
    assert turned["accuracy_outer"] == 0
    same = unit(1, 1, 5, seed=3).detach().expand(4, 3, 5)
    _, constant = loss(same, same, **SETTINGS)
    assert all(constant[name] == 0 for name in METRICS[2:])


class Largest(TorchDispatchMode):
    """Remembers how many elements the largest tensor had that any operation returned."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, torch.Tensor):
                # a stand-in of one stored element has no size in memory
                self.elements = max(self.elements, min(x.numel(), x.untyped_storage().nbytes() // x.itemsize))
        return out


@LOSSES
def test_no_joint_vectors_are_made(monkeypatch, loss, loops):
    monkeypatch.setattr(chunks, "CPU_ELEMENTS", 1 << 14)
    tensors = batch(torch.float32, groups=2, members=24, width=32)
    with Largest() as largest:
        loss(*tensors, **SETTINGS)[0].backward()
    # neither of all groups nor of one
    assert 0 < largest.elements <= 2 * 24 * 32 * 2 < 24 * 24 * 32


@LOSSES
def test_a_second_derivative_is_refused(loss, loops):
    tensors = batch()
    value, _ = loss(*tensors, **SETTINGS)
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(value, tensors, create_graph=True)


@LOSSES
def test_without_gradient(loss, loops):
    tensors = batch()
    with torch.no_grad():
        value, _ = loss(*tensors, mask=RAGGED, **SETTINGS)
    assert not value.requires_grad
    torch.testing.assert_close(value, loss(*tensors, mask=RAGGED, **SETTINGS)[0].detach())
    # a frozen tower
    image, text = tensors
    whole = value_and_gradients(loss(image, text, **SETTINGS)[0], (text,))
    torch.testing.assert_close(value_and_gradients(loss(image.detach(), text, **SETTINGS)[0], (text,)), whole)


@LOSSES
def test_wrong_arguments_are_named(loss, loops):
    image, text = batch()
    wrong = {"image": image[0], "text": text[:, :2], "mask": RAGGED.float()}
    assert_shape_errors(loss, {"image": image, "text": text, "mask": RAGGED, **SETTINGS}, wrong)
    assert_shape_errors(loss, {"image": image, "text": text, **SETTINGS}, {"image": image[:, :0], "mask": RAGGED.T})
    for name, value in (("temperature", 0), ("inner_temperature", float("inf")), ("alpha", 1.2), ("alpha", -0.1)):
        with pytest.raises(ValueError, match=rf"^{name}: .*expected"):
            loss(image, text, **{**SETTINGS, name: value})
