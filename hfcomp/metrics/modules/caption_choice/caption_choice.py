"""Caption choice, as an `evaluate` module."""

from hfcomp.metrics.modules.evaluate_metrics import CaptionChoice

__all__ = ["CaptionChoice"]
