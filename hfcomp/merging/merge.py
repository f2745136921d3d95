"""`hfcomp merge`: writes a point between a base and a tuned model, either given or chosen."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import hfcomp
from hfcomp.data.publishing import without_local_paths
from hfcomp.data.urls import UrlAccess, url_access
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.benchmarks.means import MEANS
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.evaluation.evaluation_results import FILES, EvaluationResults, evaluation_report, evaluation_to_json
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.models import check_device
from hfcomp.evaluation.points import PointsEmbedder, point_name
from hfcomp.evaluation.spec import data_folders
from hfcomp.merging.options import SweepOptions
from hfcomp.merging.report import front_figure, merge_card, points_table
from hfcomp.merging.sweep import ALPHAS, Proxies, SweepResult, choose, few_images_warnings, find_proxies, split_halves
from hfcomp.modeling import base_of_adapter, load_processor
from hfcomp.modeling.interpolation import Interpolation, check_alpha, load_interpolation
from hfcomp.reporting.cards.card import write_card
from hfcomp.reporting.cards.runs import copy_figure
from hfcomp.reporting.report import Report, Section, figure_title
from hfcomp.reporting.saving import REPORT_FILE, publish
from hfcomp.statistics.average import Average
from hfcomp.statistics.outcomes import Outcomes, write_table
from hfcomp.statistics.results import ITEMS_FILE, RESULTS_FILE, versions
from hfcomp.statistics.summary import BASE
from hfcomp.writing import replacing_folder, write_json

MODEL_FOLDER = "model"
POINTS_FILE = "points.parquet"
FIGURE = "figure.png"
TUNED = "tuned"
# Files that a sweep writes next to the model's folder
WRITTEN = (*FILES, POINTS_FILE)
ENDS = {point_name(0.0): BASE, point_name(1.0): TUNED}
HALVES = "Half of the images chose the point. Except in the table of points, all numbers come from the other half."
RECORD_FILE = "merge.json"
ModelSource = str | Path


def write_point(
    interpolation: Interpolation,
    alpha: float,
    folder: Path,
    *,
    base: ModelSource,
    tuned: ModelSource,
    chosen: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Writes the model at `alpha`, the tuned model's processor, `merge.json` and a card: the whole folder or nothing.

    Replaces an existing folder. `chosen` records how `alpha` was chosen, `None` if it was given. Returns the content
    of `merge.json`.
    """
    record = merge_record(alpha, base=base, tuned=tuned, chosen=chosen)
    processor = load_processor(tuned, argument="tuned")
    with replacing_folder(folder) as part:
        interpolation.save(part, alpha)
        processor.save_pretrained(part)
        write_json(part / RECORD_FILE, record)
        write_card(part, merge_card(record))
    return record


def merge_record(
    alpha: float, *, base: ModelSource, tuned: ModelSource, chosen: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the content of `merge.json`: `alpha`, both models, what is scaled, and how `alpha` was chosen."""
    # Local paths are removed because the folder may be published.
    models = {
        name: {"path": without_local_paths(str(source)), "weights": identity(source)}
        for name, source in (("base", base), ("tuned", tuned))
    }
    adapter = base_of_adapter(tuned) is not None
    return {
        "hfcomp_version": hfcomp.__version__,
        "alpha": alpha,
        "scaled": "the adapter of the tuned model" if adapter else "the difference of the weights",
        **models,
        "chosen": None if chosen is None else dict(chosen),
    }


def merge(base: str | Path, tuned: str | Path, alpha: float, folder: Path) -> None:
    """Writes the model at `alpha` between two models, with its processor and `merge.json`, to a folder.

    Args:
        base: Hub id or folder.
        tuned: Hub id or folder of a model or an adapter (LoRA or DoRA) that was trained from the base.
        alpha: Number from 0 (base) to 1 (tuned).
        folder: Output folder. An existing one is replaced.

    Raises:
        ValueError: If `alpha` is not between 0 and 1, or as in `load_interpolation`.
    """
    check_alpha(alpha)
    write_point(load_interpolation(base, tuned), alpha, folder, base=base, tuned=tuned)


def merge_by_sweep(
    base: str | Path, tuned: str | Path, options: SweepOptions, folder: Path, *, command: str = ""
) -> SweepResult:
    """Scores 11 points between two models, chooses one, and writes it to `model/` in a folder.

    The folder also receives `points.parquet` (outcomes of all points), `items.parquet` and `results.json` (base, tuned
    model and chosen point on the half of the images that was not used to choose, readable by `hfcomp compare`),
    `report.md` and, with matplotlib, `figure.png`, the front.

    Args:
        base: Hub id or folder.
        tuned: Hub id or folder of a model or an adapter.
        options: Options of the sweep.
        folder: Output folder, whose lock the caller holds.
        command: Command to record.

    Returns:
        The scores of the points, and the chosen one.

    Raises:
        ValueError: If data are invalid or unavailable, or as in `load_interpolation`, `find_proxies`, `split_halves`.
    """
    check_device(options.device)
    interpolation = load_interpolation(base, tuned)
    evaluator = _load(options)
    declared = {loaded.benchmark.title: loaded.benchmark.averages for loaded in evaluator.loaded} | MEANS
    # This needs no scores, so benchmarks that cannot be measured or halved fail before anything is encoded.
    evaluator.check_names(
        lambda outcomes: (_proxies(outcomes, options=options, declared=declared), split_halves(outcomes))
    )
    embedder = PointsEmbedder(
        interpolation,
        ALPHAS,
        load_processor(tuned, argument="tuned"),
        batch_size=options.batch_size,
        device=options.device,
    )
    with url_access(UrlAccess.from_settings(options.allow_urls, options.url_timeout)):
        outcomes = Outcomes(embedder.score(evaluator, progress=sys.stderr.isatty()))
    # The best of 11 points on some items looks better on these than on others, so the report uses the other half.
    choosing, reported = split_halves(outcomes)
    proxies = _proxies(outcomes, options=options, declared=declared)
    swept = choose(choosing, proxies, rule=options.rule, tolerance=options.tolerance)
    scored = {"benchmarks": list(options.benchmarks), "held_out": HALVES}
    record = write_point(
        interpolation, swept.chosen.alpha, folder / MODEL_FOLDER, base=base, tuned=tuned, chosen=swept.facts() | scored
    )
    write_table(folder / POINTS_FILE, outcomes.table)
    sources = {BASE: base, TUNED: tuned, point_name(swept.chosen.alpha): folder / MODEL_FOLDER}
    results = _results(swept, reported, evaluator, declared, sources, command)
    results.outcomes.write(folder / ITEMS_FILE)
    contents = {**evaluation_to_json(results), "sweep": swept.facts() | scored}
    publish(partial(_report, swept, results, folder), contents, folder / RESULTS_FILE)
    _write_card(folder, record, contents, _chosen_name(swept))
    return swept


def _write_card(folder: Path, record: Mapping[str, Any], contents: Mapping[str, Any], model: str) -> None:
    # The results on the card come from the half that was not used to choose.
    model_folder = folder / MODEL_FOLDER
    has_figure = copy_figure(folder / FIGURE, model_folder)
    write_card(model_folder, merge_card(record, contents, model=model, figure=FIGURE if has_figure else ""))


def _load(options: SweepOptions) -> Evaluator:
    # A benchmark with unavailable data is an error, because without it another point might be chosen.
    if not options.benchmarks:
        raise ValueError(
            "Name a compositional and a general benchmark, for example --benchmarks sugarcrepe,coco2017_retrieval."
        )
    evaluator, folders = Evaluator(print), data_folders(options.data, options.data_dir, option="data")
    evaluator.load(find_benchmarks(options.benchmarks), folders)
    for skipped in evaluator.skipped:
        raise ValueError(f"{skipped['benchmark']}: {skipped['reason']} {skipped['how_to_fix']}")
    folders.check_used("data")
    return evaluator


def _proxies(outcomes: Outcomes, *, options: SweepOptions, declared: Mapping[str, Sequence[Average]]) -> Proxies:
    return find_proxies(outcomes, declared, composition=options.composition, general=options.general)


def _chosen_name(swept: SweepResult) -> str:
    # Name the ends "base" and "tuned", not "alpha 0" and "alpha 1".
    chosen = point_name(swept.chosen.alpha)
    return ENDS.get(chosen, chosen)


def _results(
    swept: SweepResult,
    reported: Outcomes,
    evaluator: Evaluator,
    declared: Mapping[str, Sequence[Average]],
    sources: Mapping[str, ModelSource],
    command: str,
) -> EvaluationResults:
    chosen = point_name(swept.chosen.alpha)
    models = {**{BASE: sources[BASE], TUNED: sources[TUNED]}, _chosen_name(swept): sources[chosen]}
    table = reported.select(arm=list(dict.fromkeys([*ENDS, chosen]))).table
    return EvaluationResults(
        Outcomes(table.assign(arm=table["arm"].replace(ENDS))),
        {name: {"path": str(source), "weights": identity(source)} for name, source in models.items()},
        declared,
        BASE,
        benchmarks={loaded.benchmark.name: loaded.facts() for loaded in evaluator.loaded},
        notes=[*evaluator.notes, *few_images_warnings(swept)],
        versions=versions(),
        config={"command": command, "date": datetime.now(UTC).isoformat(timespec="seconds")},
    )


def _report(swept: SweepResult, results: EvaluationResults, folder: Path, *, brief: bool) -> Report:
    report = evaluation_report(results, brief=brief)
    alpha = f"{swept.chosen.alpha:g}"
    title = f"Between base and tuned model: alpha {alpha}"
    chosen = f"Alpha {alpha} is chosen: it has {swept.rule}."
    figure = front_figure(FIGURE, figure_title(title, report.caveat), {TUNED: swept})
    sections = [
        Section("", [figure]),
        Section("Points", [points_table(TUNED, swept, brief=brief)]),
        *report.sections[1:],
    ]
    closing = {"model": str(folder / MODEL_FOLDER), "report": str(folder / REPORT_FILE)}
    return replace(report, title=title, verdict=[chosen, HALVES], sections=sections, closing=closing)
