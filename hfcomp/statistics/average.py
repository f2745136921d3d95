"""An average over the subsets of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Average:
    """A mean over subsets that somebody publishes.

    Attributes:
        name: in tables, such as "macro of 7 subsets".
        groups: each a set of subsets whose means are averaged first; `None`: every subset is a group of its own.
        pooled: the mean over items of all subsets named (a micro average) instead.
    """

    name: str
    groups: tuple[tuple[str, ...], ...] | None = None
    pooled: bool = False
