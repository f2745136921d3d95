"""Every public loss is linear in memory: the largest tensor of its forward and backward pass is a chunk or O(N)."""

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hfcomp import losses
from hfcomp.losses._ops import chunks

sys.path.append(str(Path(__file__).parents[2] / "benchmarks_perf"))
import loss_memory
from loss_cases import LOSSES, Batch

ROWS, WIDTH = 64, 4
# chunks far smaller than the batches, so that what is not cut is seen
LIMITS = {"CPU_ELEMENTS": 1 << 13, "TILE_ELEMENTS": 1 << 13, "TILE_ROWS": 64, "CPU_KEPT": 1 << 13}


class Largest(TorchDispatchMode):
    """Remembers the most elements of any tensor's memory that an operation returned."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.untyped_storage().nbytes() // 4)
        return result


def largest(function, rows):
    loss_of = LOSSES[function](Batch(rows, WIDTH))
    with Largest() as tracker:
        loss_of()[0].backward()
    return tracker.elements


def public_losses():
    for module in pkgutil.iter_modules(losses.__path__, losses.__name__ + "."):
        loaded_module = importlib.import_module(module.name)
        for name, function in inspect.getmembers(loaded_module, inspect.isfunction):
            if name.endswith("_loss") and not name.startswith("_") and function.__module__ == module.name:
                yield function


def test_every_public_loss_is_measured():
    assert set(public_losses()) == set(LOSSES)


@pytest.mark.parametrize("function", LOSSES, ids=lambda function: function.__name__)
def test_largest_tensor_is_linear_in_rows(function, monkeypatch):
    for name, number in LIMITS.items():
        monkeypatch.setattr(chunks, name, number)
    few, many = largest(function, ROWS), largest(function, 4 * ROWS)
    # N x N would grow by 16; a chunk does not grow, what is O(N) grows by 4
    assert many <= max(LIMITS["CPU_ELEMENTS"], 4 * few)
    assert many <= (4 * ROWS) ** 2 / 4


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="without /proc resident memory cannot be read")
def test_freed_chunks_are_used_again():
    """Small numbers kept from each chunk took 480 MB: matrices of a later chunk fitted nowhere between them."""
    words = ["--rows", "8192", "--losses", "concept_loss", "--here"]
    done = subprocess.run([sys.executable, loss_memory.__file__, *words], capture_output=True, check=True)
    assert json.loads(done.stdout)["gigabytes"] < 0.2


def test_a_whole_matrix_is_found():
    image = torch.randn(64, 4, requires_grad=True)
    with Largest() as tracker:
        (image @ image.T).logsumexp(1).sum().backward()
    assert tracker.elements >= 64 * 64
