"""Tolerances in float32 between several processes and one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests import tolerances
from tests.distributed.cases import MASKS, leaves, loss_of
from tests.distributed.launch import Result

# of the losses alone in float64: 7 rows of 16 numbers, up to 21 logits at a scale of 7, margins of up to 3 added
LOSS = 2 * tolerances.log_sum_exp(10, 16, 21, torch.float64)
GRADIENT = tolerances.softmax_gradient(10 * (7 + 1), 10, 16, 21, torch.float64)


def assert_same_tensors(
    actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], allowed: dict[str, float] | float
) -> None:
    """Every tensor is the same but for what is allowed of it, absolute: of all of them, or by name."""
    assert expected
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        other = actual[name]
        assert other.shape == tensor.shape, name
        assert other.dtype == tensor.dtype, name
        assert torch.equal(other.isnan(), tensor.isnan()), name
        difference = largest(other.double() - tensor.double())
        limit = allowed[name] if isinstance(allowed, dict) else allowed
        assert difference <= limit, f"{name}: {difference} of {largest(tensor)}, allowed {limit}"


def largest(tensor: torch.Tensor) -> float:
    return tensor.double().nan_to_num().abs().max().item() if tensor.numel() else 0.0


def scale_of(single: Result) -> float:
    """The factor of the cosines that a case of training began with."""
    scalars = {name.rpartition(".")[2]: value for name, value in single.part("before").items()}
    return (scalars["logit_scale"].exp() if "logit_scale" in scalars else 1 / scalars["temperature"]).item()


def weight_tolerances(single: Result, scale: float) -> dict[str, float]:
    """The tolerance of each weight after the case's steps, by the gradients of the first one."""
    gradients = tolerances.gradients(single.part("gradient"), scale)
    adam = single.facts["adam"]
    return {
        name: tolerances.adam(gradients.get(name, 0.0), largest(weight), **adam)
        for name, weight in single.part("weight").items()
    }


def assert_same_log(actual: list[dict[str, Any]], expected: list[dict[str, Any]], scale: float) -> None:
    """Every line of the log has the same keys and values."""
    assert len(actual) == len(expected) > 0
    for line, other in zip(actual, expected, strict=True):
        assert line == pytest.approx(other, rel=tolerances.gradient(scale), abs=tolerances.loss(scale), nan_ok=False)


def assert_same_batch(results: list[Result], single: Result) -> None:
    """Loss, gradients, gathered features and log of one batch; image tokens are those of the process's own rows."""
    assert {result.facts["wrapped"] for result in results} == {"DistributedDataParallel"}
    scale, gradients = single.tensors["field/logit_scale"].item(), single.part("gradient")
    for result in results:
        assert_same_tensors({"loss": result.tensors["loss"]}, {"loss": single.tensors["loss"]}, tolerances.loss(scale))
        assert_same_tensors(result.part("gradient"), gradients, tolerances.gradients(gradients, scale))
        expected, fields = single.part("field"), result.part("field")
        if "tokens" in expected:
            expected |= {"tokens": expected["tokens"][slice(*result.facts["rows"])]}
        assert_same_tensors(fields, expected, tolerances.embedding())
    assert_same_log([results[0].facts["log"]], [single.facts["log"]], scale)


def assert_slices_add_up(results: list[Result], loss: str, sizes: list[int]) -> None:
    """Value and gradients of a loss in slices, `sizes` rows on each process, are those of the whole loss here."""
    assert [result.facts["sizes"] for result in results] == [sizes] * len(sizes)
    full = leaves()
    whole = loss_of(loss, {**full, **MASKS}, None)
    whole.backward()
    for result in results:
        torch.testing.assert_close(result.tensors[f"{loss}/loss"], whole.detach(), rtol=0, atol=LOSS)
    for name, leaf in full.items():
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        # DDP takes the mean over processes
        mean = torch.stack([result.tensors[f"{loss}/{name}"] for result in results]).mean(0)
        torch.testing.assert_close(mean, gradient, rtol=0, atol=GRADIENT)


def assert_same_embeddings(results: list[Result], single: Result) -> None:
    """Every process has every embedding, to the last bit that of one process; the work was shared."""
    assert single.facts["encoded"] == {"cold": [7, 11], "part": [4, 6], "warm": [0, 0]}
    for result in results:
        for name in ("cold", "part", "warm"):
            for kind, expected in single.part(name).items():
                assert torch.equal(result.part(name)[kind], expected), (name, kind)
        assert "column 'image', row 8 " in result.facts["failure"]
    for name, expected in single.facts["encoded"].items():
        shares = [result.facts["encoded"][name] for result in results]
        assert [sum(share) for share in zip(*shares, strict=True)] == expected
        assert name == "warm" or max(share[1] for share in shares) < expected[1]
