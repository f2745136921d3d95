"""A sweep: variants of a method, under several settings and seeds, each from the same base on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from hfcomp import __version__
from hfcomp.data.columns import nearest
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.folders import finish, run_folder
from hfcomp.experiments.outcomes import evaluate_models
from hfcomp.experiments.program import (
    base_model,
    load_rows,
    method_run,
    named_models,
    num_negatives,
    output_folder,
    prepare,
    run_facts,
)
from hfcomp.experiments.recipes import Recipe, overridden_fields, read_recipe, recipes_folder, split_options
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.stages import StageSummary
from hfcomp.experiments.sweep_report import print_sweep, write_sweep
from hfcomp.experiments.sweep_results import SweepPlan, part_name, summarize_sweep

KEYS = ("seeds", "settings", "variants", "reference", "logged", "benchmarks")
# What all runs of a sweep share.
SHARED_FIELDS = {
    *("objective", "method", "controls", "model", "fresh_model", "clip_vocabulary"),
    *("column_names", "output_dir", "seed"),
}
SHARED_PREFIXES = ("base_", "evaluation")


@dataclass(frozen=True)
class Sweep:
    """A checked sweep.

    Attributes:
        recipe: of the base, the evaluation and the folder.
        plan: its settings, seeds and variants.
        parts: the recipe of each setting, seed and variant.
    """

    recipe: Recipe
    plan: SweepPlan
    parts: dict[tuple[str, int, str], Recipe]


def read_sweep(name: str, arguments: Sequence[str]) -> Sweep:
    """Reads the sweep that `--report` names and the recipe that it is of.

    The file holds `seeds` (a list), `settings` and `variants` (each a mapping of names to fields), `reference` (a
    variant), and where wanted `logged`, metrics of the training log, and `benchmarks`, those that the tables show. A
    setting changes what all its variants are trained on or how; a variant changes fields of the trainer only.

    Args:
        name: of the recipe, used unless `arguments` holds `--config`.
        arguments: of the command line, with `--report name-or-path`.

    Raises:
        ValueError: for an unknown key, a field that the runs of a sweep share, or one that the command line sets too.
        FileNotFoundError: naming the sweeps that exist.
    """
    options, words = split_options(arguments)
    path = find_report(name, options.report)
    values = _checked(yaml.safe_load(path.read_text()), path)
    recipe = read_recipe(name, arguments)
    if "output_dir" not in overridden_fields(words):
        recipe.trainer_arguments["output_dir"] = f"{output_folder(recipe)}-{path.stem}"
    recipe.given["report"] = values
    parts = {}
    for setting, of_setting in values["settings"].items():
        for seed in values["seeds"]:
            for variant, of_variant in values["variants"].items():
                changes = {**(of_setting or {}), **(of_variant or {}), "seed": seed}
                parts[setting, seed, variant] = read_recipe(name, arguments, changes=changes, where=str(path))
    names = list(values["settings"]), values["seeds"], list(values["variants"])
    shown = {key: values.get(key) or [] for key in ("logged", "benchmarks")}
    plan = SweepPlan(*names, reference=values["reference"], **shown)
    return Sweep(recipe, plan, parts)


def find_report(recipe: str, name: str) -> Path:
    """The YAML file of a sweep or a study of concepts: a path, or a name beside the recipe's files.

    Raises:
        FileNotFoundError: naming the reports of the recipe.
    """
    if Path(name).is_file():
        return Path(name)
    folder = Path(recipe).parent if Path(recipe).is_file() else recipes_folder() / recipe.partition("/")[0]
    known = [path for path in sorted(folder.glob("*.yaml")) if {"variants", "accuracy"} & _keys(path)]
    for path in known:
        if path.stem == name.removesuffix(".yaml"):
            return path
    names = [path.stem for path in known]
    listed = f"Known: {', '.join(names)}." if names else "It has none."
    raise FileNotFoundError(f"no report {name!r} of {recipe}.{nearest(name, names)} {listed}")


def is_sweep(path: Path) -> bool:
    """Whether a file is a sweep, and no study of concepts."""
    return "accuracy" not in _keys(path)


def _keys(path: Path) -> set[str]:
    values = yaml.safe_load(path.read_text())
    return set(values) if isinstance(values, dict) else set()


def _checked(values: Any, path: Path) -> dict[str, Any]:
    if not isinstance(values, dict) or not {"seeds", "settings", "variants", "reference"} <= values.keys():
        raise ValueError(f"{path}: a sweep is a mapping with seeds, settings, variants and reference.")
    for key in values:
        if key not in KEYS:
            raise ValueError(f"{path}: unknown key {key!r}.{nearest(key, KEYS)} Known: {', '.join(KEYS)}.")
    seeds = values["seeds"]
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise ValueError(f"{path}: seeds: found {seeds!r}, expected a list of whole numbers.")
    for key in ("settings", "variants"):
        _check_parts(values[key], f"{path}: {key}", only_trainer=key == "variants")
    if values["reference"] not in values["variants"]:
        raise ValueError(f"{path}: reference {values['reference']!r} is none of {', '.join(values['variants'])}.")
    return values


def _check_parts(parts: Any, where: str, *, only_trainer: bool) -> None:
    if not isinstance(parts, dict) or not parts or not all(isinstance(part or {}, dict) for part in parts.values()):
        raise ValueError(f"{where}: found {parts!r}, expected names, each with a mapping of fields: clean: {{}}.")
    experiment = {f.name for f in fields(ExperimentConfig)}
    for name, part in parts.items():
        for key in part or {}:
            if key in SHARED_FIELDS or key.startswith(SHARED_PREFIXES):
                raise ValueError(f"{where}: {name}: {key} is the same for all runs of a sweep. Set it for the recipe.")
            if only_trainer and key in experiment:
                raise ValueError(f"{where}: {name}: {key} changes the rows or batches. Make it a setting.")


def run_sweep(sweep: Sweep) -> Path:
    """Trains and evaluates every part, and returns the folder.

    The folder holds `config.yaml`, `base/` (when it was made here), `<setting>/<seed>/<variant>/`, `evaluation/` with
    the outcomes of each, `sweep.json`, `report.md` and `finished`. Started again with the same values it goes on where
    it was killed.
    """
    plan = sweep.plan
    session = open_session(sweep.recipe.trainer_arguments)
    runs = f"{len(plan.settings)} settings, {len(plan.seeds)} seeds, {len(plan.variants)} variants"
    session.state.print(f"hfcomp {__version__}: {sweep.recipe.experiment.method}, {runs}")
    evaluate = prepare(sweep.recipe, session)
    for part in sweep.parts.values():
        method_run(part, None).check()
    with run_folder(output_folder(sweep.recipe), sweep.recipe.given, session.state) as folder:
        session.state.print(f"-> {folder}")
        stages: list[StageSummary] = []
        models: dict[str, Path | str] = {"base": base_model(sweep.recipe, folder)}
        for setting in plan.settings:
            for seed in plan.seeds:
                stages += _train(sweep, setting, seed, folder, models, session)
        if session.state.is_main_process:
            outcomes = evaluate_models(sweep.recipe, folder, models, evaluate, session)
            facts = {**run_facts(sweep.recipe, session), "models": named_models(models, outcomes)}
            results = summarize_sweep(outcomes.items, plan, folder)
            write_sweep(folder, plan, results, stages=stages, facts=facts)
            print_sweep(plan, results, facts, folder)
            finish(folder)
        session.state.wait_for_everyone()
    session.close()
    return folder


def _train(
    sweep: Sweep, setting: str, seed: int, folder: Path, models: dict[str, Path | str], session: Session
) -> list[StageSummary]:
    """Trains all variants of a setting and seed on the same rows, and adds them to `models`.

    Rows are made with as many negatives as any variant reads.
    """
    rows = load_rows(max((sweep.parts[setting, seed, one] for one in sweep.plan.variants), key=num_negatives), session)
    costs = []
    for variant in sweep.plan.variants:
        name = part_name(setting, seed, variant)
        run = method_run(sweep.parts[setting, seed, variant], rows, name=name)
        models[name] = folder / name
        costs.append(run.train(models["base"], folder / name))
    return costs
