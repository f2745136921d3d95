"""Forgetting guard of a run: interpolates between the base and a trained model and picks a point by a rule.

Both the method and the control `same-batch` are guarded. Interpolation helps any model, which is not an advantage of
the method, so the guarded method is compared with the guarded control. Points are chosen on items that the report
does not contain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoProcessor

from hfcomp.data.image_ids import photograph_key
from hfcomp.data.overlap import ScoredImages
from hfcomp.distributed import run_on_main_process
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.points import PointsEmbedder
from hfcomp.experiments.experiment_config import SAME_BATCH, SANDBOX, ExperimentConfig
from hfcomp.experiments.prepare import declared_averages, prepare_evaluation, prepare_guard_benchmarks
from hfcomp.experiments.session import Session
from hfcomp.experiments.study import FOLDER, Study, evaluation_scoring, read_stored
from hfcomp.merging.merge import RECORD_FILE, write_point
from hfcomp.merging.sweep import ALPHAS, Proxies, SweepResult, choose, few_images_warnings, find_proxies, split_halves
from hfcomp.modeling.interpolation import load_interpolation
from hfcomp.reporting.run_record import guarded_folder, guarded_name
from hfcomp.statistics.average import Average
from hfcomp.statistics.outcomes import Outcomes, write_table
from hfcomp.statistics.summary import BASE

# Seed of the sandbox scenes that a point is chosen on. The report's scenes have seed 0.
SEED = 1000
OTHER_SCENES = f"scenes with another seed ({SEED}) than the report's"
HALF = "half of the evaluation images; the report covers the other half"


@dataclass(frozen=True)
class Guard:
    """The items that points are chosen on, loaded before anything is trained."""

    evaluator: Evaluator  # evaluator of these items
    items: str  # description of these items
    stamp: Mapping[str, Any]  # everything except the weights that identifies their stored outcomes
    declared: Mapping[str, Sequence[Average]]  # averages in use, by benchmark title
    primary: str | None  # primary endpoint, written as in a recipe
    halved: bool = False  # whether the evaluation's own images are split in half
    swept: dict[str, SweepResult] = field(default_factory=dict)  # finished sweeps by model name

    @property
    def images(self) -> list[ScoredImages]:
        """Images that are scored in addition to those of the evaluation, and so must not be trained on either."""
        return [] if self.halved else self.evaluator.images

    def proxies(self, outcomes: Outcomes) -> Proxies:
        return find_proxies(outcomes, self.declared, primary=self.primary)

    def check(self, outcomes: Outcomes) -> None:
        """Raises for proxies that are not scored, or images that cannot be split in half."""
        self.proxies(self.choosing_outcomes(outcomes))

    def choosing_outcomes(self, outcomes: Outcomes) -> Outcomes:
        return split_halves(outcomes)[0] if self.halved else outcomes

    def reported_outcomes(self, outcomes: Outcomes) -> Outcomes:
        return split_halves(outcomes)[1] if self.halved else outcomes

    def facts(self) -> dict[str, Any]:
        models = {guarded_name(name): swept.facts() for name, swept in self.swept.items()}
        return {"items": self.items, "models": models}


def prepare_guard(
    config: ExperimentConfig, session: Session, evaluate: Evaluator, column_names: Any = None
) -> Guard | None:
    """Loads the guard if a recipe enables it, so missing data is found before training."""
    if not config.forgetting_guard:
        return None
    declared, primary, halved = declared_averages(config), config.primary, False
    if config.guard_benchmarks:
        evaluator, declared = prepare_guard_benchmarks(config, log=session.log)
        items, primary = ", ".join(config.guard_benchmarks), None
    elif config.evaluation == SANDBOX:
        how = {"column_names": column_names, "seed": SEED, "log": session.log}
        evaluator, items = prepare_evaluation(config, **how), OTHER_SCENES
    else:
        evaluator, items, halved = evaluate, HALF, True
    stamp = evaluation_scoring(config, evaluator, column_names).stamp
    guard = Guard(evaluator, items, stamp, declared, primary, halved)
    run_on_main_process(lambda: guard.evaluator.check_names(guard.check))
    session.log(f"forgetting guard: points are chosen on {guard.items}")
    return guard


def wants_guard(config: ExperimentConfig, folder: Path) -> bool:
    # If the guard is enabled after the run has finished, it needs no training, and the run resumes only for it.
    return config.forgetting_guard and not any(folder.rglob(RECORD_FILE))


def guarded_models(study: Study, method: str) -> list[str]:
    return [name for name in (SAME_BATCH, method) if name in study.models]


def guard_models(study: Study, guard: Guard, method: str) -> None:
    """Chooses a point for the method and for `same-batch` and adds the models to the study; main process only."""
    scored = set(study.outcomes([BASE]).table["image_id"])
    for name in guarded_models(study, method):
        place = Path(study.models[name])
        folder = guarded_folder(place)
        guard.swept[name] = _guard_model(study, guard, name, folder, scored)
        study.models[guarded_name(name)] = folder


def _guard_model(study: Study, guard: Guard, name: str, folder: Path, scored: set[str]) -> SweepResult:
    base, tuned, config = study.models[BASE], study.models[name], study.experiment
    outcomes = _outcomes(study, guard, name)
    # A point is chosen on items that are not in the report. On the same items, the best of 11 points would look better
    # than it is.
    choosing = guard.choosing_outcomes(outcomes) if guard.halved else without(outcomes, scored, study.session)
    how = {"rule": config.guard_rule, "tolerance": config.guard_tolerance}
    swept = choose(choosing, guard.proxies(choosing), **how)
    for warning in few_images_warnings(swept):
        study.session.log(f"forgetting guard of {name}: {warning}")
    facts = {**swept.facts(), "on": guard.items}
    write_point(load_interpolation(base, tuned), swept.chosen.alpha, folder, base=base, tuned=tuned, chosen=facts)
    return swept


def _outcomes(study: Study, guard: Guard, name: str) -> Outcomes:
    """Outcomes of all points between the base and a model, read from disk or else scored and stored."""
    base, tuned, notes = study.models[BASE], study.models[name], study.session.notes
    path = study.folder / FOLDER / "guard" / f"{name}.parquet"
    stamp = {"base": identity(base), "tuned": identity(tuned), "alphas": list(ALPHAS), **guard.stamp}
    table = read_stored(path, stamp, study.session.log)
    if table is None:
        before, processor = len(notes), AutoProcessor.from_pretrained(tuned, trust_remote_code=False)
        embedder = PointsEmbedder(load_interpolation(base, tuned), ALPHAS, processor, device=study.session.device)
        table = embedder.score(guard.evaluator)
        write_table(path, table, {**stamp, "notes": notes[before:]})
    return Outcomes(table)


def without(outcomes: Outcomes, scored: set[str], session: Session) -> Outcomes:
    """Outcomes of images that the report does not contain; logs the number of the others."""
    # A COCO photograph has several names, such as COCO_val2014_000000000285.jpg and 000000000285.
    table, reported = outcomes.table, {photograph_key(name) for name in scored}
    keys = table["image_id"].map({name: photograph_key(name) for name in table["image_id"].unique()})
    known = keys.isin(reported)
    count = keys[known].nunique()
    if not count:
        return outcomes
    session.log(f"forgetting guard: {count:,} images are also in the report and are not used to choose points")
    if known.all():
        raise ValueError(
            "guard_benchmarks: all images are also in the report. Name other benchmarks, or leave guard_benchmarks "
            "out to choose points on half of the evaluation images."
        )
    return Outcomes(table[~known])
