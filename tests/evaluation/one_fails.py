"""One of two processes with one fault after another, and what comes of it in both.

`python -m tests.evaluation.one_fails MODEL DATA FOLDER CASE ...` in each of the processes, which no launcher watches.
That both come to the next case shows that none waits for the other.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from accelerate import PartialState

from hfcomp import cli
from hfcomp.distributed import rank
from hfcomp.evaluation import callback, engine, evaluation_results, loaded
from hfcomp.evaluation.encoding import embed, evaluated_model
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.experiments import prepare, program, study
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.session import Session
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.experiments.studies.search import run_search
from hfcomp.experiments.studies.sweep import run_sweep
from hfcomp.reporting import saving
from hfcomp.trainers import stages
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny
from tests.trainers.runs import build


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def breaks(*_, **__):
    raise RuntimeError("a fault of this process alone")


# where each fault lies, what it is, and the process that has it
FAULTS = {
    "model": (embed.Embedder, "__init__", full_disk, 1),
    "data": (loaded, "load_items", full_disk, 1),
    "prompts": (CaptionChoice, "prompts", breaks, 1),
    "image_file": (embed, "image_key", full_disk, 1),
    "image": (embed, "decoded", breaks, 1),
    "tokenizer": (embed.TextTokenizer, "__call__", breaks, 1),
    "items": (engine.TextTable, "add", breaks, 1),
    "look_up": (evaluated_model.Table, "look_up", breaks, 0),
    "score": (CaptionChoice, "score", breaks, 0),
    "results": (evaluation_results, "write_evaluation", full_disk, 0),
    "data_of_callback": (loaded, "load_items", breaks, 0),
    "score_of_callback": (CaptionChoice, "score", breaks, 0),
    "file_of_callback": (embed, "image_key", breaks, 1),
    "items_of_callback": (callback.Outcomes, "write", full_disk, 0),
    "base_of_run": (prepare, "write_checksums", full_disk, 0),
    "cost_of_run": (stages, "write_json", full_disk, 0),
    "outcomes_of_run": (study, "write_table", full_disk, 0),
    "report_of_run": (saving, "write_results", full_disk, 0),
}
for _owner, _name, *_ in FAULTS.values():
    getattr(_owner, _name)  # one that was renamed would stop one process alone, and the other would wait


RECIPES = ("primary_of_run", "primary_of_sweep", "measure_of_search")


@contextlib.contextmanager
def disk_that_fills() -> Iterator[None]:
    """Once the second process has its folder of embeddings, it can write no file, as on a full disk."""
    before, opened = resource.getrlimit(resource.RLIMIT_FSIZE), EmbeddingCache.store

    def store(*words, **options):
        instance = opened(*words, **options)
        if rank() == 1:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        return instance

    with mock.patch.object(EmbeddingCache, "store", store):
        yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def with_fault(case: str) -> contextlib.AbstractContextManager:
    if case == "disk_fills":
        return disk_that_fills()
    owner, name, fault, process = FAULTS.get(case, (None, "", None, None))
    return mock.patch.object(owner, name, fault) if rank() == process else contextlib.nullcontext()


def evaluate(case: str, model: str, data: str, folder: Path) -> None:
    cache = folder / "file" / "cache" if case == "no_folder" else folder / "cache"
    shared = ["--benchmarks", "sugarcrepe", "--data_dir", data, "--device", "cpu", "--batch_size", "8"]
    cli.main(["evaluate", f"m={model}", *shared, "--output_dir", str(folder / "out"), "--cache", str(cache)])


def train(model: str, data: str, folder: Path) -> None:
    trainer = build(InfoNCETrainer, model, tiny.pairs(16), folder, max_steps=1)
    scoring = callback.EvaluateBenchmarks(trainer, ["sugarcrepe"], folders=data, steps=1, save_items=True)
    trainer.add_callback(scoring)
    trainer.train()


def recipe(case: str, folder: Path) -> None:
    """A run, or a run, sweep or search of what is not scored: the first process finds that, as it alone scores."""
    words = ["--output_dir", str(folder / "run"), "--disable_tqdm", "true", "--dataset_rows", "32"]
    words += ["--batch_size", "16", "--max_steps", "1", "--evaluation_items", "5"]
    one_seed = ["--controls", "none", "--page", "false", "--seed", "42"]
    if case == "primary_of_run":
        program.run(read_recipe("slipform", [*words, "--primary", "sandbox: grup"]))
    elif case == "primary_of_sweep":
        run_sweep(read_plan("slipform", [*words, "--report", "margins", "--primary", "sandbox: grup"]))
    elif case not in RECIPES:
        program.run(read_recipe("slipform", [*words, *one_seed]))
    else:
        path = folder / "mine.yaml"
        path.write_text("maximize: 'sandbx: group'\ntrials: 1\nranges: {learning_rate: {low: 0.1, high: 1}}")
        run_search(read_plan("slipform", [*words, "--search", str(path)]))


def run(case: str, model: str, data: str, folder: Path) -> str:
    """Runs a case and returns how it ended: with nothing, or with an error in words."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "file").write_text("in the way of a folder")
    try:
        with with_fault(case):
            if case.endswith("of_callback"):
                train(model, data, folder)
            elif case in RECIPES or case.endswith("of_run"):
                recipe(case, folder)
            else:
                evaluate(case, model, data, folder)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    PartialState(cpu=True)
    model, data, folder, *cases = sys.argv[1:]
    Session.close = lambda self: self.state.wait_for_everyone()  # the group is used again
    for case in cases:
        print(f"case {case}", flush=True)
        outcome = run(case, model, data, Path(folder) / case)
        (Path(folder) / f"{case}-{os.environ['RANK']}.json").write_text(json.dumps(outcome))
    PartialState().destroy_process_group()
