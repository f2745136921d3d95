"""Precision, recall and order on a hierarchy of captions, as a module of `evaluate`."""

from hfcomp.metrics.modules.evaluate_metrics import Hierarchy

__all__ = ["Hierarchy"]
