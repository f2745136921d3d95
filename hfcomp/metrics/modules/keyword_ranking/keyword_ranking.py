"""Keyword ranking, as an `evaluate` module."""

from hfcomp.metrics.modules.evaluate_metrics import KeywordRanking

__all__ = ["KeywordRanking"]
