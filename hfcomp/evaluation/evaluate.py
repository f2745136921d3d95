"""Models on benchmarks: the data is loaded, then each model is scored on each, by one process or several."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from hfcomp.distributed import fail_together, first_process_first, gather_objects, rank
from hfcomp.evaluation.benchmarks import benchmarks as all_benchmarks
from hfcomp.evaluation.benchmarks import find_benchmarks, suite
from hfcomp.evaluation.benchmarks.own import OwnData
from hfcomp.evaluation.data_folders import check_used, is_part
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.engine import Encoder, Report, run_benchmark, validate
from hfcomp.evaluation.remarks import cut_remark, remarks
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Benchmark, BenchmarkData, Folders, Unavailable
from hfcomp.evaluation.stored import FAILED

Log = Callable[[str], None]


@dataclass
class Scores:
    """What an evaluation has found so far.

    Attributes:
        log: receives each line of `notes`, and what was scored, on the first process.
        tables: outcomes per item with the column `arm`; only on the first process.
        benchmarks: facts by name of the benchmark, as `results.json` has them.
        skipped: benchmarks that were not scored, as `results.json` has them.
        seconds: model to benchmark to seconds.
        notes: what a reader of the numbers has to know.
    """

    log: Log
    tables: list[pd.DataFrame] = field(default_factory=list)
    benchmarks: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: list[dict[str, str]] = field(default_factory=list)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def report(self, line: str) -> None:
        """Logs a line on the first process."""
        if rank() == 0:
            self.log(line)

    def note(self, note: str) -> None:
        """Logs a line and keeps it, each line once."""
        if note not in self.notes:
            self.notes.append(note)
            self.report(note)

    def skip(self, name: str, reason: str, how_to_fix: str) -> None:
        """Records that a benchmark is not scored."""
        self.skipped.append({"benchmark": name, "reason": reason, "how_to_fix": how_to_fix})


def choose_benchmarks(
    suite_name: str | None, benchmarks: Sequence[str | Benchmark], *, log: Log | None = None
) -> list[Benchmark]:
    """The benchmarks of a suite, then those that are named.

    Args:
        suite_name: as `suite` takes it.
        benchmarks: names as on the command line, or `Benchmark` objects.
        log: receives a line about what a suite leaves out.

    Raises:
        ValueError: for none, or a name that nobody has.
    """
    named = [own for one in benchmarks for own in ([one] if isinstance(one, Benchmark) else find_benchmarks([one]))]
    chosen = [*(suite(suite_name) if suite_name else []), *named]
    if not chosen:
        raise ValueError("name the benchmarks: --suite compositional, or --benchmarks sugarcrepe,winoground (--list).")
    if suite_name and log is not None:
        asked = [one for one in all_benchmarks().values() if suite_name in (one.suite, "all")]
        costly = [one.title for one in asked if not (one.in_suites or one.synthetic or one in chosen)]
        if costly:
            titles = ", ".join(dict.fromkeys(costly))
            log(f"not in a suite, as they fetch or compute too much: {titles} (see --list)")
    return list({one.name: one for one in chosen}.values())


def score_models(
    encoders: Mapping[str, Encoder],
    benchmarks: Sequence[Benchmark],
    folders: Folders,
    *,
    log: Log,
    progress: bool = False,
) -> Scores:
    """Scores all models on all benchmarks. A benchmark whose data is unavailable or that fails is skipped.

    All processes call it, inside `fail_together`; of collectives, nothing but `gather_objects` may be called in here.

    Args:
        encoders: by name of the model, each opened with `split` where there are several processes.
        benchmarks: of `choose_benchmarks`.
        folders: local data folders.
        log: receives what is done and noted.
        progress: whether to show bars.

    Raises:
        ValueError: for data that is there and wrong, a folder that no benchmark looks for, or if nothing was scored.
    """
    scores = Scores(log)
    embedders = {name: one for name, one in encoders.items() if isinstance(one, Embedder)}
    for preparation in dict.fromkeys(one.tokenizer.preparation for one in embedders.values()):
        names = [name for name, one in embedders.items() if one.tokenizer.preparation == preparation]
        scores.note(f"texts are {preparation}: {', '.join(names)}")
    items = _load(benchmarks, folders, scores)
    _check_folders(folders, scores)
    for name, encoder in encoders.items():
        scores.seconds[name] = {}
        for benchmark in benchmarks:
            if benchmark.name in items:
                _run(name, encoder, benchmark, items[benchmark.name], scores, progress)
        if isinstance(encoder, Embedder):
            encoder.release()
    if not any(scores.seconds.values()):
        reasons = "; ".join(f"{one['benchmark']}: {one['reason']} {one['how_to_fix']}" for one in scores.skipped)
        raise ValueError(f"no benchmark could be scored. {reasons}")
    return scores


def benchmark_facts(benchmark: Benchmark, items: BenchmarkData) -> dict[str, Any]:
    """A benchmark's entry in `results.json`."""
    facts = {"title": title_of(benchmark, items), "version": benchmark.version, "data": asdict(items.origin)}
    counts = {"unsolvable": items.unsolvable, "texts_alone": items.texts_alone}
    return {**facts, "items": len(items.rows), "left_out": dict(items.left_out), **counts}


def title_of(benchmark: Benchmark, items: BenchmarkData) -> str:
    """A benchmark's title in tables, where images are missing with a word for it."""
    return f"{benchmark.title} (part)" if is_part(items) else benchmark.title


def _load(benchmarks: Sequence[Benchmark], folders: Folders, scores: Scores) -> dict[str, BenchmarkData]:
    """The items of each benchmark that is available; what is wrong with data shows before anything is encoded."""
    items: dict[str, BenchmarkData] = {}
    for benchmark in benchmarks:
        with first_process_first():  # the others find what it downloaded
            one, reason = _items(benchmark, folders)
        reasons = [found for found in gather_objects(reason) if found is not None]  # all processes do the same
        if one is None or reasons:
            scores.skip(benchmark.name, *reasons[0])
            continue
        items[benchmark.name] = one
        scores.benchmarks[benchmark.name] = benchmark_facts(benchmark, one)
        for remark in remarks(benchmark, one):
            scores.note(remark)
    return items


def _items(benchmark: Benchmark, folders: Folders) -> tuple[BenchmarkData | None, tuple[str, str] | None]:
    """The items, or why they are unavailable and how to get them.

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


def _check_folders(folders: Folders, scores: Scores) -> None:
    """Where a benchmark was skipped, a folder that nobody looked for may be its own: then it is only noted."""
    try:
        check_used(folders, option="data")
    except ValueError as error:
        if not scores.skipped:
            raise
        scores.note(str(error))


def _run(
    name: str, encoder: Encoder, benchmark: Benchmark, items: BenchmarkData, scores: Scores, progress: bool
) -> None:
    """Scores one model on one benchmark; a failure costs this benchmark only."""
    start, main = time.perf_counter(), rank() == 0
    try:
        with fail_together():
            report = run_benchmark(benchmark, items, encoder, progress=main and progress, score=main)
    except Exception as error:  # the results of other models and benchmarks are not to be lost
        traceback.print_exc(file=sys.stderr)
        scores.skip(benchmark.name, f"{FAILED}{name}: {error}", "See the error above; the other benchmarks went on.")
        return
    took = time.perf_counter() - start
    scores.seconds[name][benchmark.name] = took
    if main:
        scores.tables.append(report.items.assign(arm=name, benchmark=title_of(benchmark, items)))
        _note(name, benchmark, report, took, scores)


def _note(name: str, benchmark: Benchmark, report: Report, took: float, scores: Scores) -> None:
    cached = report.images + report.texts - report.computed
    counts = f"{report.images:,} images and {report.texts:,} texts, {cached:,} of them cached"
    scores.report(f"{name} on {benchmark.title}: {counts}, {took:.1f} s")
    if report.truncated:
        cut = cut_remark(report.truncated, report.merged, f"{name}'s text tower")
        scores.note(f"{benchmark.name}: {cut}")
    if report.tiny:
        scores.note(f"{benchmark.name}: {report.tiny:,} images are one pixel wide or high, as failed downloads are")
