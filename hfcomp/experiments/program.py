"""What a recipe runs: the base, the controls and the method from it, then one evaluation and one report."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pandas as pd
import torch
import yaml
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from transformers import AutoProcessor
from transformers.utils.logging import disable_progress_bar

from hfcomp import __version__
from hfcomp.evaluation.embed import Embedder
from hfcomp.experiments.base import check_vocabulary, fresh_vit_b32, sandbox_base
from hfcomp.experiments.data import training_rows
from hfcomp.experiments.evaluate import Evaluation, prepare_evaluation
from hfcomp.experiments.help import recipe_help
from hfcomp.experiments.recipes import SANDBOX, Recipe, read_recipe
from hfcomp.experiments.report import print_report, summarize, write_results
from hfcomp.experiments.stages import StageSummary, train_stage
from hfcomp.trainers.info_nce import InfoNCETrainer

# Trainer arguments that concern the machine and not the method: the base and the controls share them.
MACHINE_ARGUMENTS = ("use_cpu", "disable_tqdm", "dataloader_num_workers", "bf16", "fp16", "report_to", "ddp_backend")
# Seconds that the other processes wait for the main one, which evaluates alone.
DDP_TIMEOUT = 1800
# Fields that do not change what is trained: a run may be resumed with other values of these. The evaluation is always
# made anew.
FREE_FIELDS = {
    "output_dir",
    "mini_batch_size",
    "disable_tqdm",
    "save_strategy",
    "save_steps",
    "save_total_limit",
    "report_to",
    "use_cpu",
    "ddp_timeout",
    "sugarcrepe_folder",
    "coco_images",
}
FREE_PREFIXES = ("dataloader_", "logging_", "evaluation")
BINDING_FIELDS = {"dataloader_drop_last"}  # though of such a prefix
CAVEATS = {
    SANDBOX: "Synthetic: a drawn world and a tiny model. It shows the mechanism, not what a real CLIP would score.",
    "vit_b32": "Plumbing, not quality: the model started from random weights.",
}


def main(name: str, arguments: Sequence[str] | None = None) -> None:
    """Runs a recipe from the command line.

    Args:
        name: recipe that is run unless `--config` names another.
        arguments: by default those of the process. `--config name-or-path`, `--resume`, `--field value`, `--help`.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if {"-h", "--help"} & set(arguments):
            print(recipe_help(name, arguments))
            return
        recipe = read_recipe(name, arguments)
    except (ValueError, FileNotFoundError) as error:
        raise SystemExit(f"error: {error}") from error
    run(recipe)


def run(recipe: Recipe) -> Path:
    """Runs an experiment and returns its folder.

    The folder holds `config.yaml`, `base/` (when it was made here), `controls/<name>/`, `method/` (plain models with
    their processor), `items.parquet`, `results.json`, `report.md`, `figure.png` and `README.md`, the model card.
    """
    arguments = recipe.trainer_arguments
    wait = timedelta(seconds=float(arguments.get("ddp_timeout") or DDP_TIMEOUT))
    state = PartialState(cpu=bool(arguments.get("use_cpu")), timeout=wait)
    _use_all_cores(state)
    disable_progress_bar()  # of loading and writing weights; the stages show their own
    folder = _folder(recipe, state)
    notes: list[str] = []

    def tell(note: str) -> None:
        notes.append(note)
        state.print(note)

    state.print(f"hfcomp {__version__}: {recipe.experiment.method} -> {folder}")
    evaluate, rows = _prepare(recipe, tell)
    recipe.given["output_dir"] = str(folder)
    if state.is_main_process:  # not before everything is loaded: a mistyped path takes no folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(recipe.given, sort_keys=True))
    stages, models = _train(recipe, folder, rows)
    if state.is_main_process:
        _evaluate_and_report(recipe, folder, stages, models, notes, evaluate)
    state.wait_for_everyone()
    if state.num_processes > 1:
        state.destroy_process_group()
    return folder


def _prepare(recipe: Recipe, tell: Callable[[str], None]) -> tuple[Evaluation, Dataset]:
    """Loads what is evaluated and trained on, and looks for the base, before anything is written."""
    config, arguments = recipe.experiment, recipe.trainer_arguments
    names = arguments.get("column_names")
    if config.model:
        AutoProcessor.from_pretrained(config.model)
    elif config.fresh_model != SANDBOX:
        check_vocabulary(config.clip_vocabulary)
    evaluate = prepare_evaluation(config, column_names=names, seed=0, tell=tell)
    with PartialState().main_process_first():  # the others find what it cached
        rows = training_rows(config, column_names=names, seed=int(arguments.get("seed", 42)), tell=tell)
    return evaluate, rows


def _base(recipe: Recipe, folder: Path, stages: list[StageSummary]) -> Path | str:
    """The model that all runs start from: the recipe's, or one made here, whose training is added to `stages`."""
    config, arguments = recipe.experiment, recipe.trainer_arguments
    seed = int(arguments.get("seed", 42))
    if config.model:
        return config.model
    base = folder / "base"
    if config.fresh_model == SANDBOX:
        machine = {name: arguments[name] for name in MACHINE_ARGUMENTS if name in arguments}
        size = {"steps": config.base_steps, "rows": config.base_rows}
        stages.append(sandbox_base(base, **size, seed=seed, common=machine, resume=recipe.resume))
    else:
        fresh_vit_b32(base, config.clip_vocabulary, seed=seed, resume=recipe.resume)
    return base


def _train(recipe: Recipe, folder: Path, rows: Dataset) -> tuple[list[StageSummary], dict[str, Path | str]]:
    config, arguments = recipe.experiment, recipe.trainer_arguments
    stages: list[StageSummary] = []
    base = _base(recipe, folder, stages)
    models: dict[str, Path | str] = {"base": base}
    runs = [(f"{control} control", folder / "controls" / control, InfoNCETrainer) for control in config.controls]
    runs.append((config.method, folder / "method", recipe.trainer_class))
    for name, place, trainer_class in runs:
        own = {key: value for key, value in arguments.items() if key not in ("output_dir", "column_names")}
        if trainer_class is InfoNCETrainer and name.endswith("control"):
            own.pop("num_negatives", None)
        stages.append(
            train_stage(
                name,
                trainer_class,
                lambda: (str(base), AutoProcessor.from_pretrained(base), rows),
                place,
                own,
                batch_size=config.batch_size,
                resume=recipe.resume,
            )
        )
        models[name] = place
    return stages, models


def _evaluate_and_report(
    recipe: Recipe,
    folder: Path,
    stages: list[StageSummary],
    models: dict[str, Path | str],
    notes: list[str],
    evaluate: Evaluation,
) -> None:
    config = recipe.experiment
    device = "cpu" if recipe.trainer_arguments.get("use_cpu") else None
    tables = []
    for name, place in models.items():
        tables.append(evaluate(Embedder(place, device=device)).assign(model=name))
    items = pd.concat(tables, ignore_index=True)
    control = next((name for name in models if name.endswith("control")), None)
    lines = summarize(items, list(models), control)
    synthetic = SANDBOX if config.dataset == SANDBOX or config.evaluation == SANDBOX else None
    made_here = None if config.model else config.fresh_model
    facts = {
        "hfcomp_version": __version__,
        "method": config.method,
        "models": {name: str(place) for name, place in models.items()},
        "caveat": CAVEATS.get(synthetic or made_here or "", "One seed: differences between seeds are not shown."),
        "notes": notes,
        "config": recipe.given,
    }
    write_results(folder, items=items, lines=lines, stages=stages, facts=facts)
    print_report(lines, stages, facts, folder)


def _folder(recipe: Recipe, state: PartialState) -> Path:
    """The output folder: as given, or numbered when it is taken; of a resumed run, the one that it is in."""
    wanted = Path(recipe.trainer_arguments.get("output_dir") or f"runs/{recipe.experiment.method}".lower())
    numbered = [wanted, *(wanted.with_name(f"{wanted.name}-{number}") for number in range(2, 10_000))]
    taken = [path for path in numbered if (path / "config.yaml").exists()]
    if recipe.resume:
        chosen = _resumed(recipe, wanted, taken)
    else:
        chosen = next(path for path in numbered if path not in taken)
    return Path(broadcast_object_list([str(chosen)])[0]) if state.num_processes > 1 else chosen


def _resumed(recipe: Recipe, wanted: Path, taken: list[Path]) -> Path:
    """The folder that the command line names when it holds a run, otherwise the newest of the numbered ones."""
    if not taken:
        raise SystemExit(f"error: --resume: there is no run in {wanted}. Leave it out to start one.")
    if "output_dir" in recipe.overridden and wanted in taken:
        chosen = wanted
    else:
        chosen = max(taken, key=lambda path: (path / "config.yaml").stat().st_mtime)
    _check_same(recipe, chosen)
    return chosen


def _check_same(recipe: Recipe, folder: Path) -> None:
    before = yaml.safe_load((folder / "config.yaml").read_text())
    names = sorted(key for key in {*before, *recipe.given} if not _is_free(key))
    changed = [key for key in names if before.get(key) != recipe.given.get(key)]
    if changed:
        details = ", ".join(f"{key}: {before.get(key)!r} -> {recipe.given.get(key)!r}" for key in changed)
        raise SystemExit(
            f"error: --resume: {folder} was started with other values ({details}). Give the same ones, or leave out "
            "--resume to start a new run."
        )


def _is_free(name: str) -> bool:
    return name in FREE_FIELDS or (name.startswith(FREE_PREFIXES) and name not in BINDING_FIELDS)


def _use_all_cores(state: PartialState) -> None:
    """`accelerate launch` sets one thread per process where nothing is set; a CPU run would take twice as long."""
    if (
        state.device.type != "cpu"
        or os.environ.get("OMP_NUM_THREADS") != "1"
        or "ACCELERATE_MIXED_PRECISION" not in os.environ
    ):
        return
    threads = max(1, (os.cpu_count() or 1) // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    if threads > 1:
        torch.set_num_threads(threads)
        state.print(f"{threads} threads per process (accelerate launch had set OMP_NUM_THREADS=1)")
