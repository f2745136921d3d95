"""`hfcomp levels`: models by level of abstraction, as tables and two pictures (CLEAR GLASS, Figures 3 and 4)."""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.analysis.group_figure import draw_groups
from hfcomp.analysis.joint_embeddings import joint_embeddings
from hfcomp.analysis.level_figure import draw_levels, lines_by_level
from hfcomp.evaluation.benchmarks.hierarcaps import HIERARCAPS_LEVELS
from hfcomp.evaluation.benchmarks.magic import MAGIC
from hfcomp.evaluation.benchmarks.sandbox import LEVEL_ROWS, SANDBOX_LEVELS, SandboxData
from hfcomp.evaluation.cache import EmbeddingCache
from hfcomp.evaluation.embed import open_embedder
from hfcomp.evaluation.engine import run_benchmark, select_rows, validate
from hfcomp.evaluation.identity import identity
from hfcomp.evaluation.protocols.level_choice import ALL, LEVELS, Count, LevelChoice
from hfcomp.evaluation.remarks import remarks
from hfcomp.evaluation.results import RESULTS_FILE
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Benchmark, BenchmarkData, Folders, Unavailable
from hfcomp.experiments.evaluation_report import evaluation_report, print_evaluation, write_evaluation
from hfcomp.experiments.model_names import named_models
from hfcomp.writing import locked

MOST_PAIRS = 40  # of a group in the picture: more would hide each other
LEVELS_FIGURE, GROUPS_FIGURE = "levels.png", "groups.png"
BENCHMARKS = {one.name: one for one in (SANDBOX_LEVELS, MAGIC, HIERARCAPS_LEVELS)}


def main(arguments: Sequence[str]) -> None:
    """Runs the command.

    Args:
        arguments: models and options, see `parser`.
    """
    options = parser().parse_intermixed_args(arguments)
    options.command = shlex.join(["hfcomp", "levels", *arguments])
    show_levels(options)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        prog="hfcomp levels",
        description="Scores models by the names of concepts on levels of abstraction, and draws two pictures: "
        "accuracy against level, and joint embeddings by group.",
        allow_abbrev=False,
    )
    found.add_argument(
        "models", nargs="*", metavar="MODEL", help="Hub id or folder, or name=ID; such as before, after"
    )
    found.add_argument("--data", type=Path, metavar="DIR", help="the benchmark's data; of magic, if none is named")
    found.add_argument(
        "--benchmark", choices=list(BENCHMARKS), help=f"(default: {SANDBOX_LEVELS.name}; {MAGIC.name} with --data)"
    )
    found.add_argument("--rows", type=int, help=f"that many rows, drawn by the seed (sandbox: {LEVEL_ROWS}; all)")
    found.add_argument(
        "--candidates", default="2,10,all", metavar="A,B", help="images to choose from (default: 2,10,all)"
    )
    found.add_argument("--groups", type=int, default=6, metavar="N", help="drawn in groups.png, the largest (6)")
    found.add_argument("--seed", type=int, default=0, help="of all draws (default: 0)")
    found.add_argument("--output_dir", type=Path, default=Path("runs/levels"), metavar="DIR", help="(runs/levels)")
    found.add_argument("--overwrite", action="store_true", help="replace results that lie in the output folder")
    found.add_argument("--batch_size", type=int, default=128, help="images or texts at a time (default: 128)")
    found.add_argument("--device", help="such as cpu or cuda:1; by default a GPU where there is one")
    return found


def show_levels(options: argparse.Namespace) -> None:
    """Scores the models, prints the tables and writes them, the outcomes of each item and the pictures.

    Args:
        options: of `parser`.

    Raises:
        ValueError: for options or data that do not fit, or a model that is not a dual encoder.
        OSError: for a file that cannot be read or written.
    """
    models = named_models(options.models)
    _check_options(options)
    benchmark, items = levels_benchmark(options)
    with locked(options.output_dir):
        _score(options, models, benchmark, items)


def _score(options: argparse.Namespace, models: dict[str, str], benchmark: Benchmark, items: BenchmarkData) -> None:
    notes = list(remarks(benchmark, items))
    pairs = pairs_of_groups(items, options.groups)
    if pairs is None:
        notes.append(f"{GROUPS_FIGURE} is not drawn: it needs captions and two groups of two rows or more")
    tables, joint = [], {}
    for name, place in models.items():
        settings = {"device": options.device, "batch_size": options.batch_size, "cache": EmbeddingCache()}
        embedder = open_embedder(place, **settings)
        tables.append(run_benchmark(benchmark, items, embedder).items.assign(arm=name))
        if pairs is not None:
            chosen = items.rows.select(pairs)
            joint[name] = joint_embeddings(embedder.images(chosen["image"]), embedder.texts(chosen["caption"]).vectors)
    outcomes = pd.concat(tables, ignore_index=True)
    report = evaluation_report(
        outcomes,
        models={name: {"path": str(place), "weights": identity(place)} for name, place in models.items()},
        averages={},
        config={"command": options.command, "date": datetime.now(UTC).isoformat(timespec="seconds")},
        benchmarks={benchmark.name: _facts(benchmark, items)},
        notes=notes,
    )
    print_evaluation(report, options.output_dir)
    write_evaluation(options.output_dir, outcomes, report)
    for name in (LEVELS_FIGURE, GROUPS_FIGURE):
        (options.output_dir / name).unlink(missing_ok=True)  # of an earlier run
    if lines_by_level(report.lines):
        _draw(lambda: draw_levels(options.output_dir / LEVELS_FIGURE, report.lines))
    if pairs is not None:
        group = group_names(items)
        _draw(lambda: draw_groups(options.output_dir / GROUPS_FIGURE, joint, [group[row] for row in pairs]))


def levels_benchmark(options: argparse.Namespace) -> tuple[Benchmark, BenchmarkData]:
    """The benchmark that is named, else with a folder MAGIC and without one the sandbox's levels, and its items.

    Raises:
        ValueError: when they cannot be had, or the folder does not hold the columns.
    """
    benchmark = BENCHMARKS[options.benchmark or (SANDBOX_LEVELS if options.data is None else MAGIC).name]
    if benchmark is SANDBOX_LEVELS:
        items = SandboxData("levels_set", options.rows or LEVEL_ROWS, options.seed).remote(Folders())
    else:
        items = _drawn(_loaded(benchmark, options.data), options)
    texts = (("caption",) if _has_captions(items) else ()) + LEVELS
    protocol = LevelChoice(texts, _candidates(options.candidates), options.seed)
    benchmark = replace(benchmark, protocol=protocol)
    return benchmark, validate(benchmark, items)


def group_names(items: BenchmarkData) -> list[str]:
    """`[n]`, the group of each row; where the data has none, its name on level 1."""
    column = "group" if "group" in items.rows.column_names else LEVELS[0]
    return [name or "" for name in items.rows[column][:]]


def pairs_of_groups(items: BenchmarkData, count: int) -> NDArray[np.intp] | None:
    """The rows of the largest groups, `MOST_PAIRS` of each at most, the first ones; group after group.

    Args:
        items: of `levels_benchmark`.
        count: of groups; of equally large ones, those that come first.

    Returns:
        Rows; `None` without captions or two groups of two rows.
    """
    group = group_names(items)
    sizes = Counter(name for name in group if name)
    largest = [name for name, size in sizes.most_common(count) if size > 1]
    if not _has_captions(items) or len(largest) < 2:
        return None
    rows = [[row for row, own in enumerate(group) if own == name][:MOST_PAIRS] for name in largest]
    return np.array([row for part in rows for row in part], dtype=np.intp)


def _check_options(options: argparse.Namespace) -> None:
    for option, least in (("rows", 2), ("groups", 2), ("batch_size", 1), ("seed", 0)):
        value = getattr(options, option)
        if value is not None and value < least:
            raise ValueError(f"--{option}: found {value}, expected {least} or more.")
    if options.data is not None and options.benchmark == SANDBOX_LEVELS.name:
        raise ValueError(f"--data: {SANDBOX_LEVELS.name} is drawn and has none. Leave out one of the two.")
    if options.data is not None and not options.data.is_dir():
        raise ValueError(f"--data: {options.data} is no folder.")
    if (options.output_dir / RESULTS_FILE).exists() and not options.overwrite:
        raise ValueError(f"{options.output_dir} holds results already. Pass --overwrite, or another --output_dir.")
    _candidates(options.candidates)


def _candidates(text: str) -> tuple[Count, ...]:
    found: list[Count] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word != ALL and not (word.isdecimal() and int(word) >= 2):
            raise ValueError(f"--candidates: found {word!r}, expected numbers of at least 2, or all, as in 2,10,all.")
        found.append(ALL if word == ALL else int(word))
    if not found:
        raise ValueError("--candidates: found none, expected numbers of at least 2, or all, as in 2,10,all.")
    return tuple(dict.fromkeys(found))


def _loaded(benchmark: Benchmark, folder: Path | None) -> BenchmarkData:
    try:
        return load_items(benchmark, Folders(own={} if folder is None else {benchmark.name: folder}))
    except Unavailable as error:
        raise ValueError(f"--benchmark {benchmark.name} cannot be had: {error} Here that is --data DIR.") from error


def _drawn(items: BenchmarkData, options: argparse.Namespace) -> BenchmarkData:
    total = len(items.rows)
    if options.rows is None or options.rows >= total:
        return items
    chosen = np.sort(np.random.default_rng(options.seed).choice(total, options.rows, replace=False))
    return select_rows(items, chosen)


def _has_captions(items: BenchmarkData) -> bool:
    return "caption" in items.rows.column_names and any(items.rows["caption"][:])


def _facts(benchmark: Benchmark, items: BenchmarkData) -> dict[str, Any]:
    facts = {"title": benchmark.title, "version": benchmark.version, "data": asdict(items.origin)}
    return {**facts, "items": len(items.rows), "left_out": dict(items.left_out)}


def _draw(draw: Callable[[], Path]) -> None:
    """Says where the picture is, or why there is none: numbers are not lost for want of it."""
    try:
        print(f"drawn: {draw()}")
    except ImportError as error:
        print(error)
