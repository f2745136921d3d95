"""Options of `hfcomp merge --sweep`, which set how a point between two models is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hfcomp.data.urls import DEFAULT_TIMEOUT
from hfcomp.merging.choice import TOLERANCE, Rule, check_rule
from hfcomp.options import AllowUrls, BatchSize, Device, Options, Spelling, UrlTimeout, check


@dataclass(frozen=True)
class SweepOptions(Options):
    """Sweep."""

    benchmarks: Annotated[
        tuple[str, ...],
        "Compositional and general benchmarks, at least one of each, named as in hfcomp evaluate.",
    ] = ()
    composition: Annotated[
        str | None,
        Spelling("MEASURE"),
        "Measure to improve, 'benchmark: metric' (default: the strictest metric of the first compositional "
        "benchmark).",
    ] = None
    general: Annotated[
        str | None,
        Spelling("MEASURE"),
        "Measure to keep, 'benchmark: metric' (default: the mean of all general lines).",
    ] = None
    rule: Annotated[
        Rule,
        "Rule for choosing a point: tolerance (best composition that keeps the general score) or mean (best mean of "
        "both). Dominated points are never chosen.",
    ] = "tolerance"
    tolerance: Annotated[float, "Allowed loss of the general score; 0.01 is one percentage point."] = TOLERANCE
    data_dir: Annotated[str | Path | None, Spelling("DIR"), "Folder with one subfolder of data per benchmark."] = None
    data: Annotated[
        Mapping[str, str | Path] | None, Spelling("NAME=DIR", repeated=True), "Data folder of a single benchmark."
    ] = None
    allow_urls: AllowUrls = False
    url_timeout: UrlTimeout = DEFAULT_TIMEOUT
    batch_size: BatchSize = 128
    device: Device = None

    check_rule = check(check_rule)
