"""Builds on a full disk, with too little memory, killed at random moments, and their workers (about 10 s)."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from datasets import load_dataset

from hfcomp import writing
from hfcomp.factory import executors, manifest
from hfcomp.factory.manifest import MANIFEST, SET_ASIDE_FILE, UNFINISHED
from hfcomp.factory.runner import Stage, StageError
from hfcomp.workers import worker_number
from tests.factory import builds
from tests.factory.builds import build
from tests.factory.kills import survive_kills


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A build that nothing disturbed. Never write into this folder."""
    return build(tmp_path_factory.mktemp("whole") / "out").folder


def make_again(*, word: str):
    """A second stage, which reads what the first made."""
    return lambda batch: batch | {"loud": [f"{text} {word}" for text in batch["loud"]]}


def build_in_stages(folder: Path, num_workers: int) -> None:
    executors.START_METHOD = "fork"  # a quick start of workers, in this process alone
    os.setsid()  # forked workers hold one another's pipes open: killed with this process, as they would not end
    stages = [
        *builds.loud_stages(),
        Stage("again", make_again, {"word": "once"}),
        Stage("more", make_again, {"word": "more"}),
    ]
    build(folder, builds.source(24), stages, rows_per_shard=4, num_workers=num_workers)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_kills_at_random_moments_change_no_byte(tmp_path, context, num_workers):
    def start(folder: Path):
        process = context.Process(target=build_in_stages, args=(folder, num_workers))
        process.start()
        return process

    survive_kills(start, tmp_path, seed=num_workers)


def test_a_full_disk_is_named_and_costs_one_shard(whole, tmp_path, monkeypatch):
    original = writing._temporary_path

    def full(path: Path) -> Path:
        part = original(path)
        if path.name.startswith("train-00001"):
            part.symlink_to("/dev/full")  # every write fails as on a full disk
        return part

    with monkeypatch.context() as patch:
        patch.setattr(writing, "_temporary_path", full)
        with pytest.raises(StageError, match=r"shard 1 of 3 .*: .*No space "):
            build(tmp_path)
    assert not list(tmp_path.rglob("*.part"))
    assert build(tmp_path).kept == 1
    assert builds.hashes(tmp_path) == builds.hashes(whole)


@pytest.mark.parametrize("name", ["00001.json", SET_ASIDE_FILE, MANIFEST])
def test_a_disk_that_is_full_between_shards(whole, tmp_path, monkeypatch, name):
    original = writing._temporary_path

    def full(path: Path) -> Path:
        part = original(path)
        if path.name == name:
            part.symlink_to("/dev/full")
        return part

    with monkeypatch.context() as patch:
        patch.setattr(writing, "_temporary_path", full)
        with pytest.raises(StageError, match=rf"No space .*: '.*{name}'"):
            build(tmp_path)
    assert build(tmp_path).kept == (1 if name == "00001.json" else 3)
    assert builds.hashes(tmp_path) == builds.hashes(whole)


def fill_and_enlarge(disk: str) -> None:
    """Builds on a disk of 200 kB, then on a larger one."""
    images = [{"bytes": builds.png(row) + bytes(os.urandom(20_000)), "path": f"{row}.png"} for row in range(20)]
    feature = builds.source().features["image"]
    source = builds.source(20).remove_columns("image").add_column("image", images, feature=feature)
    try:
        build(Path(disk) / "out", source, rows_per_shard=2)
    except StageError as error:
        print(error)
    done = len(list((Path(disk) / "out" / UNFINISHED).glob("0*.json")))
    subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
    outcome = build(Path(disk) / "out", source, rows_per_shard=2)
    assert 2 <= done == outcome.kept < 10
    assert builds.hashes(outcome.folder) == builds.hashes(build(Path(disk) / "other", source, rows_per_shard=2).folder)


@pytest.mark.slow
def test_a_small_disk(tmp_path):
    mount = f"mount -t tmpfs -o size=200k none {tmp_path}"
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "sh", "-c", mount], check=False).returncode:
        pytest.skip("needs the right to mount a file system, to fill a small one")
    code = f"from {__name__} import fill_and_enlarge; fill_and_enlarge({str(tmp_path)!r})"
    script = f"{mount} && {sys.executable} -c {code!r}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout


def make_hungry():
    """A stage that needs more memory than the process may have, for one shard."""

    def eat(batch):
        if "caption 9" in batch["caption"]:
            resource.setrlimit(resource.RLIMIT_AS, (2**30, resource.RLIM_INFINITY))
            bytearray(2**34)
        return batch | {"loud": batch["caption"]}

    return eat


def make_killed():
    """A stage whose process is killed for one shard, as where the machine is out of memory."""

    def end(batch):
        if "caption 9" in batch["caption"]:
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        return batch | {"loud": batch["caption"]}

    return end


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_hungry, r"'loud', shard 2 of 3 \(rows 8 to 9\): MemoryError"),
        (make_killed, "process ended .* shards are kept"),
    ],
)
def test_a_worker_out_of_memory_costs_its_shard(tmp_path, monkeypatch, make, message):
    monkeypatch.setattr(executors, "START_METHOD", "fork")
    with pytest.raises(StageError, match=message):
        build(tmp_path, stages=[Stage("loud", make, {}, {})], num_workers=2)
    assert build(tmp_path, stages=[Stage("loud", builds.make_failing, {"at": "nothing"}, {})]).kept == 2


def make_noted(*, folder: str):
    """A stage that notes which worker runs it."""
    path = Path(folder) / f"{worker_number()} {os.environ.get('CUDA_VISIBLE_DEVICES')}"

    def note(batch):
        path.touch()
        time.sleep(0.3)  # so that no worker takes all shards
        return batch | {"loud": batch["caption"]}

    return note


def test_local_workers_are_numbered_and_keep_the_users_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    monkeypatch.setattr(executors, "START_METHOD", "fork")
    (tmp_path / "seen").mkdir()
    stage = Stage("noted", make_noted, {"folder": str(tmp_path / "seen")})
    build(tmp_path / "several", stages=[stage], rows_per_shard=2, num_workers=2)
    assert sorted(path.name for path in (tmp_path / "seen").iterdir()) == ["0 5,3", "1 5,3"]
    assert worker_number() == 0


def test_many_rows_set_aside_are_whole_after_a_rebuild(tmp_path):
    captions = builds.source(40).remove_columns("caption").add_column("caption", ["", "a"] * 20)
    done = build(tmp_path / "out", captions)
    assert done.manifest["set_aside"] == {"empty": 20}
    before = builds.hashes(done.folder)
    load_dataset(str(done.folder), split="train")
    (done.folder / done.manifest["shards"][3]["file"]).unlink()
    assert build(tmp_path / "out", captions).kept == 9
    assert builds.hashes(done.folder) == before


def test_what_a_lost_worker_left_is_removed_at_the_end(whole, tmp_path, monkeypatch):
    """A worker that dies while its build goes on leaves a partial file, after the start cleaned the folder."""

    def leave(folder, plan, records):
        writing._temporary_path(folder / "data" / "train-00000-of-00003.parquet").write_bytes(b"half")
        return original(folder, plan, records)

    original = manifest.close_build
    monkeypatch.setattr("hfcomp.factory.runner.close_build", leave)
    build(tmp_path)
    assert builds.hashes(tmp_path) == builds.hashes(whole)
