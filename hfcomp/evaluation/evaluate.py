"""`hfcomp.evaluate`: scores models on benchmarks, side by side."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from accelerate import PartialState

from hfcomp.data.urls import DEFAULT_TIMEOUT, UrlAccess, url_access
from hfcomp.distributed import check_world_size, fail_together, gather_objects, rank
from hfcomp.evaluation import benchmarks as known
from hfcomp.evaluation.benchmarks.means import MEANS
from hfcomp.evaluation.blind.encoders import BLIND
from hfcomp.evaluation.blind.outcomes import BlindRules, prior_outcomes
from hfcomp.evaluation.blind.results import BlindResults, prior_of
from hfcomp.evaluation.encoding.cache import open_cache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.embedded import Encoder
from hfcomp.evaluation.encoding.evaluated_model import EvaluatedModel
from hfcomp.evaluation.encoding.objects import can_encode
from hfcomp.evaluation.evaluation_results import EvaluationResults
from hfcomp.evaluation.evaluator import DetailedScores, Evaluator
from hfcomp.evaluation.items.item_browser import ItemImages
from hfcomp.evaluation.models import check_device, describe_model, open_encoders
from hfcomp.evaluation.pairs.options import PAPER, PairOptions
from hfcomp.evaluation.score_files import ScoreFile
from hfcomp.evaluation.spec import Benchmark, Folders, data_folders
from hfcomp.evaluation.stored import BLIND_PATH
from hfcomp.options import named_models, place_of
from hfcomp.remote_code import code_notes, pin
from hfcomp.statistics.outcomes import label_items
from hfcomp.statistics.results import versions
from hfcomp.statistics.summary import check_tie

logger = logging.getLogger(__name__)

NO_RULES = "none"
"""Value of `blind` that turns the blind rules off."""
PATIENCE = timedelta(days=7)  # how long the other processes wait while one fits probes


def evaluate(
    models: Any = (),
    *,
    suite: str | None = None,
    benchmarks: str | Benchmark | Sequence[str | Benchmark] = (),
    data: Mapping[str, str | Path] | None = None,
    data_dir: str | Path | None = None,
    column_names: Mapping[str, str] | None = None,
    split: str | None = None,
    blind: str | Sequence[str] = (),
    blind_captions: str | Path | None = None,
    scores: Mapping[str, str | Path] | None = None,
    reference: str | None = None,
    tie: str = "wrong",
    published: bool = False,
    cache: str | Path | bool = True,
    cache_limit: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    batch_size: int = 128,
    device: str | None = None,
    progress: bool | None = None,
    allow_urls: bool = False,
    url_timeout: float | None = None,
    skip_damaged: bool = False,
    pairs: PairOptions | None = None,
    log: Callable[[str], None] = logger.info,
) -> EvaluationResults:
    """Scores models on benchmarks, side by side, with intervals, ties and paired differences.

    ```python
    results = hfcomp.evaluate(["openai/clip-vit-base-patch32", "runs/cement"], benchmarks=["sugarcrepe"])
    print(results)
    ```

    If `torchrun` or `accelerate launch` started several processes, all of them must call it and share the encoding.
    Only the first process has the outcomes; the results of the others are empty.

    Args:
        models: Hub ids, `ID@REVISION`, folders or `name=PLACE`; or objects of any kind in docs/models.md. A list, a
            mapping by name, or a single model. Dual encoders embed; others (docs/other_models.md) score pair by pair.
        suite: `compositional`, `general` or `all`.
        benchmarks: Further ones: names (`hfcomp evaluate --list`), `module:NAME`, files, folders, `Benchmark` objects.
        data: Folders by name of a benchmark or image set, for example `{"val2017": "coco/val2017"}`.
        data_dir: Folder with one subfolder for each of the others. Data in neither comes from the Hub.
        column_names: Column mapping for your own files and folders among the benchmarks, hfcomp's name first.
        split: Split of your own files and folders, for example `train[90%:]`; by default `test`, or the only one.
        blind: Blind scorers to add as models: `constant`, `random`, `shorter`. Blind rules are scored without it, see
            `hfcomp.evaluation.blind.rules`; `none` turns them off.
        blind_captions: Captions for the bigram model among the blind rules, except those that a benchmark uses: a
            file, a folder, a Hub id, or `coco`; by default COCO's captions if they are on this machine.
        scores: Files with scores of other systems, by name; see `hfcomp.evaluation.score_files.ScoreFile`.
        reference: Model to compare the others with, by name or place; by default the first.
        tie: How to count a tie: `wrong`, `half` or `win`.
        published: Show the models' published numbers, with source and protocol, next to the measured ones.
        cache: Whether to keep embeddings for later runs, or the folder for them.
        cache_limit: Size limit of that folder, such as `5GB`; by default `$HFCOMP_CACHE_LIMIT`, else 20 GB.
        revision: Branch, tag or commit of a Hub id. For several, give each as `ID@REVISION` among the `models`.
        trust_remote_code: Run the Python code in model repositories and folders. Hub ids then need a commit.
        batch_size: Images or texts per encoding batch.
        device: Device such as `cpu` or `cuda:1`; by default a GPU if available.
        progress: Whether to show progress bars; by default only if standard error is a terminal.
        allow_urls: Download images that the data references by URL. Only for data that you trust.
        url_timeout: Download timeout per image in seconds.
        skip_damaged: Leave out items with a damaged image for all models, and count them in the notes and in
            `results.json`; otherwise a damaged image is an error. This decodes each image once more.
        pairs: VQAScore's question and answer, and models to score with their matching head.
        log: Function that receives progress and notes, line by line.

    Raises:
        ValueError: If an argument is invalid, a model is not a dual encoder, available data is wrong, or no
            benchmark could be scored.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: found {batch_size}, expected 1 or more.")
    check_tie(tie)
    chosen = choose_benchmarks(suite, _as_list(benchmarks), column_names, log, split=split)
    folders = data_folders(data, data_dir, option="data")
    request = _read_request(models, scores or {}, reference, _as_list(blind), blind_captions, folders)
    pairs = pairs or PAPER
    heads = [_find_model("matching_head", given, request.models) for given in pairs.matching_head]
    check_device(device)
    embedding_cache = open_cache(cache, cache_limit)
    settings = {"batch_size": batch_size, "device": _join_processes(device), "cache": embedding_cache, "split": True}
    bars = sys.stderr.isatty() if progress is None else progress
    access = UrlAccess.from_settings(allow_urls, DEFAULT_TIMEOUT if url_timeout is None else url_timeout)
    with fail_together(), url_access(access):  # a process that fails alone ends all
        # opened before any data is read, so an unsupported model ends the run immediately
        places = pin([*request.models.values()], revision, trust=trust_remote_code)
        models = dict(zip(request.models, places, strict=True))
        opened = open_encoders(places, [name in heads for name in models], pairs, **settings)
        encoders = dict(zip(models, opened, strict=True))
        notes = code_notes(places) + _reading_notes(encoders)
        evaluator = load_benchmarks(chosen, folders, log, notes, skip_damaged=skip_damaged)
        for note in (note for file in request.files.values() for note in file.check(evaluator.loaded)):
            evaluator.note(note)
        # blind rules are scored first, before any work could be lost
        titled = [(loaded.title, loaded.benchmark, loaded.data) for loaded in evaluator.loaded]
        blind = request.rules.score(titled) if request.rules and rank() == 0 else []
        every = {**encoders, **request.files, **request.scorers}
        scored = _score(evaluator, every, bars, priors=list(encoders) if request.rules else [])
        embedding_cache.trim()  # also if nothing was encoded and therefore nothing written
        for note in (note for notes in gather_objects(embedding_cache.notes) for note in notes):
            evaluator.note(note)
        return EvaluationResults(
            scored.items,
            {name: _facts(name, models.get(name), encoder) for name, encoder in every.items()},
            {loaded.title: loaded.benchmark.averages for loaded in evaluator.loaded} | MEANS,
            request.reference,
            tie,
            benchmarks={loaded.benchmark.name: loaded.facts() for loaded in evaluator.loaded},
            skipped=evaluator.skipped,
            notes=evaluator.notes,
            seconds=scored.seconds,
            versions=versions(),
            config={"date": datetime.now(UTC).isoformat(timespec="seconds")},
            published=published,
            blind=BlindResults.join([*blind, scored.prior], **request.rules.facts)
            if request.rules and len(scored.items)
            else None,
            scores=scored.scores,
            images=ItemImages(evaluator.loaded),
        )


class EvaluationRequest(NamedTuple):
    """The models of an evaluation, checked before anything is loaded."""

    models: Mapping[str, Any]
    files: Mapping[str, ScoreFile]
    scorers: Mapping[str, Encoder]
    rules: BlindRules | None
    reference: str


def _read_request(
    models: Any,
    scores: Mapping[str, str | Path],
    reference: str | None,
    blind: Sequence[str],
    captions: str | Path | None,
    folders: Folders,
) -> EvaluationRequest:
    if unknown := [name for name in blind if name not in (*BLIND, NO_RULES)]:
        raise ValueError(f"blind: found {unknown[0]!r}, expected one of {', '.join(BLIND)}, or {NO_RULES}.")
    if NO_RULES in blind and captions is not None:
        raise ValueError(f"blind_captions has no effect with blind={NO_RULES}. Remove one of the two.")
    scorers = {name: BLIND[name][1]() for name in blind if name != NO_RULES}
    # blind scorers and files are columns next to the models, so all of these names must be distinct
    for name in scores:
        if name in BLIND:
            raise ValueError(f"scores: {name!r} is the name of a blind scorer. Choose another one.")
    files = {name: ScoreFile(path) for name, path in scores.items()}
    given = models if isinstance(models, Mapping) else _as_list(models)
    named = named_models(given, taken={*BLIND, *files}) if given or not files else {}
    # files are compared like models, and may be the reference
    compared_to = _find_model("reference", reference, named | {name: str(file.path) for name, file in files.items()})
    return EvaluationRequest(
        named, files, scorers, None if NO_RULES in blind else BlindRules(captions, folders), compared_to
    )


def choose_benchmarks(
    suite: str | None,
    named: Sequence[str | Benchmark],
    column_names: Mapping[str, str] | None,
    log: Callable[[str], None],
    *,
    split: str | None = None,
) -> list[Benchmark]:
    """Returns the benchmarks of a suite, then the named ones. Logs those that the suite leaves out."""
    chosen = [*(known.suite(suite) if suite else []), *known.find_benchmarks(named, column_names, split)]
    if not chosen:
        raise ValueError("name the benchmarks: --suite compositional, or --benchmarks sugarcrepe,winoground (--list).")
    if suite:
        matching = [benchmark for benchmark in known.benchmarks().values() if suite in (benchmark.suite, "all")]
        costly = [each.title for each in matching if not (each.in_suites or each.synthetic or each in chosen)]
        if costly:
            titles = ", ".join(dict.fromkeys(costly))
            log(f"not in a suite, because they download or compute too much: {titles} (see --list)")
    # a benchmark that is both in the suite and named is scored once
    return list({benchmark.name: benchmark for benchmark in chosen}.values())


def load_benchmarks(
    benchmarks: Sequence[Benchmark],
    folders: Folders,
    log: Callable[[str], None],
    notes: Sequence[str] = (),
    *,
    skip_damaged: bool = False,
) -> Evaluator:
    """Loads the benchmarks with their data, so errors in it appear before anything is encoded."""
    evaluator = Evaluator(log, skip_damaged=skip_damaged)
    for note in notes:
        evaluator.note(note)
    evaluator.load(benchmarks, folders, strict=False)
    try:
        folders.check_used("data")
    except ValueError as error:
        if not evaluator.skipped:
            raise
        evaluator.note(str(error))  # the folder may belong to a benchmark that was skipped before it searched for it
    return evaluator


def _score(
    evaluator: Evaluator, encoders: Mapping[str, Encoder], progress: bool, *, priors: Collection[str]
) -> DetailedScores:
    """Scores all models, each under its name as `arm`. Only the first process has results, except for the seconds."""
    tables: list[pd.DataFrame] = []
    blind: list[pd.DataFrame] = []
    scores: list[pa.Table] = []
    seconds: dict[str, dict[str, float]] = {name: {} for name in encoders}
    for name, encoder in encoders.items():
        prior = prior_outcomes if name in priors else None
        how = {"progress": progress, "keep_going": True, "prior": prior, "keep_scores": True}
        for loaded, report in evaluator.score(encoder, model=name, **how):
            # on every process, because all of them must raise below if nothing was scored
            seconds[name][loaded.benchmark.name] = report.seconds
            if rank() == 0:
                # the title of the loaded benchmark says whether images are missing
                tables.append(report.items.assign(arm=name, benchmark=loaded.title))
                scores += [] if report.scores is None else [label_items(report.scores, name, loaded.title)]
                if report.prior is not None:
                    blind.append(report.prior.assign(arm=prior_of(name), benchmark=loaded.title))
                evaluator.log(f"{name} on {loaded.benchmark.title}: {report.counts}, {report.seconds:.1f} s")
        # models are scored one after another, so only one of them must fit into memory
        if isinstance(encoder, EvaluatedModel):
            encoder.release()
    if not any(seconds.values()):
        reasons = [f"{skip['benchmark']}: {skip['reason']} {skip['how_to_fix']}" for skip in evaluator.skipped]
        raise ValueError(f"no benchmark could be scored. {'; '.join(reasons)}")
    return DetailedScores.join(tables, scores, blind, seconds)


def _reading_notes(encoders: Mapping[str, Any]) -> list[str]:
    """Returns notes on the library that reads a model, and on how texts are prepared, each with its models."""
    names: dict[str, list[str]] = {}
    for name, encoder in encoders.items():
        if library := getattr(encoder, "facts", {}).get("library"):
            names.setdefault(f"read by {library}", []).append(name)
        if isinstance(encoder, Embedder):
            names.setdefault(f"texts are {encoder.tokenizer.preparation}", []).append(name)
    return [f"{', '.join(own)}: {note}" for note, own in names.items()]


def _as_list(given: Any) -> Any:
    """Wraps a single thing in a list; a tuple of a module and what prepares its inputs is a single model."""
    is_model = given and isinstance(given, tuple) and (hasattr(given[-1], "image_processor") or can_encode(given))
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) and not is_model else [given]


def _facts(name: str, model: Any, encoder: Any) -> dict[str, Any]:
    """Returns the entry of a model or blind scorer in `results.json`, which the first process writes."""
    if name in BLIND:
        return {"path": BLIND_PATH, "weights": BLIND[name][0]}
    # only the first process writes results, and hashing weights takes seconds
    if rank() > 0:
        return {}
    return encoder.facts if isinstance(encoder, ScoreFile) else describe_model(model, encoder)


def _find_model(option: str, given: str | None, models: Mapping[str, Any]) -> str:
    for name, model in models.items():
        if given in (None, name, model, place_of(model)):
            return name
    raise ValueError(f"{option}: found {given!r}, expected one of the models {', '.join(models)}.")


def _join_processes(device: str | None) -> str | None:
    """Connects the processes that a launcher started, and returns the device of this one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return device
    state = PartialState(cpu=(device or "").startswith("cpu"), timeout=PATIENCE)
    check_world_size(state.num_processes)
    return device or str(state.device)
