"""Runs the cases in this process, or in several processes that are started once for all cases.

As a module it is one of them: `python -m tests.distributed.launch <models> <folder> <case> ...`, with the variables of
torchrun.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import PartialState
from safetensors.torch import load_file, save_file

from hfcomp.distributed import rank, world_size
from tests.distributed import sharded_cases  # noqa: F401  # adds its own to CASES
from tests.distributed.cases import CASES, family_case
from tests.processes import launch as launch_group
from tests.processes import outputs

TIMEOUT = 300


class Result(NamedTuple):
    """The tensors and facts of a case on one process."""

    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]
    folder: Path

    def part(self, prefix: str) -> dict[str, torch.Tensor]:
        """The tensors under a prefix, without it."""
        return {key.partition("/")[2]: x for key, x in self.tensors.items() if key.partition("/")[0] == prefix}


class Results:
    """The files that processes have left; cases of a single process run when they are asked for."""

    def __init__(self, folder: Path, models: Path, processes: int, said: str = "") -> None:
        self.folder = folder
        self.models = models
        self.processes = processes
        self.said = said
        self._read: dict[str, list[Result]] = {}

    def __getitem__(self, name: str) -> list[Result]:
        """A result for each process."""
        if name not in self._read:
            if self.processes == 1:
                run(name, self.models, self.folder)
            self._read[name] = [self._of(name, index) for index in range(self.processes)]
        return self._read[name]

    def has(self, name: str) -> bool:
        """Whether every process left a result."""
        return all((self.folder / name / f"facts-{index}.json").exists() for index in range(self.processes))

    def _of(self, name: str, index: int) -> Result:
        folder = self.folder / name
        facts = folder / f"facts-{index}.json"
        # the files decide, not the exit status: a process may abort at exit after all work is done
        assert facts.exists(), f"process {index} of {self.processes} left no result of {name}:\n{self.said[-6000:]}"
        return Result(load_file(folder / f"tensors-{index}.safetensors"), json.loads(facts.read_text()), folder)


def run(name: str, models: Path, folder: Path) -> None:
    """Runs a case in this process and writes what it found; the facts come last."""
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    case = CASES.get(name) or functools.partial(family_case, name)
    tensors, facts = case(models, folder)
    # safetensors refuses tensors that share memory
    tensors = {key: value.detach().clone().contiguous() for key, value in tensors.items()}
    save_file(tensors, folder / f"tensors-{rank()}.safetensors")
    (folder / f"facts-{rank()}.json").write_text(
        json.dumps({"world_size": world_size(), "threads": torch.get_num_threads(), **facts})
    )


def launch(processes: int, models: Path, folder: Path, names: list[str], **settings: str) -> Results:
    """Runs cases on several processes, all of them in one launch, with further environment variables.

    Torch's native code aborts now and then where weights are sharded on a loaded CPU ("double free", once in dozens of
    launches). What a signal ended is launched once more; if it ends so again, its cases have no results and fail.
    """
    results, signalled = _launch(processes, models, folder, names, settings)
    if not signalled or all(results.has(name) for name in names):
        return results
    for name in names:
        shutil.rmtree(folder / name, ignore_errors=True)
    return _launch(processes, models, folder, names, settings)[0]


def _launch(
    processes: int, models: Path, folder: Path, names: list[str], settings: dict[str, str]
) -> tuple[Results, bool]:
    """The results, and whether a signal ended a process."""
    words = ["-m", "tests.distributed.launch", models, folder, *names]
    started = launch_group(processes, words, env=os.environ | settings, threads=torch.get_num_threads())
    try:
        said = outputs(started, TIMEOUT)
        signalled = any(process.returncode < 0 for process in started)
    finally:
        for process in started:
            process.kill()
    return Results(folder, models, processes, "\n".join(said)), signalled


def main() -> None:
    models, folder, *names = sys.argv[1:]
    state = PartialState(cpu=True)
    # the Trainer collects garbage after each run, which would look through all imported modules
    gc.freeze()
    for name in names:
        run(name, Path(models), Path(folder))
    state.destroy_process_group()


if __name__ == "__main__":
    main()
