"""Options made in Python, beside those of a command line."""

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest

from hfcomp.analysis.gallery.options import GalleryOptions
from hfcomp.factory.options import NegativeOptions


def test_values_that_mean_the_same_are_converted():
    options = NegativeOptions(source=Path("rows.csv"), output="set", kinds=["keyword"], limit="3", seed=np.int64(2))
    same = NegativeOptions(source="rows.csv", output=Path("set"), kinds=("keyword",), limit=3, seed=2)
    assert options == same and type(options.seed) is int
    assert dataclasses.replace(options) == pickle.loads(pickle.dumps(options)) == same
    assert GalleryOptions(models=[Path("before"), "after"]).models == ("before", "after")


def test_what_is_something_else_is_refused():
    with pytest.raises(ValueError, match="limit: found 2.5, expected a whole number"):
        NegativeOptions(source="rows.csv", output=Path("set"), limit=2.5)
