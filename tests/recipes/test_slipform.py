"""The recipe as users start it: `accelerate launch` and two processes of `torchrun` do the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

REPOSITORY = Path(__file__).parents[2]
SMALL = "--dataset_rows 96 --batch_size 16 --max_steps 4 --save_steps 4 --learning_rate 1e-4"
FIELDS = [*SMALL.split(), "--evaluation_items", "5", "--logging_steps", "2", "--use_cpu", "true"]
LAUNCHERS = {
    "accelerate": "accelerate.commands.launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no "
    "--dynamo_backend no",
    "torchrun": "torch.distributed.run --standalone --nproc_per_node 2",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("recipes")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for name, launcher in LAUNCHERS.items():
        command = [sys.executable, "-m", *launcher.split(), "recipes/slipform.py", "--output_dir", str(folder / name)]
        done = subprocess.run(
            command + FIELDS, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300
        )
        # judged by what it wrote: an interpreter may abort at exit after all work is done
        assert (folder / name / "results.json").exists(), done.stderr[-4000:]
        (folder / name / "terminal.txt").write_text(done.stdout)
    return {name: folder / name for name in LAUNCHERS}


@pytest.mark.parametrize("place", ["base", "controls/plain", "controls/shuffled", "controls/equal-images", "method"])
def test_two_processes_train_the_same_models(runs, place):
    one, two = (load_file(folder / place / "model.safetensors") for folder in runs.values())
    assert_close(two, one, rtol=1e-4, atol=1e-5)


def test_two_processes_report_the_same(runs):
    one, two = (json.loads((folder / "results.json").read_text()) for folder in runs.values())
    assert [line["models"] for line in two["results"]] == [line["models"] for line in one["results"]]
    for key in ("name", "steps", "images", "texts"):
        assert [stage[key] for stage in two["stages"]] == [stage[key] for stage in one["stages"]]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_terminal_shows_models_side_by_side_once_with_cost_and_caveat(runs, launcher):
    shown = (runs[launcher] / "terminal.txt").read_text()
    assert shown.count("written to ") == 1
    assert all(word in shown for word in ("same-batch", "swap_att", "images/s", "peak memory", "Synthetic"))
