"""Means, intervals and tests of outcomes per item: image-clustered bootstrap, sign-flip tests, corrections.

`Outcomes` is the long table, a `Measure` what a number is the mean of, and `summarize` makes every number of a report.
"""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
