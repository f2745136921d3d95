"""Builds on a Ray cluster of two workers on this machine (about 25 s)."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from datasets import load_dataset
from filelock import FileLock

from hfcomp.data.built_sets.files import UNFINISHED
from hfcomp.factory.manifest import MANIFEST
from hfcomp.factory.ray_executor import MAX_TRIES, ShardActor
from hfcomp.factory.runner import Stage, StageError
from hfcomp.factory.shards import Job
from hfcomp.writing import LOCK_FILE
from tests.factory import builds
from tests.factory.builds import build

ray = pytest.importorskip("ray", reason="pip install 'hfcomp[ray]'")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()


def make_killed_once(*, mark: str, marker: str):
    """As `builds.make_loud`, but the first process that meets the shard in the middle is killed."""
    loud = builds.make_loud(mark=mark)

    def end_once(batch):
        if "caption 4" in batch["caption"] and not Path(marker).exists():
            Path(marker).touch()
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        return loud(batch)

    return end_once


@pytest.mark.slow
def test_a_killed_actor_costs_its_shard_and_no_byte(tmp_path):
    settings = {"mark": "!", "marker": str(tmp_path / "killed")}
    stage = Stage("loud", make_killed_once, settings, {"mark": "!"})
    done = build(tmp_path / "ray", stages=[stage], executor="ray", num_workers=2)
    assert (tmp_path / "killed").exists() and done.made == 3
    assert builds.hashes(done.folder) == builds.hashes(build(tmp_path / "local").folder)


@pytest.mark.parametrize("num_workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_stage_that_raises_leaves_what_another_executor_resumes(tmp_path, num_workers):
    stages = [Stage("loud", builds.make_failing, {"at": "caption 9"}, {"mark": "!"})]
    message = r"^stage 'loud', shard 2 of 3 \(rows 8 to 9\): KeyError: 'cannot do caption 9'$"
    with pytest.raises(StageError, match=message) as raised:
        build(tmp_path, stages=stages, executor="ray", num_workers=num_workers)
    assert "in fail\n" in str(raised.value.__cause__)  # the traceback of the actor
    assert not (tmp_path / MANIFEST).exists()
    fixed = [Stage("loud", builds.make_failing, {"at": "nothing"}, {"mark": "!"})]
    assert build(tmp_path, stages=fixed).kept == 2
    assert load_dataset(str(tmp_path), split="train")["loud"][4:6] == ["caption 4", ""]


@pytest.fixture
def begun(tmp_path):
    """A build's folder without a shard, its job and its plan."""
    folder = tmp_path / "out"
    with pytest.raises(StageError):
        build(folder, stages=[Stage("fails", builds.make_failing, {"at": "caption 0"})])
    plan = (folder / UNFINISHED / "plan.json").read_bytes()
    return Job(builds.source(), tuple(builds.loud_stages()), ("caption",), builds.FEATURES, folder, 4), plan


def test_a_shard_that_costs_every_worker_is_given_up(begun):
    job, plan = begun
    actor = ShardActor(ray.put(job), plan, [], os.getcwd())
    tries = job.folder / UNFINISHED / "00001.tries"
    tries.write_bytes(b"." * (MAX_TRIES - 1))
    assert actor({"index": [1]})["record"][0]
    tries.write_bytes(b"." * MAX_TRIES)
    row = actor({"index": [1]})
    assert "shard 1 of 3: 3 workers" in row["error"][0] and not row["record"][0]


def make_unplugged(*, at_once: bool):
    """A stage that needs what is not there, to begin or in each batch."""

    def ask(batch):
        raise ConnectionError("nothing listens")

    if at_once:
        raise ImportError("pip install 'hfcomp[generate]'")
    return ask


@pytest.mark.parametrize(
    ("make", "settings", "error", "has_trace"),
    [
        (make_unplugged, {"at_once": False}, "shard 0 of 3 (rows 0 to 3): ConnectionError: nothing listens", False),
        (make_unplugged, {"at_once": True}, "pip install 'hfcomp[generate]'", False),
        (builds.make_failing, {"at": "caption 1"}, "KeyError: 'cannot do caption 1'", True),
    ],
)
def test_a_mistake_of_the_user_s_comes_back_without_its_trace(begun, make, settings, error, has_trace):
    job, plan = begun
    job = replace(job, stages=(Stage("loud", make, settings),))
    row = ShardActor(ray.put(job), plan, [], os.getcwd())({"index": [0]})
    assert row["error"][0].endswith(error) and bool(row["trace"][0]) == has_trace


def test_a_worker_that_does_not_see_the_folder_says_so(begun, tmp_path):
    job, plan = begun
    for reference, its_plan, files in (
        (job, b"of another machine", []),
        (job, plan, [str(tmp_path / "gone.png")]),
        (Job(job.dataset, job.stages, job.reads, job.features, tmp_path / "elsewhere", 4), plan, []),
    ):
        row = ShardActor(ray.put(reference), its_plan, files, os.getcwd())({"index": [0]})
        assert "does not see /" in row["error"][0] and "shared disk" in row["error"][0]
    assert not list((job.folder / "data").glob("*.parquet"))


def test_a_folder_in_use_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("hfcomp.writing.LOCK_SECONDS", 0)
    with FileLock(tmp_path / LOCK_FILE), pytest.raises(ValueError, match="in use"):
        build(tmp_path, executor="ray")


def test_without_ray_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'hfcomp\[ray\]'"):
        build(tmp_path, executor="ray")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "slurm"}, "executor: found 'slurm'.* local or ray"),
        ({"gpus_per_worker": 1}, "gpus_per_worker .*executor ray"),
        ({"executor": "ray", "gpus_per_worker": -1}, "gpus_per_worker: found -1,.* 0 "),
    ],
)
def test_bad_settings_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
