"""Benchmarks that are loaded once and score one model after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from hfcomp.data.overlap import ScoredImages
from hfcomp.evaluation.engine import Encoder, run_benchmark, select_rows, validate
from hfcomp.evaluation.remarks import cut_remark, remarks
from hfcomp.evaluation.scored_images import scored_images
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Benchmark, BenchmarkData, Folders, Unavailable

Loaded = tuple[Benchmark, BenchmarkData]


@dataclass(frozen=True)
class Evaluator:
    """Benchmarks with their data; called with an encoder, it scores them.

    Attributes:
        loaded: each benchmark with its validated data.
        log: receives how many texts were cut, once for each benchmark: the models of a run share a tokenizer.
        images: those that are scored and may be in a training set.
        reported: names of the benchmarks whose cut texts were reported.
    """

    loaded: tuple[Loaded, ...]
    log: Callable[[str], None]
    images: list[ScoredImages] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)

    def __call__(self, encoder: Encoder) -> pd.DataFrame:
        """One row per item and metric, with the columns of `hfcomp.evaluation.engine.Report.items`."""
        tables = []
        for benchmark, data in self.loaded:
            report = run_benchmark(benchmark, data, encoder, progress=not benchmark.synthetic)
            if report.truncated and benchmark.name not in self.reported:
                self.reported.add(benchmark.name)
                self.log(f"{benchmark.name}: {cut_remark(report.truncated, report.merged)}")
            tables.append(report.items)
        return pd.concat(tables, ignore_index=True)

    def of_titles(self, titles: Sequence[str]) -> Evaluator:
        """The benchmarks of these titles alone."""
        return replace(self, loaded=tuple(one for one in self.loaded if one[0].title in titles))

    def of_concept(self, concept: str) -> Evaluator:
        """Each benchmark's items of a concept where it has such, else all: other concepts' texts are not encoded."""
        return replace(self, loaded=tuple((one, _of_concept(data, concept)) for one, data in self.loaded))


@dataclass(frozen=True)
class ConceptEvaluator:
    """An evaluation of concepts, one at a time.

    Attributes:
        of: concept to its evaluator.
        main: titles of the benchmarks that a brief evaluation scores.
        images: as `Evaluator` has them.
    """

    of: Mapping[str, Evaluator]
    main: tuple[str, ...]
    images: list[ScoredImages]

    def __call__(self, encoder: Encoder, concept: str, brief: bool = False) -> pd.DataFrame:
        """As `Evaluator`, of a concept."""
        one = self.of[concept]
        return (one.of_titles(self.main) if brief else one)(encoder)


def load_benchmark(benchmark: Benchmark, folders: Folders | None = None) -> Loaded:
    """A benchmark with its validated data.

    Raises:
        Unavailable: as `load_items`.
        ValueError: for data that the benchmark cannot be scored on.
    """
    return benchmark, validate(benchmark, load_items(benchmark, folders))


def load_benchmarks(
    benchmarks: Iterable[Benchmark],
    folders: Folders,
    *,
    needed: Sequence[str] = (),
    hint: str = "",
    log: Callable[[str], None],
) -> list[Loaded]:
    """Benchmarks with their data; one whose data is unavailable is skipped with a line.

    Args:
        benchmarks: in the order of the results.
        folders: with data of benchmarks.
        needed: titles of those that may not be skipped.
        hint: a sentence behind the reason why data is unavailable.
        log: receives that, and what a reader of the scores has to know.

    Raises:
        ValueError: for one that is needed and unavailable, or data that a benchmark cannot be scored on.
    """
    found = []
    for benchmark in benchmarks:
        try:
            found.append(load_benchmark(benchmark, folders))
        except Unavailable as error:
            said = " ".join(filter(None, (f"{benchmark.name} is unavailable: {error}", hint)))
            if benchmark.title in needed:
                raise ValueError(f"evaluation: {said}") from error
            log(f"evaluation: {said} It is skipped.")
            continue
        for remark in remarks(*found[-1]):
            log(remark)
    return found


def images_of(loaded: Iterable[Loaded]) -> list[ScoredImages]:
    """The images that benchmarks score."""
    return [image for one in loaded for image in scored_images(*one)]


def _of_concept(data: BenchmarkData, concept: str) -> BenchmarkData:
    chosen = np.flatnonzero(np.asarray(data.rows["subset"][:]) == concept)
    return select_rows(data, chosen) if len(chosen) else data
