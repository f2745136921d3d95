"""An average over the subsets of a benchmark, or over several benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Average:
    """A published mean over subsets or benchmarks.

    Attributes:
        name: Name in tables, such as "macro of 7 subsets".
        groups: Groups of parts whose means are averaged first. `None`: every subset is a separate group. A part is a
            subset of the averaged benchmark. In an average over benchmarks, a part is a benchmark's title, a subset or
            an average over its subsets, and a metric.
        pooled: Whether it is the mean over the items of all named subsets (a micro average) instead.
        fallback: Whether it stands in for the other averages over benchmarks from its place of publication: it counts
            only if each of those lacks a part.
    """

    name: str
    groups: tuple[tuple[str | tuple[str, str, str], ...], ...] | None = None
    pooled: bool = False
    fallback: bool = False

    @property
    def parts(self) -> list[Any]:
        return list(dict.fromkeys(part for group in self.groups or () for part in group))

    @property
    def spans_benchmarks(self) -> bool:
        return any(not isinstance(part, str) for part in self.parts)
