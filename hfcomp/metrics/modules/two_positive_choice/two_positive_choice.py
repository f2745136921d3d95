"""Two-positive choice, as a module of `evaluate`."""

from hfcomp.metrics.modules.evaluate_metrics import TwoPositiveChoice

__all__ = ["TwoPositiveChoice"]
