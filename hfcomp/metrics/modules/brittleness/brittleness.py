"""Brittleness, as a module of `evaluate`."""

from hfcomp.metrics.modules.evaluate_metrics import Brittleness

__all__ = ["Brittleness"]
