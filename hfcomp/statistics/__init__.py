"""Means, intervals and tests of outcomes per item: image-clustered bootstrap, sign-flip tests, corrections.

`Outcomes` is the long table, a `Measure` what a number is the mean of, and `summarize` makes every number of a report.
"""

from hfcomp.statistics.bootstrap import ImageBootstrap
from hfcomp.statistics.measures import Measure, missing_averages
from hfcomp.statistics.outcomes import Outcomes, items_hash
from hfcomp.statistics.significance import (
    differing_images,
    macro_sign_flip_test,
    macro_smallest_difference,
    sign_flip_test,
    smallest_difference,
)
from hfcomp.statistics.summary import summarize

__all__ = [
    "ImageBootstrap",
    "Measure",
    "Outcomes",
    "differing_images",
    "items_hash",
    "macro_sign_flip_test",
    "macro_smallest_difference",
    "missing_averages",
    "sign_flip_test",
    "smallest_difference",
    "summarize",
]
