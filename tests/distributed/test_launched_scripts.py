"""A user's own script, started as users start it: nothing in it says that there is no accelerator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from tests import processes, tiny, tolerances
from tests.recipes.accelerate_files import needs_fsdp

REPOSITORY = Path(__file__).parents[2]
SCRIPT = """
import json, sys
from hfcomp import InfoNCEConfig, InfoNCETrainer
from hfcomp.distributed import rank, world_size
from tests import tiny

model, folder, batch_size = sys.argv[1:]
config = InfoNCEConfig(
    folder, per_device_train_batch_size=int(batch_size), max_steps=3, logging_steps=1, learning_rate=0.1,
    lr_scheduler_type="constant", warmup_steps=0, weight_decay=0, max_grad_norm=1,
    optim="sgd", disable_tqdm=True,  # Adam makes a step of a gradient that is rounding
)
trainer = InfoNCETrainer(model, config, train_dataset=tiny.pairs(20))
trainer.train()
trainer.save_model()
losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
facts = {"losses": losses, "processes": world_size(), "counted": config.world_size}
with open(f"{folder}/facts-{rank()}.json", "w") as file:
    json.dump(facts, file)
trainer.accelerator.end_training()
"""
# three steps of SGD at a rate of 0.1, on gradients clipped to a length of 1
WEIGHT = 3 * 0.1 * tolerances.gradient()
SPAWNED = """
import sys
import torch
from hfcomp import InfoNCEConfig, InfoNCETrainer

def work(rank, model, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        InfoNCETrainer(model, InfoNCEConfig(folder, disable_tqdm=True))
    except ValueError as error:
        open(f"{folder}/error-{rank}", "w").write(str(error))

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, sys.argv[1:], nprocs=2)
"""


def start(command: list[str], folder: Path) -> subprocess.CompletedProcess:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    scripts = Path(sys.executable).parent
    command = [str(scripts / command[0]), *command[1:]]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def start_alone(words: list, folder: Path) -> processes.Process:
    return processes.start(words, env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=folder)


@pytest.fixture(scope="module")
def scripts(clip, tmp_path_factory) -> dict[int, tuple[Path, str]]:
    """Of one and of two processes, what the script wrote and said."""
    place = tmp_path_factory.mktemp("scripts")
    (place / "train.py").write_text(SCRIPT)
    outputs = {}
    for number in (1, 2):
        folder = place / str(number)
        folder.mkdir()
        words = ["train.py", clip, folder, 16 // number]
        # two as torchrun starts them; torchrun itself starts the recipe in tests/recipes/test_slipform.py
        started = processes.launch(2, words, env=os.environ, cwd=place) if number == 2 else [start_alone(words, place)]
        said = "\n".join(processes.outputs(started, 300))
        # judged by what it wrote: an interpreter may abort at exit after all work is done
        assert (folder / f"facts-{number - 1}.json").exists(), said[-3000:]
        outputs[number] = folder, said
    return outputs


def test_a_script_on_two_processes_reads_each_row_once(scripts):
    (one, _), (two, _) = scripts[1], scripts[2]
    expected = json.loads((one / "facts-0.json").read_text())
    for index in range(2):
        facts = json.loads((two / f"facts-{index}.json").read_text())
        assert (facts["processes"], facts["counted"]) == (2, 2)
        # two halves of 8 rows that hold one another's pairs as negatives differ by a hundredth
        assert facts["losses"] == pytest.approx(expected["losses"], abs=tolerances.loss())


def test_a_script_on_two_processes_trains_the_weights_of_one(scripts):
    (one, _), (two, _) = scripts[1], scripts[2]
    assert_close(load_file(two / "model.safetensors"), load_file(one / "model.safetensors"), rtol=0, atol=WEIGHT)


def test_a_script_says_once_how_large_a_batch_and_an_epoch_are(scripts):
    lines = {
        number: [line for line in said.splitlines() if " pairs, " in line] for number, (_, said) in scripts.items()
    }
    assert lines == {
        1: ["1 process x 16 = 16 pairs, 20 rows, 1 step per epoch, device cpu"],
        2: ["2 processes x 8 = 16 pairs, 20 rows, 1 step per epoch, device cpu"],
    }


@pytest.mark.slow
def test_processes_that_accelerate_does_not_count_are_refused(clip, tmp_path):
    (tmp_path / "spawned.py").write_text(SPAWNED)
    done = start(["python", "spawned.py", str(clip), str(tmp_path)], tmp_path)
    for rank in range(2):
        assert (tmp_path / f"error-{rank}").exists(), done.stderr[-3000:]
        said = (tmp_path / f"error-{rank}").read_text()
        assert "connects 2 processes, but accelerate counts 1" in said
        assert "torchrun --nproc_per_node 2" in said and "use_cpu=True" in said


@needs_fsdp
@pytest.mark.slow
def test_a_recipe_shards_its_weights_over_two_processes(clip, tmp_path):
    rows = tiny.pairs(16)
    datasets.DatasetDict({"train": rows, "test": rows.select(range(8))}).save_to_disk(tmp_path / "rows")
    words = f"--config slipform/vit_b32_coco --model {clip} --dataset {tmp_path / 'rows'} --batch_size 8 --max_steps 2"
    words += " --mini_batch_size 4 --bf16 false --dataloader_num_workers 0 --disable_tqdm true --learning_rate 1e-3"
    words += " --save_steps 1 --evaluation own --evaluation_split test"
    recipe = str(REPOSITORY / "recipes" / "slipform.py")
    written = []
    for launcher, more in {"python": "", "torchrun --nproc_per_node 2": " --fsdp true"}.items():
        folder = tmp_path / f"run{len(written)}"
        done = start([*launcher.split(), recipe, *f"{words}{more} --output_dir {folder}".split()], tmp_path)
        assert (folder / "finished").exists(), done.stderr[-3000:]
        assert ("FSDP2: this process holds" in done.stdout) == bool(more)
        written.append({path.relative_to(folder) for path in folder.rglob("*.safetensors")})
    assert written[0] == written[1]


@pytest.mark.slow
def test_a_search_on_two_processes_trains_each_trial_once(clip, tmp_path):
    pytest.importorskip("optuna", reason="searches need Optuna: pip install 'hfcomp[search]'")
    rows = tiny.pairs(16)
    datasets.DatasetDict({"train": rows, "test": rows.select(range(8))}).save_to_disk(tmp_path / "rows")
    ranges = {"learning_rate": {"low": 1e-4, "high": 1e-3, "log": True}}
    (tmp_path / "mine.yaml").write_text(json.dumps({"maximize": "own: *recall@1", "trials": 2, "ranges": ranges}))
    words = f"--config slipform/vit_b32_coco --model {clip} --dataset {tmp_path / 'rows'} --batch_size 8 --max_steps 1"
    words += " --mini_batch_size 4 --bf16 false --dataloader_num_workers 0 --save_strategy no --disable_tqdm true"
    words += f" --evaluation own --evaluation_split test --search mine.yaml --output_dir {tmp_path / 'run'}"
    launcher = ["torchrun", "--nproc_per_node", "2", str(REPOSITORY / "recipes" / "slipform.py")]
    done = start([*launcher, *words.split()], tmp_path)
    assert (tmp_path / "run" / "finished").exists(), done.stderr[-3000:]
    assert [path.name for path in sorted((tmp_path / "run" / "trials").iterdir())] == ["0000", "0001"]
    assert sorted(path.name for path in tmp_path.glob("run*")) == ["run"]
    lines = [line for line in done.stdout.splitlines() if " pairs" in line and "device" in line]
    assert len(lines) == 2 and all(line.startswith("2 processes x 4 = 8 pairs") for line in lines)
