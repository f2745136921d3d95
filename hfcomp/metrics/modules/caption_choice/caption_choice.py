"""Caption choice, as a module of `evaluate`."""

from hfcomp.metrics.modules.evaluate_metrics import CaptionChoice

__all__ = ["CaptionChoice"]
