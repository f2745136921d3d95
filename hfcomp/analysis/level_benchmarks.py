"""The benchmarks of `hfcomp levels`."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.papers.hierarcaps import HIERARCAPS_LEVELS
from hfcomp.evaluation.benchmarks.papers.magic import MAGIC
from hfcomp.evaluation.benchmarks.sandbox import LEVEL_ROWS, SANDBOX_LEVELS

__all__ = ["BENCHMARKS", "LEVEL_ROWS", "MAGIC", "SANDBOX_LEVELS"]

BENCHMARKS = {benchmark.name: benchmark for benchmark in (SANDBOX_LEVELS, MAGIC, HIERARCAPS_LEVELS)}
