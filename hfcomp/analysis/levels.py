"""Evaluates models by level of abstraction, and encodes groups of pairs (CLEAR GLASS, Figures 3 and 4)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.analysis.group_figure import draw_groups, joint_embeddings
from hfcomp.analysis.level_benchmarks import BENCHMARKS, LEVEL_ROWS, MAGIC, SANDBOX_LEVELS
from hfcomp.analysis.level_figure import draw_levels, lines_by_level
from hfcomp.evaluation.benchmarks.sandbox import SandboxData
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.evaluation.engine import select_rows, validate
from hfcomp.evaluation.evaluation_results import EvaluationResults, write_evaluation
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.loaded import Loaded
from hfcomp.evaluation.models import open_embedder
from hfcomp.evaluation.protocols.level_choice import LEVELS, Count, LevelChoice
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Benchmark, BenchmarkData, Folders, Unavailable
from hfcomp.options import named_models
from hfcomp.statistics.results import versions

logger = logging.getLogger(__name__)

MOST_PAIRS = 40  # pairs per group in the figure; more would hide each other
LEVELS_FIGURE, GROUPS_FIGURE = "levels.png", "groups.png"


@dataclass(frozen=True)
class LevelResults:
    """Scores by level, and the joint embeddings of groups."""

    results: EvaluationResults
    # Joint embeddings `[n, D]` by model; empty if the data has no groups of captions.
    joint: Mapping[str, NDArray[np.floating]]
    groups: Sequence[str]  # `[n]`, group of each pair

    def save(self, folder: Path, log: Callable[[str], None] = print) -> None:
        """Writes tables and outcomes like `hfcomp evaluate`, and the figures `levels.png` and `groups.png`.

        A figure without numbers is not drawn. Figures of an earlier run are removed.

        Args:
            folder: Output folder.
            log: Function that receives the path of a figure, or the reason why it is missing. Without matplotlib, only
                the numbers are written.
        """
        write_evaluation(folder, self.results)
        for name, filled, draw in (
            (LEVELS_FIGURE, lines_by_level(self.results.lines), lambda path: draw_levels(path, self.results.lines)),
            (GROUPS_FIGURE, self.joint, lambda path: draw_groups(path, self.joint, self.groups)),
        ):
            # A figure of an earlier run may show numbers that this run does not have.
            (folder / name).unlink(missing_ok=True)
            try:
                if filled:
                    log(f"drawn: {draw(folder / name)}")
            except ImportError as error:
                log(str(error))


def evaluate_levels(
    models: Sequence[str] | Mapping[str, str],
    benchmark: str | None = None,
    data: Path | None = None,
    *,
    rows: int | None = None,
    candidates: Sequence[Count] = (2, 10, "all"),
    seed: int = 0,
    groups: int = 6,
    batch_size: int = 128,
    device: str | None = None,
) -> LevelResults:
    """Scores models on concept names at several levels of abstraction, and encodes the largest groups.

    Args:
        models: Hub ids or folders, also as `name=PLACE` or as a mapping by name. The first model is the reference.
        benchmark: One of `BENCHMARKS`. Defaults to MAGIC with a folder, otherwise to the sandbox's levels.
        data: Folder of the benchmark.
        rows: Number of rows to sample with the seed. Defaults to all; for the sandbox to `LEVEL_ROWS`.
        candidates: Numbers of images to choose from, or "all".
        seed: Random seed for all sampling.
        groups: Number of groups to encode, the largest first.
        batch_size: Images or texts per encoding batch.
        device: Device. Defaults to a GPU if available.
    """
    for name, value, least in (("rows", rows, 2), ("groups", groups, 2), ("batch_size", batch_size, 1)):
        if value is not None and value < least:
            raise ValueError(f"{name}: found {value}, expected {least} or more.")
    models = named_models(models)
    selected = BENCHMARKS[benchmark or (SANDBOX_LEVELS if data is None else MAGIC).name]
    items = _load(selected, data, rows, seed)
    # Captions are the most specific level.
    texts = (("caption",) if _has_captions(items) else ()) + LEVELS
    selected = replace(selected, protocol=LevelChoice(texts, tuple(dict.fromkeys(candidates)), seed))
    return _score(models, selected, validate(selected, items), groups, batch_size=batch_size, device=device)


def _score(
    models: Mapping[str, str], benchmark: Benchmark, items: BenchmarkData, groups: int, **settings: Any
) -> LevelResults:
    loaded = Loaded(benchmark, items)
    evaluator = Evaluator(logger.info, [loaded], notes=[*loaded.remarks()])
    pairs = _group_pairs(items, groups)
    if pairs is None:
        evaluator.note(f"{GROUPS_FIGURE} is not drawn, because it needs captions and two groups of at least two rows")
    tables, joint = [], {}
    for name, source in models.items():
        # The cache holds the scored images and captions, so the pairs of groups are not encoded again.
        embedder = open_embedder(source, cache=EmbeddingCache(), **settings)
        ((_, report),) = evaluator.score(embedder, model=name, progress=False)
        tables.append(report.items.assign(arm=name, benchmark=loaded.title))
        if pairs is not None:
            selected = items.rows.select(pairs)
            joint[name] = joint_embeddings(
                embedder.images(selected["image"]), embedder.texts(selected["caption"]).vectors
            )
    results = EvaluationResults(
        pd.concat(tables, ignore_index=True),
        {name: {"path": str(source), "weights": identity(source)} for name, source in models.items()},
        benchmarks={benchmark.name: loaded.facts()},
        notes=evaluator.notes,
        versions=versions(),
        config={"date": datetime.now(UTC).isoformat(timespec="seconds")},
    )
    group = _group_names(items)
    return LevelResults(results, joint, [] if pairs is None else [group[row] for row in pairs])


def _load(benchmark: Benchmark, folder: Path | None, rows: int | None, seed: int) -> BenchmarkData:
    if benchmark is SANDBOX_LEVELS:
        if folder is not None:
            raise ValueError(
                f"data: {benchmark.name} is synthetic and has no data folder. Remove it, or choose another benchmark."
            )
        return SandboxData("levels_set", rows or LEVEL_ROWS, seed).remote(Folders())
    if folder is not None and not folder.is_dir():
        raise ValueError(f"data: {folder} is not a folder.")
    try:
        items = load_items(benchmark, Folders(own={} if folder is None else {benchmark.name: folder}))
    except Unavailable as error:
        raise ValueError(
            f"benchmark {benchmark.name} is unavailable: {error} In this command, the option is --data DIR."
        ) from error
    total = len(items.rows)
    if rows is None or rows >= total:
        return items
    # Sort to keep the order of the data.
    return select_rows(items, np.sort(np.random.default_rng(seed).choice(total, rows, replace=False)))


def _group_names(items: BenchmarkData) -> list[str]:
    """Returns the group `[n]` of each row, or its name on level 1 if the data has no groups."""
    column = "group" if "group" in items.rows.column_names else LEVELS[0]
    return [name or "" for name in items.rows[column][:]]


def _group_pairs(items: BenchmarkData, count: int) -> NDArray[np.intp] | None:
    """Returns the first rows of the largest groups, at most `MOST_PAIRS` per group, group by group.

    Among equally large groups, the first ones are chosen. Returns `None` without captions or two groups of two rows.
    """
    group = _group_names(items)
    sizes = Counter(name for name in group if name)
    largest = [name for name, size in sizes.most_common(count) if size > 1]
    if not _has_captions(items) or len(largest) < 2:
        return None
    rows = [[row for row, own in enumerate(group) if own == name][:MOST_PAIRS] for name in largest]
    return np.array([row for part in rows for row in part], dtype=np.intp)


def _has_captions(items: BenchmarkData) -> bool:
    return "caption" in items.rows.column_names and any(items.rows["caption"][:])
