"""What a name or a pattern stands for: of a search's measure and of a primary endpoint."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hfcomp.statistics import Outcomes
from hfcomp.statistics.measures import primary_measure, search_measure
from hfcomp.statistics.score import score


def outcomes(values: list[float], *, benchmark: str = "drawn", subset: str = "all", **other: str) -> pd.DataFrame:
    """One item an image, of one model."""
    names = [f"{subset}/{index}" for index in range(len(values))]
    columns = {"item": names, "image_id": names, "value": np.asarray(values, float), "tie": False, "chance": 0.5}
    facts = {"benchmark": benchmark, "subset": subset, "metric": "caption choice", "aspect": "composition", **other}
    return pd.DataFrame(columns).assign(**facts, arm="m")


def test_a_measure_is_a_name_or_all_that_a_pattern_fits():
    """Two lines of unequal size count alike."""
    levels = [outcomes([1, 0, 1, 1], benchmark="levels", subset="level 1", aspect="general")]
    levels.append(outcomes([0, 0], benchmark="levels", subset="level 2", aspect="general"))
    items = pd.concat([*levels, outcomes([1, 1], benchmark="other")])
    assert score(items, "levels: *").value == pytest.approx((0.75 + 0) / 2)
    assert score(items, "levels: level 1 caption choice").value == pytest.approx(0.75)
    found = score(items, "levels: level 1 caption choice")
    assert 0 <= found.low < 0.75 < found.high <= 1
    with pytest.raises(ValueError, match="'levels: level 3' is not scored by this evaluation.* Known: other: caption"):
        score(items, "levels: level 3")


def test_the_mean_of_the_composition_lines_is_in_no_pattern():
    items = pd.concat([outcomes([1, 0], subset=subset) for subset in ("add", "swap")])
    assert [len(search_measure(Outcomes(items), name).lines) for name in ("mean", "*")] == [2, 2]


def test_a_pattern_over_metrics_of_different_units_is_no_primary_endpoint():
    names = ("choice", "kendall tau")
    items = pd.concat([outcomes([0, 1], metric=name) for name in names])
    with pytest.raises(ValueError, match=r"different units.*: choice; kendall tau \(-1 to 1\)\. Name one"):
        primary_measure(items, "drawn: *", {})
    assert primary_measure(items, "drawn: ken*", {}).lines == [("drawn", "all", "kendall tau")]
