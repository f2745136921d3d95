"""The recipe by the README's own commands: `accelerate launch` and two processes of `torchrun` do the same."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from tests import processes, tolerances

REPOSITORY = Path(__file__).parents[2]
# an epsilon above the rounding of gradients: Adam makes a whole step of one that is nothing else
ADAM = {"steps": 4, "rate": 1e-4, "epsilon": 1e-2}
SMALL = "--dataset_rows 96 --batch_size 16 --max_steps 4 --save_steps 4 --learning_rate 1e-4 --adam_epsilon 1e-2"
FIELDS = f"{SMALL} --seeds 42 --controls same-batch equal-images --evaluation_items 2 --page false".split()
FIELDS += ["--logging_steps", "2"]
LAUNCHERS = ("accelerate launch", "torchrun --nproc_per_node 2")
SIZES = {1: "1 process x 16 = 16 pairs", 2: "2 processes x 8 = 16 pairs"}


def readme_command(launcher: str) -> list[str]:
    """The line of the README that starts the recipe by a launcher and sets nothing."""
    (line,) = re.findall(
        rf"^({launcher} recipes/slipform\.py) *#.*$", (REPOSITORY / "README.md").read_text(), re.MULTILINE
    )
    return shlex.split(line)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("recipes")
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHON_EXEC": processes.interpreter(),
        "PATH": os.pathsep.join([str(scripts), os.environ["PATH"]]),
    }
    folders = {}
    for launcher in LAUNCHERS:
        wanted = folder / launcher.split()[0] / "run"
        program, *words = readme_command(launcher)
        command = [scripts / program, *words, "--output_dir", wanted, *FIELDS]
        done = processes.run(command, cwd=REPOSITORY, env=environment, timeout=600)
        # judged by what it wrote: an interpreter may abort at exit after all work is done
        assert (wanted / "results.json").exists(), done.stderr[-4000:]
        (wanted / "terminal.txt").write_text(done.stdout)
        folders[launcher] = wanted
    return folders


def test_processes_share_one_folder_and_say_how_many_they_are(runs):
    for (number, size), folder in zip(SIZES.items(), runs.values(), strict=True):
        assert [path.name for path in folder.parent.iterdir()] == ["run"]
        shown = (folder / "terminal.txt").read_text().splitlines()
        stages = json.loads((folder / "results.json").read_text())["stages"]
        lines = [line for line in shown if " pairs, " in line]
        assert len(lines) == len(stages) and f"{size}, 96 rows, 6 steps per epoch, device cpu" in lines, number


@pytest.mark.parametrize("place", ["base", "controls/same-batch", "controls/equal-images", "method"])
def test_two_processes_train_the_same_models(runs, place):
    one, two = (load_file(folder / place / "model.safetensors") for folder in runs.values())
    assert_close(two, one, rtol=0, atol=tolerances.adam(tolerances.gradient(), 1.0, **ADAM))


def test_two_processes_report_the_same(runs):
    one, two = (json.loads((folder / "results.json").read_text()) for folder in runs.values())
    assert [line["models"] for line in two["results"]] == [line["models"] for line in one["results"]]
    for key in ("name", "steps", "images", "texts"):
        assert [stage[key] for stage in two["stages"]] == [stage[key] for stage in one["stages"]]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_terminal_shows_models_side_by_side_once_with_cost_and_caveat(runs, launcher):
    shown = (runs[launcher] / "terminal.txt").read_text()
    assert shown.count("\nreport: ") == 1
    assert all(word in shown for word in ("same-batch", "swap_att", "images/s", "peak memory", "Synthetic"))
