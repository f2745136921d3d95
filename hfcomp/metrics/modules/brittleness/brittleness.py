"""Brittleness, as an `evaluate` module."""

from hfcomp.metrics.modules.evaluate_metrics import Brittleness

__all__ = ["Brittleness"]
