"""Two-positive choice, as an `evaluate` module."""

from hfcomp.metrics.modules.evaluate_metrics import TwoPositiveChoice

__all__ = ["TwoPositiveChoice"]
