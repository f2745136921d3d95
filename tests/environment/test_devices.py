"""What is said of devices: each has to compute, and several GPUs come with a way to use them."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import torch

from hfcomp.environment import devices


def test_a_machine_without_a_gpu_says_why(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    cpu, gpu = devices.find_devices()
    assert cpu.state == "ok" and "core" in cpu.found and ", 1 thread, " in cpu.found and "of memory" in cpu.found
    assert gpu.state == "note" and "built for CUDA 12.8, and CUDA_VISIBLE_DEVICES is '7'" in gpu.found


def test_several_gpus_are_shown_with_memory_and_bf16_and_how_to_use_all(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(name=f"GPU {index}"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (5 * 10**9, 8 * 10**9))
    monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    ones, computed = torch.ones, []

    def of_cpu(*size, device):
        computed.append(device)
        if device == "cuda:1":
            raise RuntimeError("CUDA error: no kernel image is available\nCompile with ...")
        return ones(*size)

    monkeypatch.setattr(torch, "ones", of_cpu)
    found = {one.name: one for one in devices.find_devices()}
    assert computed == ["cpu", "cuda:0", "cuda:1"]
    assert found["cuda:0"].found == "GPU 0, 8.0 GB of memory, 5.0 GB free, no bf16: use fp16"
    assert found["cuda:1"].state == "broken"
    assert found["cuda:1"].found.endswith("a product on it fails: CUDA error: no kernel image is available")
    assert "accelerate launch --num_processes 2" in found["2 GPUs"].fix
