"""Processors, memory and accelerators, each of which has to compute something."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from hfcomp.environment.findings import BROKEN, NOTE, OK, Finding
from hfcomp.evaluation.encoding.cache_files import size_text
from hfcomp.reporting.format import counted

AREA = "devices"
LAUNCH = "accelerate launch --num_processes {0} -m hfcomp.cli train RECIPE"


def find_devices() -> Iterator[Finding]:
    """The processor, the GPUs with their memory and whether they have bf16, and how to use several."""
    import psutil
    import torch

    memory = psutil.virtual_memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shown = f"{counted(cores, 'core')}, {counted(torch.get_num_threads(), 'thread')}"
    found = f"{shown}, {size_text(memory.total)} of memory, "
    yield _computing("CPU", f"{found}{size_text(memory.available)} free", torch, "cpu")
    number = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index in range(number):
        yield _gpu(torch, index)
    other = torch.accelerator.current_accelerator() if torch.accelerator.is_available() and not number else None
    if other is not None:
        yield _computing(other.type, f"{torch.accelerator.device_count()} of them", torch, other.type)
    elif not number:
        yield _no_gpu(torch)
    if number > 1:
        found = "`hfcomp train` uses one of them, plain `python` is refused"
        yield Finding(AREA, f"{number} GPUs", found, NOTE, f"To train on all: {LAUNCH.format(number)}")


def _gpu(torch: Any, index: int) -> Finding:
    facts = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    with torch.cuda.device(index):
        half = "bf16" if torch.cuda.is_bf16_supported() else "no bf16: use fp16"
    found = f"{facts.name}, {size_text(total)} of memory, {size_text(free)} free, {half}"
    return _computing(f"cuda:{index}", found, torch, f"cuda:{index}")


def _no_gpu(torch: Any) -> Finding:
    if torch.version.cuda is None and torch.version.hip is None:
        return Finding(AREA, "GPU", "none: this torch is built for the CPU", OK)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f", and CUDA_VISIBLE_DEVICES is {visible!r}"
    fix = "If the machine has one, check that `nvidia-smi` lists it, and CUDA_VISIBLE_DEVICES."
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    return Finding(AREA, "GPU", f"none is visible: this torch is built for {built}{hidden}", NOTE, fix)


def _computing(name: str, found: str, torch: Any, device: str) -> Finding:
    """A device after a small product on it."""
    try:
        ones = torch.ones(64, 64, device=device)
        right = float((ones @ ones).sum()) == 64**3
    except RuntimeError as error:  # of the driver, or no memory left
        reason = str(error).partition("\n")[0]
        return Finding(AREA, name, f"{found}; a product on it fails: {reason}", BROKEN, "Check driver and memory.")
    if not right:
        return Finding(AREA, name, f"{found}; a product on it is wrong", BROKEN, "Do not use this device.")
    return Finding(AREA, name, found)
