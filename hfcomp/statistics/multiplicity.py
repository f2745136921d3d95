"""p-values of a report, corrected for how many there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """p-values of a family that together err in at most their level: Holm's step-down procedure (1979).

    Args:
        p: `[n]`.

    Returns:
        `[n]`, in the same order.
    """
    p = np.asarray(p, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


def false_discovery_rate(p: ArrayLike) -> NDArray[np.float64]:
    """q-values: of the differences with q below a level, at most that share are false (Benjamini and Hochberg 1995).

    Args:
        p: `[n]`.

    Returns:
        `[n]`, in the same order.
    """
    p = np.asarray(p, dtype=np.float64)
    order = np.argsort(-p, kind="stable")
    adjusted = np.empty(len(p))
    scaled = p[order] * len(p) / np.arange(len(p), 0, -1)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled), 1.0)
    return adjusted


def adjust(primary: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> None:
    """Corrects the p-values of a report's differences, in place; a difference without p (of two seeds) stays without.

    Args:
        primary: those that the report is made for: each gets `p_holm`, Holm's correction for their number.
        others: all others: each gets `q` of Benjamini and Hochberg.
    """
    for key, method, chosen in (("p_holm", holm, primary), ("q", false_discovery_rate, others)):
        tested = [one for one in chosen if not math.isnan(one["p"])]
        for difference in chosen:
            difference[key] = math.nan
        for difference, found in zip(tested, method([one["p"] for one in tested]), strict=True):
            difference[key] = float(found)


def correct(lines: Sequence[dict[str, Any]], primary: Sequence[tuple[str, str]] = ()) -> None:
    """Corrects the p-values of a report for their number, in place.

    Args:
        lines: of `summarize`; one with `primary` holds the report's primary endpoint.
        primary: the comparisons, model and reference, for which the report is made. On the primary line they get
            `p_holm`, Holm's correction for their number. Every other difference gets `q` of Benjamini and Hochberg
            over all of these, a pair of models once, whichever is the reference.
    """
    first: list[dict[str, float]] = []
    others: dict[tuple[int, frozenset[str]], list[dict[str, float]]] = {}
    for index, line in enumerate(lines):
        for name, references in line["differences"].items():
            for reference, difference in references.items():
                difference.pop("q", None), difference.pop("p_holm", None)
                if line.get("primary") and (name, reference) in primary:
                    first.append(difference)
                else:
                    others.setdefault((index, frozenset((name, reference))), []).append(difference)
    adjust(first, [pair[0] for pair in others.values()])
    for pair in others.values():
        for difference in pair:
            difference["q"] = pair[0]["q"]
