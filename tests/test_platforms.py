"""What a system without POSIX's modules, such as Windows, does: everything except memory, as on Linux."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from hfcomp import devices, platforms
from tests import processes, tiny

# The libraries beside hfcomp are imported first: on Windows they use other modules, which do not exist here.
BLOCKED = """
import os, sys
assert "hfcomp" not in sys.modules
import accelerate, datasets, filelock, huggingface_hub, multiprocess, torch.distributed, transformers
import torch.utils.data
from transformers import AutoModel, Trainer
for name in ("resource", "fcntl", "pwd", "grp", "termios", "pty"):
    sys.modules[name] = None
for name in ("fork", "forkpty", "register_at_fork", "getuid", "geteuid", "killpg", "getpgid", "sched_getaffinity"):
    os.__dict__.pop(name, None)
from hfcomp.cli import main
main(sys.argv[1:])
"""


def run(*words, cwd: Path) -> str:
    # settings of its own: such a process is forked before anything of hfcomp is imported
    done = processes.run(["-c", BLOCKED, *words], env=os.environ | {"HF_HOME": str(cwd / "home")}, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_run_without_posix(tmp_path, clip):
    tiny.pairs(16).to_parquet(tmp_path / "rows.parquet")
    train = ("--model", clip, "--dataset", "rows.parquet", "--output_dir", "run", "--max_steps", "2")
    run("train", "negclip/own", *train, "--batch_size", "4", cwd=tmp_path)
    # A run evaluates its models, too.
    assert (tmp_path / "run" / "results.json").is_file()


def test_resident_memory_is_in_bytes_with_and_without_resource(monkeypatch):
    peak = platforms.max_resident_bytes()
    monkeypatch.setattr(platforms, "resource", None)
    # psutil has no maximum on this system and gives the current value.
    assert 0.1 * peak < platforms.max_resident_bytes() <= 1.1 * peak


def test_a_system_without_symbolic_links_gets_copies(tmp_path, monkeypatch):
    def refuse(*arguments, **keywords):
        raise OSError(1314, "a required privilege is not held by the client")

    (tmp_path / "file").write_text("content")
    monkeypatch.setattr(os, "symlink", refuse)
    platforms.link_or_copy(tmp_path / "file", tmp_path / "link")
    assert (tmp_path / "link").read_text() == "content"
    assert not (tmp_path / "link").is_symlink()


def test_every_accelerator_is_used(monkeypatch):
    assert devices.default_device() == "cpu"
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    for kind, expected in (("mps", ["mps", "mps"]), ("xpu", ["xpu:1", "xpu:0"]), ("cuda", ["cuda:1", "cuda:0"])):
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda kind=kind: torch.device(kind))
        monkeypatch.setenv("LOCAL_RANK", "1")
        assert [devices.default_device(), devices.default_device(2)] == expected
