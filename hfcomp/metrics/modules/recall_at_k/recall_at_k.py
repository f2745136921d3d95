"""Recall at k, as an `evaluate` module."""

from hfcomp.metrics.modules.evaluate_metrics import RecallAtK

__all__ = ["RecallAtK"]
