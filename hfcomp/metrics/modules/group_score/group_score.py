"""Group score, as an `evaluate` module."""

from hfcomp.metrics.modules.evaluate_metrics import GroupScore

__all__ = ["GroupScore"]
