"""Means, intervals and tests of outcomes per item: image-clustered bootstrap, sign-flip tests, corrections."""

from hfcomp.evaluation.statistics.bootstrap import ImageBootstrap
from hfcomp.evaluation.statistics.significance import (
    differing_images,
    macro_sign_flip_test,
    macro_smallest_difference,
    sign_flip_test,
    smallest_difference,
)
from hfcomp.evaluation.statistics.summary import mean_of_lines, missing_averages, summarize

__all__ = [
    "ImageBootstrap",
    "differing_images",
    "macro_sign_flip_test",
    "macro_smallest_difference",
    "mean_of_lines",
    "missing_averages",
    "sign_flip_test",
    "smallest_difference",
    "summarize",
]
