"""Options made in Python, beside those of a command line."""

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest

from hfcomp.analysis.gallery.options import GalleryOptions
from hfcomp.factory.options import NegativeOptions
from hfcomp.options import Options, check, declared_options


def test_values_that_mean_the_same_are_converted():
    options = NegativeOptions(source=Path("rows.csv"), output="set", kinds=["keyword"], limit="3", seed=np.int64(2))
    same = NegativeOptions(source="rows.csv", output=Path("set"), kinds=("keyword",), limit=3, seed=2)
    assert options == same and type(options.seed) is int
    assert dataclasses.replace(options) == pickle.loads(pickle.dumps(options)) == same
    assert GalleryOptions(models=[Path("before"), "after"]).models == ("before", "after")


def test_what_is_something_else_is_refused():
    with pytest.raises(ValueError, match="limit: found 2.5,"):
        NegativeOptions(source="rows.csv", output=Path("set"), limit=2.5)


@dataclasses.dataclass(kw_only=True)
class Range(Options):
    low: int = 0
    high: int = 9

    @check
    def check_order(low, high):
        if low > high:
            raise ValueError(f"low: found {low}, expected at most high={high}.")


@dataclasses.dataclass(kw_only=True)
class SteppedRange(Range):
    step: int = 1

    @check
    def check_step(step, low, high):
        if step > high - low:
            raise ValueError(f"step: found {step}, expected at most {high - low}.")


def test_checks_take_the_options_that_they_name_those_of_bases_first():
    assert list(declared_options(SteppedRange)) == ["low", "high", "step"]
    assert SteppedRange(low="2", high=4, step=2).low == 2
    with pytest.raises(ValueError, match="low: found 5,.* high=4"):
        SteppedRange(low="5", high="4", step=7)
    with pytest.raises(ValueError, match="step: found 7,.* 2"):
        SteppedRange(low="2", high="4", step=7)
