"""Means, intervals and tests of per-item outcomes: image-clustered bootstrap, sign-flip tests, corrections.

`Outcomes` is the long table of items, a `Measure` defines a mean over them, and `summarize` computes every number of a
report.
"""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
