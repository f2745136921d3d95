"""Precision, recall and order on a hierarchy of captions, as an `evaluate` module."""

from hfcomp.metrics.modules.evaluate_metrics import Hierarchy

__all__ = ["Hierarchy"]
