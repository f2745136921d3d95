"""Recall at k, as a module of `evaluate`."""

from hfcomp.metrics.modules.evaluate_metrics import RecallAtK

__all__ = ["RecallAtK"]
