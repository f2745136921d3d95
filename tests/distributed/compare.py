"""How close several processes must come to one, in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.distributed.cases import MASKS, leaves, loss_of
from tests.distributed.launch import Result

RELATIVE = 3e-6
# of the log, whose later lines have Adam's steps behind them, which enlarge rounding
RELATIVE_LOG = 1e-5
# of the largest entry of all tensors: some gradients are zero but for rounding (a bias of keys changes no attention)
FLOOR = 1e-7


def assert_same_tensors(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Every tensor is the same but for rounding, relative to its own largest entry."""
    assert expected
    assert found.keys() == expected.keys()
    floor = FLOOR * max(1.0, *(largest(x) for x in expected.values()))
    for name, tensor in expected.items():
        other = found[name]
        assert other.shape == tensor.shape, name
        assert other.dtype == tensor.dtype, name
        assert torch.equal(other.isnan(), tensor.isnan()), name
        difference = largest(other.double() - tensor.double())
        assert difference <= RELATIVE * largest(tensor) + floor, f"{name}: {difference} of {largest(tensor)}"


def largest(tensor: torch.Tensor) -> float:
    return tensor.double().nan_to_num().abs().max().item() if tensor.numel() else 0.0


def assert_same_log(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Every line of the log has the same keys and values."""
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=RELATIVE_LOG, abs=2e-6, nan_ok=False)


def assert_same_batch(found: list[Result], single: Result) -> None:
    """Loss, gradients, gathered features and log of one batch; image tokens are those of the process's own rows."""
    assert {result.facts["wrapped"] for result in found} == {"DistributedDataParallel"}
    for result in found:
        assert_same_tensors({"loss": result.tensors["loss"]}, {"loss": single.tensors["loss"]})
        assert_same_tensors(result.part("gradient"), single.part("gradient"))
        expected, fields = single.part("field"), result.part("field")
        if "tokens" in expected:
            expected |= {"tokens": expected["tokens"][slice(*result.facts["rows"])]}
        assert_same_tensors(fields, expected)
    assert_same_log([found[0].facts["log"]], [single.facts["log"]])


def assert_slices_add_up(results: list[Result], loss: str, sizes: list[int]) -> None:
    """Value and gradients of a loss in slices, `sizes` rows on each process, are those of the whole loss here."""
    assert [result.facts["sizes"] for result in results] == [sizes] * len(sizes)
    full = leaves()
    whole = loss_of(loss, {**full, **MASKS}, None)
    whole.backward()
    for result in results:
        torch.testing.assert_close(result.tensors[f"{loss}/loss"], whole.detach(), rtol=1e-12, atol=0)
    for name, leaf in full.items():
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        # DDP takes the mean over processes
        mean = torch.stack([result.tensors[f"{loss}/{name}"] for result in results]).mean(0)
        torch.testing.assert_close(mean, gradient, rtol=1e-12, atol=1e-13)


def assert_same_embeddings(found: list[Result], single: Result) -> None:
    """Every process has every embedding, to the last bit that of one process; the work was shared."""
    assert single.facts["encoded"] == {"cold": [7, 11], "part": [4, 6], "warm": [0, 0]}
    for result in found:
        for name in ("cold", "part", "warm"):
            for kind, expected in single.part(name).items():
                assert torch.equal(result.part(name)[kind], expected), (name, kind)
        assert "column 'image', row 8 is in no image format" in result.facts["failure"]
    for name, expected in single.facts["encoded"].items():
        shares = [result.facts["encoded"][name] for result in found]
        assert [sum(share) for share in zip(*shares, strict=True)] == expected
        assert name == "warm" or max(share[1] for share in shares) < expected[1]
