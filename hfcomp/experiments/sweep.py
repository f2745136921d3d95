"""A sweep: variants of a method, under several settings and seeds, each from the same base on the same rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hfcomp import __version__
from hfcomp.data.overlap import ScoredImages
from hfcomp.distributed import fail_together
from hfcomp.evaluation.statistics import Outcomes as ItemTable
from hfcomp.evaluation.statistics.measures import headline_measures
from hfcomp.experiments.controls import CONTROLS, NotApplicable
from hfcomp.experiments.embedding_paths import EmbeddingPaths
from hfcomp.experiments.embedding_paths_report import write_paths
from hfcomp.experiments.embedding_rows import HeldOutRows, held_out_rows
from hfcomp.experiments.evaluate import declared_averages
from hfcomp.experiments.folders import finish, run_folder
from hfcomp.experiments.outcomes import Outcomes, evaluate_models
from hfcomp.experiments.overlap import check_same_rows
from hfcomp.experiments.program import (
    CAVEATS,
    base_model,
    check_primary,
    check_rows,
    load_rows,
    method_run,
    named_models,
    num_negatives,
    output_folder,
    prepare,
    run_facts,
)
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.stages import Run, StageSummary
from hfcomp.experiments.sweep_file import Sweep
from hfcomp.experiments.sweep_report import print_sweep, write_sweep
from hfcomp.experiments.sweep_results import SweepPlan, part_name, summarize_sweep
from hfcomp.fields import columns_of


def run_sweep(sweep: Sweep) -> Path:
    """Trains and evaluates every part, and returns the folder.

    The folder holds `config.yaml`, `base/` (when it was made here), `<setting>/<seed>/<variant>/`, `evaluation/` with
    the outcomes of each, `sweep.json`, `report.md` and `finished`, and with `embeddings` what `write_paths` writes.
    Started again with the same values it goes on where it was killed.
    """
    plan = sweep.plan
    session = open_session(sweep.recipe.trainer_arguments)
    sizes = f"settings {len(plan.settings)}, seeds {len(plan.seeds)}, variants {len(plan.variants)}"
    session.state.print(f"hfcomp {__version__}: {sweep.recipe.experiment.method}, {len(sweep.parts)} runs ({sizes})")
    _check_parts(sweep)
    evaluate = prepare(sweep.recipe, session)
    for note in sweep.notes:
        session.tell(note)
    held_out = _held_out(sweep, session)
    with run_folder(output_folder(sweep.recipe), sweep.recipe.given, session.state) as folder:
        session.state.print(f"-> {folder}")
        stages: list[StageSummary] = []
        models: dict[str, Path | str] = {"base": base_model(sweep.recipe, folder)}
        with fail_together():
            if session.state.is_main_process:  # a benchmark or endpoint that is not evaluated costs no training
                items = evaluate_models(sweep.recipe, folder, models, evaluate, session).items
                headline_measures(ItemTable(items), plan.benchmarks, check_primary(sweep.recipe, items))
        paths = _paths(sweep, held_out, folder, models["base"], session)
        first = _checked_rows(sweep, session, evaluate.images)
        for setting in plan.settings:
            for seed in plan.seeds:
                more = {"scored": evaluate.images, "rows": first.pop(setting, None)}
                costs = _train(sweep, setting, seed, folder, models, session, paths, **more)
                _tell_unequal_steps(costs, session)
                stages += costs
        with fail_together():
            if session.state.is_main_process:
                outcomes = evaluate_models(sweep.recipe, folder, models, evaluate, session)
                facts = {**run_facts(sweep.recipe, session), "models": named_models(models, outcomes)}
                _report(sweep, folder, outcomes, stages, facts, paths)
                finish(folder)
    session.close()
    return folder


def _check_parts(sweep: Sweep) -> None:
    """Builds the config of every part, so that a wrong value costs nothing."""
    for key, part in sweep.parts.items():
        try:
            method_run(part, None).check()
        except ValueError as error:
            raise ValueError(f"{part_name(*key)}: {error}") from error


def _report(
    sweep: Sweep,
    folder: Path,
    outcomes: Outcomes,
    stages: list[StageSummary],
    facts: dict[str, Any],
    paths: EmbeddingPaths | None,
) -> None:
    plan = sweep.plan
    further = write_paths(paths, plan, facts["caveat"]) if paths else []
    facts = {**facts, "caveat": _caveat(facts["caveat"], plan)}
    results = summarize_sweep(outcomes.items, plan, folder, declared_averages(sweep.recipe.experiment))
    write_sweep(folder, plan, results, stages=stages, facts=facts, further=further)
    print_sweep(plan, results, stages, facts, folder)


def _caveat(usual: str, plan: SweepPlan) -> str:
    """The one of a single run, which says on real data that there is one seed."""
    if usual in CAVEATS.values() or len(plan.seeds) == 1:
        return usual
    return f"{len(plan.seeds)} seeds: the lowest and the highest are shown beside each mean."


def _held_out(sweep: Sweep, session: Session) -> HeldOutRows | None:
    """The rows whose embeddings are followed, like those of the first setting; loaded before anything is trained."""
    if sweep.embeddings is None:
        return None
    part = max((sweep.first(one) for one in sweep.plan.variants), key=num_negatives)
    settings = {"seed": max(sweep.plan.seeds) + 1, "num_negatives": num_negatives(part)}
    return held_out_rows(part, sweep.embeddings.rows, **settings, session=session)


def _paths(
    sweep: Sweep, held_out: HeldOutRows | None, folder: Path, base: Path | str, session: Session
) -> EmbeddingPaths | None:
    if held_out is None:
        return None
    device = "cpu" if sweep.recipe.trainer_arguments.get("use_cpu") else None
    return EmbeddingPaths(sweep.embeddings, held_out, folder, base, session, device)


def _train(
    sweep: Sweep,
    setting: str,
    seed: int,
    folder: Path,
    models: dict[str, Path | str],
    session: Session,
    paths: EmbeddingPaths | None = None,
    scored: Sequence[ScoredImages] = (),
    rows: dict[str, Any] | None = None,
) -> list[StageSummary]:
    """Trains all variants of a setting and seed on the same rows, and adds them to `models`.

    Raises:
        ValueError: for a variant that is a control which says nothing about the method.
    """
    rows = rows or _rows(sweep, setting, seed, session, scored)
    check_same_rows(folder, session)
    followed = sweep.embeddings.variants if paths and sweep.plan.is_first(setting, seed) else []
    runs = {variant: _run(sweep, setting, seed, variant, rows[variant]) for variant in sweep.plan.variants}
    costs = []
    for variant, run in runs.items():
        name = run.name
        models[name] = folder / name
        after = sweep.plan.after.get(variant)
        if variant in followed:
            costs.append(paths.train(variant, run, folder / name))
        else:
            costs.append(run.train(models[part_name(setting, seed, after) if after else "base"], folder / name))
    return costs


def _checked_rows(sweep: Sweep, session: Session, scored: Sequence[ScoredImages]) -> dict[str, dict[str, Any]]:
    """The rows of each setting's first seed, where some variant needs negative images, which are looked for."""
    if not any("negative_image" in columns_of(part.trainer_class.required_features) for part in sweep.parts.values()):
        return {}
    seed = sweep.plan.seeds[0]
    found = {setting: _rows(sweep, setting, seed, session, scored) for setting in sweep.plan.settings}
    check_rows((_run(sweep, setting, seed, *one) for setting, rows in found.items() for one in rows.items()), session)
    return found


def _rows(
    sweep: Sweep, setting: str, seed: int, session: Session, scored: Sequence[ScoredImages] = ()
) -> dict[str, Any]:
    """The rows of each variant: the same, with as many negatives as any of them reads, but for names of columns."""
    kinds: dict[str, list[str]] = {}
    for variant in sweep.plan.variants:
        names = sweep.parts[setting, seed, variant].trainer_arguments.get("column_names")
        kinds.setdefault(json.dumps(names, sort_keys=True), []).append(variant)
    found: dict[str, Any] = {}
    for variants in kinds.values():
        most = max((sweep.parts[setting, seed, one] for one in variants), key=num_negatives)
        trainers = [sweep.parts[setting, seed, one].trainer_class for one in variants]
        found |= dict.fromkeys(variants, load_rows(most, session, scored, trainers=trainers))
    return found


def _run(sweep: Sweep, setting: str, seed: int, variant: str, rows: Any) -> Run:
    name = part_name(setting, seed, variant)
    run = method_run(sweep.parts[setting, seed, variant], rows, name=name)
    control = sweep.plan.controls.get(variant)
    try:
        return run if control is None else replace(CONTROLS[control].run(run, None), name=name)
    except NotApplicable as reason:
        raise ValueError(f"{name}: control {control} says nothing here: {reason}") from None


def _tell_unequal_steps(costs: list[StageSummary], session: Session) -> None:
    """An objective may leave rows out: its epochs then have fewer steps than those of the other variants."""
    steps = {cost.name: cost.steps for cost in costs}
    if len(set(steps.values())) > 1:
        session.tell(f"numbers of steps differ: {', '.join(f'{name} {number}' for name, number in steps.items())}")
