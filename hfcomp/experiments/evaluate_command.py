"""`hfcomp evaluate`: any models on any benchmarks, in one table."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from accelerate import PartialState

from hfcomp.distributed import OtherProcessFailed, fail_together, first_process_first, gather_objects
from hfcomp.evaluation.benchmarks import benchmarks as all_benchmarks
from hfcomp.evaluation.benchmarks import find_benchmarks, suite
from hfcomp.evaluation.benchmarks.own import OwnData
from hfcomp.evaluation.blind import BLIND
from hfcomp.evaluation.cache import EmbeddingCache
from hfcomp.evaluation.cache_files import DEFAULT_LIMIT, LIMIT_VARIABLE, default_folder, parse_size
from hfcomp.evaluation.data_folders import check_used, data_folders, is_part
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.engine import Encoder, Report, run_benchmark, validate
from hfcomp.evaluation.identity import identity
from hfcomp.evaluation.remarks import cut_remark, remarks
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import SUITES, Benchmark, BenchmarkData, Folders, Unavailable
from hfcomp.evaluation.statistics.summary import TIE_RULES
from hfcomp.evaluation.stored import BLIND_PATH
from hfcomp.experiments.evaluation_report import evaluation_report, print_evaluation, write_evaluation
from hfcomp.experiments.model_names import named_models
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.url_options import add_url_options, url_settings
from hfcomp.reading import expand_variables

FAILED = "failed: "
LONGEST_NAME = 100
PATIENCE = 7 * 24 * 3600  # seconds that the other processes wait for the one that fits probes


@dataclass
class Outcome:
    """What an evaluation has found so far.

    Attributes:
        tables: outcomes per item with the column `arm`, by name of the benchmark and the model.
        benchmarks: facts by name of the benchmark, as `results.json` has them.
        skipped: benchmarks that were not scored, as `results.json` has them.
        seconds: model to benchmark to seconds.
    """

    tables: dict[tuple[str, str], pd.DataFrame] = field(default_factory=dict)
    benchmarks: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: list[dict[str, str]] = field(default_factory=list)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    def skip(self, name: str, reason: str, how_to_fix: str) -> None:
        """Notes that a benchmark is not scored."""
        self.skipped.append({"benchmark": name, "reason": reason, "way_out": how_to_fix})


def main(arguments: Sequence[str]) -> None:
    """Runs the command.

    Args:
        arguments: models and options, see `parser`.
    """
    options = parser().parse_intermixed_args(arguments)
    options.command = shlex.join(["hfcomp", "evaluate", *arguments])
    try:
        failed = evaluate(options)
    except (ValueError, OSError, OtherProcessFailed) as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        print("interrupted; what was encoded is cached: the same command goes on from there", file=sys.stderr)
        raise SystemExit(130) from None
    if failed:
        raise SystemExit(1)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        prog="hfcomp evaluate", description="Scores models of the Hub or in folders on benchmarks, side by side."
    )
    found.add_argument("models", nargs="*", metavar="MODEL", help="Hub id or folder, or name=ID; an adapter's too")
    found.add_argument("--suite", choices=[*SUITES, "all"], help="all benchmarks of a kind")
    found.add_argument(
        "--benchmarks",
        default="",
        metavar="A,B",
        help="by name (see --list), package.module:NAME, or a file or folder of your own",
    )
    found.add_argument(
        "--data_dir", type=Path, metavar="DIR", help="folder with a sub-folder for each benchmark's data"
    )
    found.add_argument(
        "--data", action="append", default=[], metavar="NAME=DIR", help="folder of one benchmark's data"
    )
    found.add_argument("--blind", default="", metavar="A,B", help=f"columns of blind scorers: {', '.join(BLIND)}")
    found.add_argument("--reference", metavar="MODEL", help="what differences refer to; by default the first model")
    found.add_argument("--tie", choices=list(TIE_RULES), default="wrong", help="what a tie counts (default: wrong)")
    found.add_argument("--output_dir", type=Path, metavar="DIR", help="default: runs/evaluation-<models>")
    found.add_argument("--overwrite", action="store_true", help="replace results that lie in the output folder")
    found.add_argument("--cache", type=Path, metavar="DIR", help=f"of embeddings (default: {default_folder()})")
    found.add_argument("--no_cache", action="store_true", help="encode everything anew and keep nothing")
    limit = f"such as 5GB (default: ${LIMIT_VARIABLE}, else {DEFAULT_LIMIT})"
    found.add_argument("--cache_limit", metavar="SIZE", help=limit)
    add_url_options(found)
    found.add_argument("--batch_size", type=int, default=128, help="images or texts at a time (default: 128)")
    found.add_argument("--device", help="such as cpu or cuda:1; by default a GPU where there is one")
    found.add_argument("--list", action="store_true", help="list the benchmarks, or all that is known of some")
    return found


def evaluate(options: argparse.Namespace) -> bool:
    """Scores the models and writes what was found.

    Args:
        options: of `parser`.

    Returns:
        Whether a benchmark failed for another reason than missing data.

    Raises:
        ValueError: for options that do not fit, or data that is there and wrong.
    """
    if options.batch_size < 1:
        raise ValueError(f"--batch_size: found {options.batch_size}, expected 1 or more.")
    chosen = _benchmarks(options)
    models = named_models(options.models, taken=BLIND)
    reference = _reference(options.reference, models)
    folder = options.output_dir or Path("runs") / f"evaluation-{'-'.join(map(_plain, models))}"[:LONGEST_NAME]
    if (folder / "results.json").exists() and not options.overwrite:
        raise ValueError(f"{folder} holds results already. Pass --overwrite, or another --output_dir.")
    blind = _blind(options.blind)
    on_cpu = _check_device(options.device) == "cpu"
    session = open_session({"use_cpu": on_cpu, "ddp_timeout": PATIENCE, **url_settings(options)})
    with fail_together():  # a process that fails alone ends all of them
        found = _evaluate(options, chosen, models, blind, reference, folder, session)
    session.close()
    if not found.tables and session.state.is_main_process:
        raise SystemExit("error: no benchmark could be scored.")
    return any(one["reason"].startswith(FAILED) for one in found.skipped)


def _evaluate(
    options: argparse.Namespace,
    chosen: Sequence[Benchmark],
    models: dict[str, str],
    blind: dict[str, Encoder],
    reference: str,
    folder: Path,
    session: Session,
) -> Outcome:
    """Scores all models; of collectives, nothing but `gather_objects` may be called in here."""
    cache = _cache(options)
    encoders = {name: _encoder(place, options, cache) for name, place in models.items()}
    for preparation in dict.fromkeys(one.tokenizer.preparation for one in encoders.values()):
        named = [name for name, one in encoders.items() if one.tokenizer.preparation == preparation]
        session.tell(f"texts are {preparation}: {', '.join(named)}")
    found = Outcome()
    folders = data_folders(
        [expand_variables(text, "--data") for text in options.data], options.data_dir, option="--data"
    )
    items = _load(chosen, folders, found, session)
    _check_folders(folders, found, session)
    main, fresh = session.state.is_main_process, not folder.exists()
    if main:
        _made(folder, "--output_dir")
    for name, encoder in {**encoders, **blind}.items():
        found.seconds[name] = {}
        for benchmark in chosen:
            if benchmark.name in items:
                _run(name, encoder, benchmark, items[benchmark.name], found, session)
        if isinstance(encoder, Embedder):
            encoder.release()
    cache.trim()  # also where nothing was encoded and so nothing written
    for note in (note for notes in gather_objects(cache.notes) for note in notes):
        session.tell(note)
    if main:
        facts = {
            name: {"path": str(place), "weights": identity(place), "texts": encoders[name].tokenizer.preparation}
            for name, place in models.items()
        }
        facts |= {name: {"path": BLIND_PATH, "weights": BLIND[name][0]} for name in blind}
        _report(folder, chosen, facts, reference, found, session, options)
        if fresh and not any(folder.iterdir()):
            folder.rmdir()
    return found


def _cache(options: argparse.Namespace) -> EmbeddingCache:
    limit = None if options.cache_limit is None else parse_size(options.cache_limit, "--cache_limit")
    return EmbeddingCache(None if options.no_cache else options.cache or default_folder(), limit=limit)


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _check_device(device: str | None) -> str:
    """The kind of device that is used; raises ValueError for one that is not there."""
    try:
        kind = torch.device(device).type if device else ("cuda" if torch.cuda.is_available() else "cpu")
        torch.empty(1, device=device or kind)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device: {device!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return kind


def _made(folder: Path, option: str) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{option}: {folder} cannot be written to: {error}") from error
    return folder


def _reference(given: str | None, models: dict[str, str]) -> str:
    """The name of the model that differences refer to, given by its name or place."""
    if given is None:
        return next(iter(models))
    for name, place in models.items():
        if given in (name, place):
            return name
    raise ValueError(f"--reference: {given!r} is none of the models {', '.join(models)}.")


def _check_folders(folders: Folders, found: Outcome, session: Session) -> None:
    """Where a benchmark was skipped, a folder that nobody looked for may be its own: then it is only told."""
    try:
        check_used(folders, option="--data")
    except ValueError as error:
        if not found.skipped:
            raise
        session.tell(str(error))


def _benchmarks(options: argparse.Namespace) -> list[Benchmark]:
    named = _split(options.benchmarks)
    if any(":" in name for name in named):
        sys.path.append(os.getcwd())  # a module beside the user
    if not named and not options.suite:
        raise ValueError("name the benchmarks: --suite compositional, or --benchmarks sugarcrepe,winoground (--list).")
    chosen = [*(suite(options.suite) if options.suite else []), *find_benchmarks(named)]
    if options.suite:
        asked = [one for one in all_benchmarks().values() if options.suite in (one.suite, "all")]
        costly = dict.fromkeys(
            one.title for one in asked if not one.in_suites and not one.synthetic and one not in chosen
        )
        if costly:
            print(f"not in a suite, as they fetch or compute too much: {', '.join(costly)} (see --list)")
    return list({one.name: one for one in chosen}.values())


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def _blind(text: str) -> dict[str, Encoder]:
    names = _split(text)
    unknown = [name for name in names if name not in BLIND]
    if unknown:
        raise ValueError(f"--blind: {unknown[0]!r} is none of {', '.join(BLIND)}.")
    return {name: BLIND[name][1]() for name in names}


def _encoder(place: str, options: argparse.Namespace, cache: EmbeddingCache) -> Embedder:
    state = PartialState()
    device = options.device or (str(state.device) if state.num_processes > 1 else None)
    try:
        return Embedder(place, device=device, batch_size=options.batch_size, cache=cache, split=True)
    except OSError as error:  # transformers' own words on what is not on the Hub, gated or no model's folder
        where = "" if Path(place).is_dir() else "is no folder here, and as an id of the Hub: "
        raise ValueError(f"{place} {where}{error}") from error


def _items(benchmark: Benchmark, folders: Folders) -> tuple[BenchmarkData | None, tuple[str, str] | None]:
    """The items, or why there are none, with the way to get them.

    Raises:
        ValueError: when the user's own folder is wrong; the data of others is skipped then.
    """
    try:
        return validate(benchmark, load_items(benchmark, folders)), None
    except Unavailable as error:
        return None, (error.reason, error.how_to_fix or benchmark.obtain)
    except ValueError as error:
        own = isinstance(benchmark.data[0], OwnData)
        if own or folders.of(benchmark.name) or (benchmark.folder and folders.of(benchmark.folder)):
            raise
        return None, (f"{FAILED}{error}", benchmark.obtain)


def _load(chosen: Sequence[Benchmark], folders: Folders, found: Outcome, session: Session) -> dict[str, BenchmarkData]:
    """The items of each benchmark that can be had; what is wrong with data shows before anything is encoded."""
    items: dict[str, BenchmarkData] = {}
    for benchmark in chosen:
        with first_process_first():  # the others find what it downloaded
            one, reason = _items(benchmark, folders)
        reasons = [told for told in gather_objects(reason) if told is not None]  # all processes do the same
        if reasons:
            found.skip(benchmark.name, *reasons[0])
            continue
        items[benchmark.name] = one
        facts = {"title": _title(benchmark, one), "version": benchmark.version, "data": asdict(one.origin)}
        counts = {"unsolvable": one.unsolvable, "texts_alone": one.texts_alone}
        facts |= {"items": len(one.rows), "left_out": dict(one.left_out), **counts}
        found.benchmarks[benchmark.name] = facts
        for remark in remarks(benchmark, one):
            session.tell(remark)
    return items


def _run(
    name: str, encoder: Encoder, benchmark: Benchmark, items: BenchmarkData, found: Outcome, session: Session
) -> None:
    """Scores one model on one benchmark; a failure costs this benchmark only."""
    start = time.perf_counter()
    main = session.state.is_main_process
    try:
        with fail_together():
            report = run_benchmark(benchmark, items, encoder, progress=main and sys.stderr.isatty(), score=main)
    except Exception as error:  # the results of other models and benchmarks are not to be lost
        traceback.print_exc(file=sys.stderr)
        found.skip(benchmark.name, f"{FAILED}{name}: {error}", "See the error above; the other benchmarks went on.")
        return
    took = time.perf_counter() - start
    found.seconds[name][benchmark.name] = took
    if main:
        found.tables[benchmark.name, name] = report.items.assign(arm=name, benchmark=_title(benchmark, items))
        _tell(name, benchmark, report, took, session)


def _title(benchmark: Benchmark, items: BenchmarkData) -> str:
    return f"{benchmark.title} (part)" if is_part(items) else benchmark.title


def _tell(name: str, benchmark: Benchmark, report: Report, took: float, session: Session) -> None:
    cached = report.images + report.texts - report.computed
    counts = f"{report.images:,} images and {report.texts:,} texts, {cached:,} of them cached"
    session.state.print(f"{name} on {benchmark.title}: {counts}, {took:.1f} s")
    if report.truncated:
        cut = cut_remark(report.truncated, report.merged, f"{name}'s text tower")
        session.tell(f"{benchmark.name}: {cut}")
    if report.tiny:
        session.tell(f"{benchmark.name}: {report.tiny:,} images are one pixel wide or high, as failed downloads are")


def _report(
    folder: Path,
    chosen: Sequence[Benchmark],
    models: dict[str, dict[str, str]],
    reference: str,
    found: Outcome,
    session: Session,
    options: argparse.Namespace,
) -> None:
    failed = {one["benchmark"] for one in found.skipped if one["reason"].startswith(FAILED)}
    tables = [table for (name, _), table in found.tables.items() if name not in failed]
    every = list(found.tables.values())  # what a benchmark that failed for one model gave for the others is kept
    items = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    compared = [name for name in models if name not in BLIND]
    report = evaluation_report(
        items,
        models=models,
        averages={found.benchmarks[one.name]["title"]: one.averages for one in chosen if one.name in found.benchmarks},
        config={"command": options.command, "date": datetime.now(UTC).isoformat(timespec="seconds")},
        reference=reference if len(compared) > 1 else None,
        subject=compared,
        tie=options.tie,
        benchmarks=found.benchmarks,
        skipped=found.skipped,
        seconds=found.seconds,
        notes=session.notes,
    )
    print_evaluation(report, folder if tables else None)
    if tables:
        write_evaluation(folder, pd.concat(every, ignore_index=True), report)
