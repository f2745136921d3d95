"""Peak memory of a stage: its own where the system can tell, labeled where it cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfcomp.trainers import cost
from hfcomp.trainers.cost import GPU, RESIDENT, RESIDENT_SO_FAR, PeakMemory

CPU = torch.device("cpu")
MIB = 2**20


def test_a_stage_counts_from_its_own_start():
    before = PeakMemory()
    if not before.has_own_peak:
        pytest.skip("this system lets no process reset its own maximum")
    torch.ones(400 * MIB // 4)
    large, kind = before.read(CPU)
    small, _ = PeakMemory().read(CPU)
    assert kind == RESIDENT
    assert large - small > 300 * MIB


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1024), ("darwin", 1)])
def test_elsewhere_it_is_that_of_the_run_so_far(monkeypatch, platform, unit):
    resource = pytest.importorskip("resource", reason="Windows has no module resource")
    monkeypatch.setattr(cost, "_high_water_mark", lambda: None)
    monkeypatch.setattr(sys, "platform", platform)
    size, kind = PeakMemory().read(CPU)
    assert kind == RESIDENT_SO_FAR
    assert size == pytest.approx(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, rel=0.2)


def test_a_system_without_proc_is_no_error(monkeypatch):
    def refuse(*arguments, **keywords):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "write_text", refuse)
    assert PeakMemory().read(CPU)[1] == RESIDENT_SO_FAR


def test_a_gpu_is_read_only_where_the_stage_trained_on_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 7)
    assert PeakMemory().read(torch.device("cuda", 0)) == (7, GPU)
    assert PeakMemory().read(CPU)[1] != GPU
