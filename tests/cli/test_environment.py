"""What is said of this machine: packages and extras, devices, folders, and checks that fail themselves."""

from __future__ import annotations

import importlib.metadata
import shutil
import tempfile
from collections import namedtuple
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from hfcomp.cli import environment

REQUIRES = [
    "numpy>=1.26",
    "torch>=900",
    "nowhere-to-be-found>=2",
    'pyarrow>=1; extra == "text"',
    'also-nowhere; extra == "ray"',
    "old-python-only; python_version < '3'",
]


@pytest.fixture
def metadata(monkeypatch):
    facts = {"Provides-Extra": ["text", "ray", "dev"], "Requires-Python": ">=3.11"}
    get_all = lambda name: facts.get(name)  # noqa: E731
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: REQUIRES)
    monkeypatch.setattr(
        importlib.metadata, "metadata", lambda name: SimpleNamespace(get_all=get_all, get=lambda name: facts[name])
    )
    return facts


def problems(check) -> dict:
    return {finding.name: finding for finding in environment.run_check("packages", check) if finding.state != "ok"}


def test_required_packages_that_are_missing_or_too_old_are_broken(metadata):
    bad = problems(environment.find_packages)
    assert bad.keys() == {"torch", "nowhere-to-be-found"}
    assert {finding.state for finding in bad.values()} == {"broken"}
    assert ", expected >=900" in bad["torch"].found and bad["torch"].fix == 'pip install "torch>=900"'
    assert bad["nowhere-to-be-found"].found == "missing"


def test_a_python_that_is_too_old_is_broken(metadata):
    metadata["Requires-Python"] = ">=99"
    assert problems(environment.find_packages)["python"].found.endswith(", expected >=99")


def test_an_extra_that_misses_a_package_is_a_note_and_those_of_contributors_are_not_shown(metadata):
    extras = {finding.name: finding for finding in environment.run_check("extras", environment.find_extras)}
    assert extras["text"].found == "complete" and "dev" not in extras
    assert (extras["ray"].state, extras["ray"].found) == ("note", "missing: also-nowhere")
    assert extras["ray"].fix == 'pip install "hfcomp[ray]"'


def test_a_torchvision_of_another_torch_is_named_with_what_it_raises(metadata, monkeypatch):
    def fail(name):
        if name == "torchvision":
            raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(importlib, "import_module", fail)
    version = environment._version
    monkeypatch.setattr(environment, "_version", lambda name: "0.1" if name == "torchvision" else version(name))
    finding = problems(environment.find_packages)["torchvision"]
    assert (
        finding.state == "broken"
        and "0.1 does not match this torch: RuntimeError: operator torchvision::nms" in finding.found
    )


def test_a_check_that_fails_is_a_finding_and_keeps_those_before_it():
    def check():
        yield environment.Finding("devices", "CPU", "2 cores")
        raise OSError("the driver is gone")

    first, second = environment.run_check("devices", check)
    assert first.name == "CPU" and second.state == "broken"
    assert second.found == "failed with OSError: the driver is gone"


def test_a_machine_without_a_gpu_says_why(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    cpu, gpu = environment.find_devices()
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

    def ones_on_cpu(*size, device):
        computed.append(device)
        if device == "cuda:1":
            raise RuntimeError("CUDA error: no kernel image is available\nCompile with ...")
        return ones(*size)

    monkeypatch.setattr(torch, "ones", ones_on_cpu)
    devices = {finding.name: finding for finding in environment.find_devices()}
    assert computed == ["cpu", "cuda:0", "cuda:1"]
    assert devices["cuda:0"].found == "GPU 0, 8.0 GB of memory, 5.0 GB free, no bf16: use fp16"
    assert devices["cuda:1"].state == "broken"
    assert devices["cuda:1"].found.endswith("a matrix product fails: CUDA error: no kernel image is available")
    assert "accelerate launch --num_processes 2" in devices["2 GPUs"].fix


Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "cache" / "inner").mkdir(parents=True)
    (tmp_path / "cache" / "a").write_bytes(b"x" * 700)
    (tmp_path / "cache" / "inner" / "b").write_bytes(b"x" * 800)
    (tmp_path / "cache" / "link").symlink_to(tmp_path / "cache" / "a")
    return tmp_path / "cache"


def test_the_size_of_a_folder_counts_no_link(folder, monkeypatch):
    assert environment._check_folder("cache", folder).found.startswith(f"{folder}: 1.5 kB, ")
    assert "does not exist yet" in environment._check_folder("cache", folder / "later" / "on").found
    monkeypatch.setattr(environment, "PATIENCE", -1.0)
    assert "more than 0 B, " in environment._check_folder("cache", folder).found


def test_a_folder_that_cannot_be_written_is_broken_and_little_room_is_a_note(folder, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(10, 9, 10**9))
    finding = environment._check_folder("cache", folder)
    assert finding.state == "note" and "1.0 GB free" in finding.found and "set HF_HOME" in finding.fix
    monkeypatch.setattr(environment.os, "access", lambda place, mode: False)
    assert environment._check_folder("cache", folder).state == "broken"
    assert environment._check_folder("cache", folder / "a" / "below a file").state == "broken"


def test_temporary_files_are_tried(folder, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert environment._check_temporary_files().found.startswith(f"{folder}: ")
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "nowhere"))
    finding = environment._check_temporary_files()
    assert finding.state == "broken" and "TMPDIR" in finding.fix
