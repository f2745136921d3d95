"""`hfcomp.distributed` in a single process; several processes are tested in `tests/distributed`."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from hfcomp.distributed import gather, gather_sizes, gather_with_grad, rank, sum_loss, sum_over_processes, world_size


@pytest.fixture(params=["no group", "group of one"])
def alone(request):
    """A single process, also when it was started by a launcher."""
    if request.param == "no group":
        assert not dist.is_initialized()
        yield
        return
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_there_is_one_process_of_rank_0(alone):
    assert (world_size(), rank()) == (1, 0)


def test_sizes_are_its_own(alone):
    assert gather_sizes(3, torch.device("cpu")) == [3]
    assert gather_sizes(0, torch.device("cpu")) == [0]


def test_gather_returns_what_it_got(alone):
    tensors = [torch.randn(3, 2), torch.tensor([True, False, True]), torch.arange(6)]
    gathered = gather(*tensors, sizes=[3])
    assert isinstance(gathered, tuple)
    assert all(first is second for first, second in zip(gathered, tensors, strict=True))
    assert gather(sizes=[3]) == ()


def test_gather_with_grad_keeps_the_gradient(alone):
    first, second = torch.randn(3, 2, requires_grad=True), torch.randn(3, requires_grad=True)
    gathered = gather_with_grad(first, second, sizes=[3])
    assert isinstance(gathered, tuple)
    (gathered[0].sum() * 2 + gathered[1].sum() * 5).backward()
    assert torch.equal(first.grad, torch.full((3, 2), 2.0))
    assert torch.equal(second.grad, torch.full((3,), 5.0))


def test_sum_loss_is_the_loss(alone):
    weight = torch.tensor(3.0, requires_grad=True)
    total = sum_loss(weight**2)
    total.backward()
    assert total.item() == 9
    assert weight.grad.item() == 6


def test_sum_over_processes_is_a_copy_without_gradient(alone):
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    total = sum_over_processes(values)
    assert torch.equal(total, values)
    assert not total.requires_grad
    total.zero_()
    assert values.tolist() == [1, 2]
