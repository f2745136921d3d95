"""Group score, as a module of `evaluate`."""

from hfcomp.metrics.modules.evaluate_metrics import GroupScore

__all__ = ["GroupScore"]
