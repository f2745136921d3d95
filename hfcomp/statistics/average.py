"""An average over the subsets of a benchmark, or over several benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Average:
    """A mean over subsets or benchmarks that somebody publishes.

    Attributes:
        name: in tables, such as "macro of 7 subsets".
        groups: each a set of parts whose means are averaged first; `None`: every subset is a group of its own. A part
            is a subset of the benchmark that the average is of; of an average over benchmarks it is a benchmark's
            title, a subset or an average over its subsets, and a metric.
        pooled: the mean over items of all subsets named (a micro average) instead.
    """

    name: str
    groups: tuple[tuple[str | tuple[str, str, str], ...], ...] | None = None
    pooled: bool = False

    @property
    def parts(self) -> list[Any]:
        """Of all groups, each once."""
        return list(dict.fromkeys(part for group in self.groups or () for part in group))

    @property
    def spans_benchmarks(self) -> bool:
        """Whether it is one over benchmarks."""
        return any(not isinstance(part, str) for part in self.parts)
