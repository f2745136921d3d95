"""How a point between two models is chosen: the options of `hfcomp merge --sweep`."""

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
        "Benchmarks of composition and general, at least one each, as hfcomp evaluate names them.",
    ] = ()
    composition: Annotated[
        str | None,
        Spelling("MEASURE"),
        "'benchmark: metric' to gain (default: the strictest metric of the first benchmark of composition).",
    ] = None
    general: Annotated[
        str | None, Spelling("MEASURE"), "Likewise, not to lose (default: the mean of all general lines)."
    ] = None
    rule: Annotated[
        Rule,
        "tolerance: the best composition that keeps the general score; mean: the best mean of both; never a dominated "
        "point.",
    ] = "tolerance"
    tolerance: Annotated[float, "How much of the general score may be lost; 0.01 is one percentage point."] = TOLERANCE
    data_dir: Annotated[str | Path | None, Spelling("DIR"), "Folder with a sub-folder for each benchmark's data."] = (
        None
    )
    data: Annotated[
        Mapping[str, str | Path] | None, Spelling("NAME=DIR", repeated=True), "Folder of one benchmark's data."
    ] = None
    allow_urls: AllowUrls = False
    url_timeout: UrlTimeout = DEFAULT_TIMEOUT
    batch_size: BatchSize = 128
    device: Device = None

    check_rule = check(check_rule)
