"""`hfcomp.evaluate` and `hfcomp.compare`: models on benchmarks, and stored outcomes, side by side."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from hfcomp.evaluation.results import package_versions, versions
from hfcomp.evaluation.stored import BLIND_PATH, Stored, listed, read_stored
from hfcomp.reporting.evaluation_results import EvaluationResults
from hfcomp.statistics.outcomes import COLUMNS
from hfcomp.statistics.summary import TIE_RULES, check_tie

if TYPE_CHECKING:
    from hfcomp.evaluation.cache import EmbeddingCache
    from hfcomp.evaluation.engine import Encoder
    from hfcomp.evaluation.spec import Benchmark

logger = logging.getLogger(__name__)

PATIENCE = timedelta(days=7)  # that the other processes wait for the one that fits probes


def evaluate(
    models: Any,
    *,
    suite: str | None = None,
    benchmarks: str | Benchmark | Sequence[str | Benchmark] = (),
    data: Mapping[str, str | Path] | None = None,
    data_dir: str | Path | None = None,
    blind: Sequence[str] = (),
    reference: str | None = None,
    tie: str = "wrong",
    cache: str | Path | bool = True,
    cache_limit: str | None = None,
    batch_size: int = 128,
    device: str | None = None,
    progress: bool | None = None,
    allow_urls: bool = False,
    url_timeout: float | None = None,
    log: Callable[[str], None] = logger.info,
) -> EvaluationResults:
    """Scores models on benchmarks, side by side, with intervals, ties and paired differences.

    ```python
    results = hfcomp.evaluate(["openai/clip-vit-base-patch32", "runs/cement"], benchmarks=["sugarcrepe"])
    print(results)
    ```

    Where processes were started by `torchrun` or `accelerate launch`, all of them call it and share the encoding; the
    first one has the outcomes, and those of the others are empty.

    Args:
        models: Hub ids, folders or `name=PLACE`; models of transformers, alone or paired with their processor;
            encoders (`hfcomp.evaluation.engine.Encoder`). A list, a mapping by name, or a single one.
        suite: `compositional`, `general` or `all`.
        benchmarks: further ones: names (`hfcomp evaluate --list`), `package.module:NAME`, files or folders of your
            own, or `Benchmark` objects.
        data: folders by name of a benchmark or a set of images, as in `{"val2017": "coco/val2017"}`.
        data_dir: a folder with a sub-folder for each of the others. What is in neither comes from the Hub.
        blind: scorers that look at nothing: `constant`, `random`, `shorter`.
        reference: the model that the others are compared to, by name or place; by default the first.
        tie: what a tie counts: `wrong`, `half` or `win`.
        cache: whether embeddings are kept for later runs, or the folder for them.
        cache_limit: of that folder, such as `5GB`; by default `$HFCOMP_CACHE_LIMIT`, else 20 GB.
        batch_size: images or texts at a time.
        device: such as `cpu` or `cuda:1`; by default a GPU where there is one.
        progress: whether to show bars; by default where standard error is a terminal.
        allow_urls: fetch images that the data names by URL; only for data that you trust.
        url_timeout: seconds for one of them.
        log: receives what is done and noted, line by line.

    Raises:
        ValueError: for an argument that does not fit, a model that is not a supported dual encoder, data that is there
            and wrong, or if no benchmark could be scored.
    """
    from hfcomp.data.urls import DEFAULT_TIMEOUT, UrlAccess, url_access
    from hfcomp.distributed import fail_together
    from hfcomp.evaluation.blind import BLIND
    from hfcomp.evaluation.data_folders import data_folders
    from hfcomp.evaluation.evaluate import choose_benchmarks
    from hfcomp.evaluation.models import check_device, named_models

    if batch_size < 1:
        raise ValueError(f"batch_size: found {batch_size}, expected 1 or more.")
    check_tie(tie)
    chosen = choose_benchmarks(suite, _listed(benchmarks), log=log)
    scorers = _blind_encoders(blind)
    named = named_models(models if isinstance(models, Mapping) else _listed(models), taken=BLIND)
    wanted = _reference(reference, named)
    check_device(device)
    kept = _embedding_cache(cache, cache_limit)
    folders = data_folders(data, data_dir, option="data")
    settings = {"batch_size": batch_size, "device": _join_processes(device), "cache": kept, "split": True}
    bars = sys.stderr.isatty() if progress is None else progress
    timeout = DEFAULT_TIMEOUT if url_timeout is None else url_timeout
    with fail_together(), url_access(UrlAccess.asked(allow_urls, timeout)):  # a process that fails alone ends all
        return _scored(named, scorers, chosen, settings, folders, reference=wanted, tie=tie, log=log, progress=bars)


def _scored(
    models: Mapping[str, Any],
    blind: Mapping[str, Encoder],
    benchmarks: Sequence[Benchmark],
    settings: Mapping[str, Any],
    folders: Any,
    *,
    log: Callable[[str], None],
    progress: bool,
    **facts: Any,
) -> EvaluationResults:
    """The results of models, on all processes at once."""
    from hfcomp.distributed import gather_objects, rank
    from hfcomp.evaluation.blind import BLIND
    from hfcomp.evaluation.evaluate import score_models
    from hfcomp.evaluation.models import open_encoder

    encoders = {name: open_encoder(model, **settings) for name, model in models.items()}
    scores = score_models({**encoders, **blind}, benchmarks, folders, log=log, progress=progress)
    cache = settings["cache"]
    cache.trim()  # also where nothing was encoded and so nothing written
    for note in (note for notes in gather_objects(cache.notes) for note in notes):
        scores.note(note)
    described = {name: _facts(models[name], one) for name, one in encoders.items()} if rank() == 0 else {}
    described |= {name: {"path": BLIND_PATH, "weights": BLIND[name][0]} for name in blind}
    titles = {one.name: scores.benchmarks[one.name]["title"] for one in benchmarks if one.name in scores.benchmarks}
    return EvaluationResults(
        pd.concat(scores.tables, ignore_index=True) if scores.tables else pd.DataFrame(columns=list(COLUMNS)),
        {name: described.get(name, {}) for name in (*models, *blind)},
        {titles[one.name]: one.averages for one in benchmarks if one.name in titles},
        benchmarks=scores.benchmarks,
        skipped=scores.skipped,
        notes=scores.notes,
        seconds=scores.seconds,
        versions=versions(),
        config={"date": datetime.now(UTC).isoformat(timespec="seconds")},
        **facts,
    )


def _listed(given: Any) -> Any:
    """One thing as a list of one; a pair of a module and its processor is one model."""
    is_pair = isinstance(given, tuple) and len(given) == 2 and hasattr(given[1], "image_processor")
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) and not is_pair else [given]


def _facts(model: Any, encoder: Encoder) -> dict[str, Any]:
    """What `results.json` says of a model."""
    from hfcomp.evaluation.identity import identity
    from hfcomp.evaluation.models import place_of

    weights = identity(model) if isinstance(model, str | Path) else f"of a {type(model).__name__} in memory"
    tokenizer = getattr(encoder, "tokenizer", None)
    texts = {} if tokenizer is None else {"texts": tokenizer.preparation}
    return {"path": place_of(model), "weights": weights, **texts}


def _blind_encoders(names: Sequence[str]) -> dict[str, Encoder]:
    from hfcomp.evaluation.blind import BLIND

    unknown = [name for name in _listed(names) if name not in BLIND]
    if unknown:
        raise ValueError(f"blind: {unknown[0]!r} is none of {', '.join(BLIND)}.")
    return {name: BLIND[name][1]() for name in _listed(names)}


def _reference(given: str | None, models: Mapping[str, Any]) -> str:
    """The name of the model that differences refer to, given by its name or place."""
    from hfcomp.evaluation.models import place_of

    if given is None:
        return next(iter(models))
    for name, model in models.items():
        if given in (name, place_of(model)):
            return name
    raise ValueError(f"reference: {given!r} is none of the models {', '.join(models)}.")


def _embedding_cache(cache: str | Path | bool, limit: str | None) -> EmbeddingCache:
    from hfcomp.evaluation.cache import EmbeddingCache
    from hfcomp.evaluation.cache_files import default_folder, parse_size

    size = None if limit is None else parse_size(limit, "cache_limit")
    folder = (default_folder() if cache else None) if isinstance(cache, bool) else Path(cache)
    return EmbeddingCache(folder, limit=size)


def _join_processes(device: str | None) -> str | None:
    """The device of this process, connected to the others that a launcher started."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return device
    from accelerate import PartialState

    from hfcomp.distributed import check_world_size

    state = PartialState(cpu=(device or "").startswith("cpu"), timeout=PATIENCE)
    check_world_size(state.num_processes)
    return device or str(state.device)


def compare(
    folders: Sequence[str | Path],
    *,
    reference: str | None = None,
    tie: str | None = None,
    benchmarks: Sequence[str] = (),
    common: bool = False,
) -> EvaluationResults:
    """Models side by side from stored outcomes alone, item by item; no model is loaded.

    Args:
        folders: that `EvaluationResults.save`, `hfcomp evaluate` or a recipe wrote: all of its models but blind
            scorers, or `folder:model`.
        reference: the model that the others are compared to, by name or as in `folders`; by default the first.
        tie: what a tie counts; by default what it did in the folders.
        benchmarks: names or titles; by default all that every model has.
        common: compare on the items that all have, and count the others.

    Raises:
        ValueError: for a folder without results, files that are damaged, a benchmark that a model lacks, versions,
            data or items that differ, or rules for ties that differ.
    """
    from hfcomp.evaluation.compare import align

    stored = read_stored([str(folder) for folder in folders])
    name = _stored_reference(reference, stored)
    found = align(stored, benchmarks=list(benchmarks), common=common)
    return EvaluationResults(
        found.outcomes,
        found.models,
        found.averages,
        reference=name,
        tie=tie or _stored_rule(stored),
        subject=list(found.models),
        benchmarks=found.benchmarks,
        notes=found.notes,
        versions=package_versions(),
    )


def _stored_reference(wanted: str | None, stored: Sequence[Stored]) -> str:
    """The name of the model that the others are compared to."""
    if wanted is None:
        return stored[0].name
    for key in ("name", "argument", "model"):
        chosen = [one.name for one in stored if getattr(one, key) == str(wanted)]
        if len(chosen) == 1:
            return chosen[0]
    raise ValueError(
        f"reference: {wanted!r} fits none, or several, of {listed([one.name for one in stored])}. Name one."
    )


def _stored_rule(stored: Sequence[Stored]) -> str:
    """What a tie counts in the folders, where it is the same in all.

    Raises:
        ValueError: where it is not.
    """
    rules = {one.folder: one.results.get("tie_rule") or "wrong" for one in stored}
    if len(set(rules.values())) > 1:
        said = ", ".join(f"{rule} in {folder}" for folder, rule in rules.items())
        raise ValueError(f"ties count {said}. Choose with --tie {' or '.join(TIE_RULES)}.")
    return next(iter(rules.values()))
